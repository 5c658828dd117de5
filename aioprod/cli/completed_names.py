"""Names of topics, groups and profiles for the shell's completion: within two seconds, or none."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import threading
from pathlib import Path

from aioprod.cli.client import add_client_options
from aioprod.cli.output import say
from aioprod.cli.parser import Parser

KINDS = ("topics", "groups", "profiles")

_LIMIT_S = 2.0
_LIMIT_MS = 1_800


class _Incomplete(Exception):
    """The words before the cursor do not name the cluster."""


class _QuietParser(Parser):
    def exit(self, status: int = 0, message: str | None = None) -> None:  # type: ignore[override]
        raise _Incomplete


def print_names(kind: str, words: list[str]) -> None:
    """Print names, one per line; none if the cluster does not answer in time.

    Args:
        kind: one of ``KINDS``.
        words: the words of the command line, which name the cluster.
    """
    logging.getLogger("aioprod").addHandler(logging.NullHandler())
    names: list[str] = []
    # Imported before the limit begins, as imports take long on a busy machine.
    import aioprod.admin
    import aioprod.config.admin
    import aioprod.config.profiles  # noqa: F401

    asking = threading.Thread(target=_ask, args=(kind, words, names), daemon=True)
    asking.start()
    asking.join(_LIMIT_S)
    # A name that can't be typed is not offered.
    if found := sorted(name for name in list(names) if name.isprintable()):
        say("\n".join(found))
    if asking.is_alive():
        os._exit(0)  # a normal exit would wait for a slow name server


def _ask(kind: str, words: list[str], names: list[str]) -> None:
    try:
        if kind == "profiles":
            from aioprod.config.profiles import profile_names

            names += profile_names()
        else:
            names += asyncio.run(_names(kind, words))
    except Exception:  # an error would be printed in the middle of the user's line
        pass


async def _names(kind: str, words: list[str]) -> list[str]:
    from aioprod.admin import Admin
    from aioprod.cli.client import client_settings
    from aioprod.config.admin import ADMIN

    settings = client_settings(_options(words), ADMIN, shared=True)
    limit = {"default_api_timeout_ms": _LIMIT_MS, "request_timeout_ms": _LIMIT_MS}
    async with Admin.from_config({**settings, **limit}) as admin:
        return list(await (admin.list_topics() if kind == "topics" else admin.list_groups()))


def _options(words: list[str]) -> argparse.Namespace:
    parser = _QuietParser(prog="aioprod", allow_abbrev=False, add_help=False)
    add_client_options(parser)
    options: argparse.Namespace
    options, _ = parser.parse_known_args([word for word in words if word])
    if options.config_file is not None:
        options.config_file = Path(options.config_file).expanduser()
    return options
