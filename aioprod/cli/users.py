"""``aioprod users``: SCRAM users."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioprod.cli.client import CommandError, UsageError, command
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, confirmed
from aioprod.cli.output import say, show, table
from aioprod.cli.parser import INTERRUPTED, Parser, name_choices, path, positive_int
from aioprod.cli.topics import report
from aioprod.counts import counted

if TYPE_CHECKING:
    from aioprod.admin import Admin, ScramMechanism

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_MAX_PASSWORD_BYTES = 4096
_MAX_LINE_BYTES = _MAX_PASSWORD_BYTES + 3  # with CR and LF, and one byte too many


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod users``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    listed = actions.add_parser("list", help="print users and mechanisms", allow_abbrev=False)
    listed.add_argument("users", nargs="*", metavar="USER")
    listed.add_argument("--json", action="store_true", help="print JSON")
    command(listed, _list)
    for name, meaning in (("add", "add a user"), ("change", "change a user's password")):
        parser = actions.add_parser(
            name,
            help=f"{meaning}; the password is asked for, or read from a file",
            allow_abbrev=False,
        )
        parser.add_argument("user", metavar="USER")
        _add_mechanism(parser)
        parser.add_argument(
            "--iterations",
            type=positive_int,
            metavar="COUNT",
            help="how often the password is hashed, from 4096 to 16384 (default: 8192)",
        )
        parser.add_argument(
            "--password-file",
            type=path,
            metavar="FILE",
            help="file with the password in its first line; - is standard input",
        )
        command(parser, _set)
        _ask_before(parser)
    removed = actions.add_parser(
        "remove", help="remove a user's password for a mechanism", allow_abbrev=False
    )
    removed.add_argument("users", nargs="+", metavar="USER")
    _add_mechanism(removed)
    add_confirmation(removed)
    command(removed, _remove)
    name_choices(actions)


def _add_mechanism(parser: Parser) -> None:
    parser.add_argument(
        "--mechanism",
        choices=MECHANISMS,
        default=MECHANISMS[0],
        help=f"each mechanism has its own password (default: {MECHANISMS[0]})",
    )


@dataclass(frozen=True)
class _Password:
    """A password; its repr does not show it."""

    text: str = field(repr=False)


def _ask_before(parser: Parser) -> None:
    """Read the password before the event loop starts, so that Ctrl-C ends the prompt."""
    run: Callable[[argparse.Namespace], int] = parser.get_default("run")

    def ask(options: argparse.Namespace) -> int:
        try:
            options.password = _Password(_password(options))
        except UsageError as error:
            parser.error(str(error))
        except (KeyboardInterrupt, EOFError):
            return INTERRUPTED
        return run(options)

    parser.set_defaults(run=ask)


def _password(options: argparse.Namespace) -> str:
    if options.password_file is None:
        if not sys.stdin.isatty():
            raise UsageError("standard input is not a terminal: set --password-file")
        first = getpass.getpass(f"password of {options.user}: ")
        if getpass.getpass("again: ") != first:
            raise UsageError("the passwords differ")
        return _checked(first, "the password")
    where = f"--password-file {options.password_file}"
    try:
        if str(options.password_file) == "-":
            line = sys.stdin.buffer.readline(_MAX_LINE_BYTES)
        else:
            with options.password_file.open("rb") as file:
                line = file.readline(_MAX_LINE_BYTES)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from None
    if len(line.rstrip(b"\r\n")) > _MAX_PASSWORD_BYTES:
        raise UsageError(f"{where}: must not have more than {_MAX_PASSWORD_BYTES} bytes")
    try:
        return _checked(line.decode().rstrip("\r\n"), where)
    except UnicodeDecodeError:
        pass  # the error's text has the password
    raise UsageError(f"{where}: not UTF-8")


def _checked(password: str, where: str) -> str:
    if not password:
        raise UsageError(f"{where}: must not be empty")
    return password


async def _list(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        described = await admin.describe_user_scram_credentials(options.users or None)
    found = sorted(described.successes.items())
    if options.json:
        show([
            {
                "user": user,
                "credentials": [
                    {"mechanism": _name(each.mechanism), "iterations": each.iterations}
                    for each in sorted(credentials)
                ],
            }
            for user, credentials in found
        ])  # fmt: skip
    elif found:
        rows = [
            (user, _name(each.mechanism), each.iterations)
            for user, credentials in found
            for each in sorted(credentials)
        ]
        say(table([("USER", "MECHANISM", "ITERATIONS"), *rows]))
    return report(options, described.errors.values())


async def _set(options: argparse.Namespace) -> int:
    from aioprod.admin import ScramPassword

    mechanism = _mechanism(options)
    iterations = {} if options.iterations is None else {"iterations": options.iterations}
    change = ScramPassword(options.user, options.password.text, mechanism, **iterations)
    async with admin_client(options) as admin:
        exists = await _has(admin, options.user, mechanism)
        what = f"{options.user} has {'a' if exists else 'no'} password for {options.mechanism}"
        if options.action == "add" and exists:
            raise CommandError(f"{what}; use change")
        if options.action == "change" and not exists:
            raise CommandError(f"{what}; use add")
        changed = await admin.alter_user_scram_credentials([change])
    return report(options, changed.errors.values())


async def _has(admin: Admin, user: str, mechanism: ScramMechanism) -> bool:
    from aioprod.error_codes import ErrorCode

    described = await admin.describe_user_scram_credentials([user])
    for error in described.errors.values():
        if getattr(error, "code", None) != ErrorCode.RESOURCE_NOT_FOUND:
            raise error
    return any(each.mechanism == mechanism for each in described.successes.get(user, ()))


async def _remove(options: argparse.Namespace) -> int:
    from aioprod.admin import ScramRemoval

    mechanism = _mechanism(options)
    removals = [ScramRemoval(user, mechanism) for user in dict.fromkeys(options.users)]
    plan = [("USER", "MECHANISM"), *((each.user, options.mechanism) for each in removals)]
    question = f"remove {counted(len(removals), 'password')}"
    if not await confirmed(options, plan, question):
        return 0
    async with admin_client(options) as admin:
        removed = await admin.alter_user_scram_credentials(removals)
    return report(options, removed.errors.values())


def _mechanism(options: argparse.Namespace) -> ScramMechanism:
    from aioprod.admin import ScramMechanism

    return ScramMechanism[options.mechanism.replace("-", "_")]


def _name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")
