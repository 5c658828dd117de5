"""Shared parts of the commands that connect to a cluster: bootstrap servers, client settings, exit
status.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO

from aioprod.cli.output import SAME_LINE, note
from aioprod.cli.parser import INTERRUPTED, USAGE_ERROR, Parser, assignment, path
from aioprod.counts import counted
from aioprod.foreign_text import escaped
from aioprod.logs import Logger, get_logger

if TYPE_CHECKING:
    from aioprod.config.setting import SettingsTable
    from aioprod.schema_registry import SchemaRegistry

log: Logger = get_logger(__name__)

_SERVERS = "bootstrap.servers"
_PROGRESS_EACH_S = 1.0


class CommandError(Exception):
    """The command failed: status 1."""


class UsageError(Exception):
    """The arguments are invalid: status 2."""


Work = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


def add_client_options(parser: Parser) -> None:
    """Add the options for connecting to a cluster."""
    client = parser.add_argument_group("cluster")
    client.add_argument(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="bootstrap servers, comma-separated (default: AIOPROD_BOOTSTRAP_SERVERS, else those "
        "of the profile, else localhost:9092)",
    )
    client.add_argument(
        "--profile",
        metavar="NAME",
        help="servers and security of this profile in ~/.config/aioprod/profiles.properties "
        "(default: AIOPROD_PROFILE, else the profile named default)",
    )
    client.add_argument(
        "-X",
        "--config",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=(
            "a client setting by Kafka's name, such as security.protocol=SASL_SSL; may be repeated"
        ),
    )
    client.add_argument(
        "--config-file",
        type=path,
        metavar="FILE",
        help="a properties file with client settings, as Kafka's tools read it; settings of other "
        "clients are ignored",
    )


def command(parser: Parser, work: Work) -> None:
    """Set ``work`` as a command's function, and add the client's options."""
    add_client_options(parser)

    def begin(options: argparse.Namespace) -> Coroutine[Any, Any, int]:
        if options.config:
            from aioprod.config.properties_file import warn_of_secrets

            warn_of_secrets(dict(options.config), "-X", "--config-file")
        return work(options)

    parser.set_defaults(run=lambda options: run(parser.prog, lambda: begin(options)), parser=parser)


def client_settings(
    options: argparse.Namespace,
    client: SettingsTable,
    defaults: Mapping[str, object] | None = None,
    *,
    shared: bool = False,
) -> dict[str, object]:
    """Return the settings for one kind of client, for its ``from_config``: ``-b`` overrides ``-X``,
    which overrides the file, which overrides the profile.

    The environment and the default profile are used only if no argument names the cluster: a
    password must not be sent to servers that it is not meant for.

    Args:
        options: the command's arguments.
        client: the kind of client.
        defaults: further settings, unless the user sets them.
        shared: whether the command has clients of several kinds, and ``-X`` may set those of each.

    Raises:
        ConfigError: if a file can't be read, a line is not a setting, or there is no such profile.
    """
    named = dict(options.config)
    lines: dict[str, str] = {}
    if options.config_file is not None:
        from aioprod.config.properties_file import read_settings

        lines = read_settings(options.config_file, "--config-file")
    given: dict[str, object] = {}
    names_cluster = options.bootstrap_servers is not None or any(
        name.replace("_", ".") == _SERVERS for name in (*named, *lines)
    )
    if options.profile is not None or not names_cluster:
        from aioprod.config.profiles import connection_settings

        given |= connection_settings(options.profile)
    given |= _without_other_clients(lines, client)
    given |= _without_other_clients(named, client) if shared else named
    settings = {client.python_name(name): value for name, value in (defaults or {}).items()}
    settings |= {
        name if not client.knows(name) else client.python_name(name): value
        for name, value in given.items()
    }
    if options.bootstrap_servers is not None:
        settings[client.python_name(_SERVERS)] = options.bootstrap_servers
    return settings


def settings_of_any_client(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that clients of each kind have, as keyword arguments.

    Raises:
        ConfigError: if :func:`client_settings` raises it.
    """
    from aioprod.config.kafka_properties import python_settings
    from aioprod.config.profiles import client_table

    table = client_table()
    return python_settings(table, client_settings(options, table))


