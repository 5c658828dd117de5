"""``aioprod cluster``."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from aioprod.cli.client import client_settings, command
from aioprod.cli.output import say, show, table
from aioprod.cli.parser import Parser
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod cluster``."""
    parser.description = "Shows the running brokers."
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _describe)


def admin_client(options: argparse.Namespace) -> Admin:
    """Make the admin client for a command."""
    from aioprod.admin import Admin
    from aioprod.config.admin import ADMIN

    return Admin.from_config(client_settings(options, ADMIN))


async def _describe(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        described = await admin.describe_cluster()
    if options.json:
        show({
            "cluster_id": described.cluster_id,
            "controller": described.controller and described.controller.node_id,
            "brokers": [dataclasses.asdict(node) for node in described.nodes],
        })  # fmt: skip
        return 0
    say(escaped(f"cluster {described.cluster_id}"))
    rows = [
        (
            node.node_id,
            f"{node.host}:{node.port}",
            node.rack,
            "controller" if node == described.controller else "",
        )
        for node in described.nodes
    ]
    say(table([("BROKER", "ADDRESS", "RACK", ""), *rows]))
    return 0
