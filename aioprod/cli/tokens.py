"""``aioprod tokens``: delegation tokens."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from aioprod.cli.client import CommandError, command
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import say, show, table, time_text
from aioprod.cli.parser import Parser, name_choices, natural_int, positive_int
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin, DelegationToken


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod tokens``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    listed = actions.add_parser(
        "list", help="print the tokens that you own or may renew", allow_abbrev=False
    )
    listed.add_argument(
        "--owner",
        action="append",
        metavar="TYPE:NAME",
        help="only tokens that this user owns or may renew; may be repeated",
    )
    listed.add_argument("--json", action="store_true", help="print JSON")
    command(listed, _list)
    created = actions.add_parser(
        "create",
        help="create a token, and print the settings to log in with it",
        description="Creates a token, and prints the settings to log in with it, among them its "
        "secret: write them to a file that only you can read, for --config-file.",
        allow_abbrev=False,
    )
    created.add_argument(
        "--renewer",
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="a user who may renew it in addition to its owner, such as User:bob; may be repeated",
    )
    created.add_argument("--owner", metavar="TYPE:NAME", help="another user, who logs in with it")
    created.add_argument(
        "--max-lifetime-ms",
        type=positive_int,
        metavar="MS",
        help="how long it can be renewed (default: the brokers' delegation.token.max.lifetime.ms)",
    )
    created.add_argument("--json", action="store_true", help="print JSON")
    command(created, _create)
    for name, meaning, default in (
        ("renew", "let a token expire later", "as the brokers are configured"),
        ("expire", "let a token expire earlier", "0"),
    ):
        changed = actions.add_parser(name, help=meaning, allow_abbrev=False)
        changed.add_argument("token", metavar="TOKEN", help="its id")
        changed.add_argument(
            "--period-ms",
            type=natural_int,
            metavar="MS",
            help=f"for how long it is valid from now on (default: {default})",
        )
        if name == "expire":
            add_confirmation(changed)
        command(changed, _renew if name == "renew" else _expire)
    name_choices(actions)


async def _list(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        found = await admin.describe_delegation_tokens(options.owner)
    found.sort(key=lambda token: (token.owner, token.issue_timestamp_ms, token.token_id))
    if options.json:
        show([_public(token) for token in found])
    elif found:
        rows = [
            (
                token.token_id,
                token.owner,
                token.requester,
                ",".join(token.renewers) or None,
                time_text(token.issue_timestamp_ms),
                time_text(token.expiry_timestamp_ms),
                time_text(token.max_timestamp_ms),
            )
            for token in found
        ]
        say(table([("TOKEN", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "MAX"), *rows]))
    return 0


async def _create(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        token = await admin.create_delegation_token(
            renewers=options.renewer, max_lifetime_ms=options.max_lifetime_ms, owner=options.owner
        )
    if options.json:
        show({**_public(token), "hmac": token.hmac_base64})
    else:
        say(
            "sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={escaped(token.token_id)}\nsasl.password={token.hmac_base64}\n"
            "sasl.delegation.token=true"
        )
    return 0


async def _renew(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        token = await _find(admin, options.token)
        until = await admin.renew_delegation_token(token, renew_period_ms=options.period_ms)
    say(time_text(until))
    return 0


async def _expire(options: argparse.Namespace) -> int:
    check_can_ask(options)
    async with admin_client(options) as admin:
        token = await _find(admin, options.token)
        expires = time_text(token.expiry_timestamp_ms)
        plan = [("TOKEN", "OWNER", "EXPIRES"), (token.token_id, token.owner, expires)]
        if not await confirmed(options, plan, f"let token {token.token_id} expire"):
            return 0
        until = await admin.expire_delegation_token(token, expiry_period_ms=options.period_ms)
    say(time_text(until))
    return 0


async def _find(admin: Admin, token_id: str) -> DelegationToken:
    """Return a token by its id: brokers want its secret, which should not be an argument."""
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise CommandError(f"there is no token {token_id} that you may describe")


def _public(token: DelegationToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": time_text(token.issue_timestamp_ms),
        "expires": time_text(token.expiry_timestamp_ms),
        "max": time_text(token.max_timestamp_ms),
    }