def add_registry_option(parser: Parser, meaning: str) -> None:
    """Add the option for a Schema Registry."""
    parser.add_argument(
        "--registry",
        metavar="URL",
        help=f"{meaning}; @FILE reads the URL from a file, which hides the password in it",
    )


@asynccontextmanager
async def registry_of(options: argparse.Namespace) -> AsyncIterator[SchemaRegistry | None]:
    """Return a client of the registry; None without --registry.

    Raises:
        UsageError: if the URL can't be read, or the extra is not installed.
        ConfigError: if the URL is invalid.
    """
    if options.registry is None:
        yield None
        return
    try:
        from aioprod.schema_registry import SchemaRegistry
    except ModuleNotFoundError as error:
        raise UsageError(
            f'--registry needs {error.name}: pip install "aioprod[schema-registry]"'
        ) from error
    async with SchemaRegistry(url_of(options.registry, "--registry")) as registry:
        yield registry


def url_of(given: str, argument: str) -> str:
    """Return the URL of an argument: ``@FILE`` reads it from a file. A password in the argument
    itself is warned about.

    Raises:
        UsageError: if the file can't be read.
    """
    if given.startswith("@"):
        try:
            with open(given[1:], encoding="utf-8-sig") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{argument} {given}: {error}") from error
    user_info, at, _ = given.rpartition("@")
    if at and ":" in user_info.rpartition("://")[2]:
        log.warning(
            "%s: all users of this machine can see the password in the process list; use @FILE",
            argument,
        )
    return given


def _without_other_clients(
    settings: Mapping[str, object], client: SettingsTable
) -> dict[str, object]:
    unknown = {name for name in settings if not client.knows(name)}
    if unknown:
        from aioprod.config.admin import ADMIN
        from aioprod.config.consumer import CONSUMER
        from aioprod.config.other_clients import is_of_registry
        from aioprod.config.producer import PRODUCER

        others = (ADMIN, CONSUMER, PRODUCER)
        unknown = {
            name
            for name in unknown
            if is_of_registry(name) or any(other.knows(name) for other in others)
        }
    return {name: value for name, value in settings.items() if name not in unknown}


def run(prog: str, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command. An error is printed as one line on standard error. Ctrl-C cancels the work,
    which then has five seconds to finish.

    Returns:
        The exit status.
    """
    import asyncio

    from aioprod.cli.command_log import CommandLog
    from aioprod.errors import ConfigError, KafkaError
    from aioprod.interrupt import Interrupt, Interrupted

    async def guarded() -> int:
        return await Interrupt().guard(work())

    log = logging.getLogger("aioprod")
    handler = CommandLog(prog)
    log.addHandler(handler)

    def fail(text: str, status: int) -> int:
        handler.print(text)
        note(f"{prog}: {escaped(text)}")
        return status

    try:
        status = asyncio.run(guarded())
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Interrupted):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as head, has exited
        _forget_output()
        return 0
    except (UsageError, ConfigError) as error:
        return fail(str(error), USAGE_ERROR)
    except (CommandError, KafkaError) as error:
        return fail(text_of(error), 1)
    finally:
        handler.print()
        log.removeHandler(handler)


def _forget_output() -> None:
    """Prevent the interpreter's last flush of standard output, which would fail."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def text_of(error: BaseException) -> str:
    """Return an error as one line."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


class Progress:
    """Prints the number of records on standard error: at the end, and each second if standard error
    is a terminal and the records are printed elsewhere.

    Args:
        verb: the participle for the records, such as ``read``.
        quiet: print nothing.
        records: the stream that the records are printed to.
    """

    def __init__(self, verb: str, quiet: bool, records: TextIO) -> None:
        self._verb = verb
        self._quiet = quiet
        self._goes_on = not quiet and sys.stderr.isatty() and not records.isatty()
        self._next_at = time.monotonic() + _PROGRESS_EACH_S
        self._line_begin = ""

    def at(self, records: int) -> None:
        """Report the number of records so far."""
        if self._goes_on and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _PROGRESS_EACH_S
            self._line_begin = SAME_LINE
            note(f"{self._verb} {counted(records, 'record')}", begin=SAME_LINE, end="")

    def end(self, records: int, rest: str = "") -> None:
        """Report the total number of records."""
        if not self._quiet:
            note(f"{self._verb} {counted(records, 'record')}{rest}", begin=self._line_begin)
