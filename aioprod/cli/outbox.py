"""``aioprod outbox``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from aioprod.cli.client import (
    CommandError,
    UsageError,
    Work,
    command,
    run,
    settings_of_any_client,
    url_of,
)
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import note, say, show, table, time_text
from aioprod.cli.parser import Commands, Parser, name_choices, natural_int, positive_int
from aioprod.counts import counted

if TYPE_CHECKING:
    from aioprod.outbox import OutboxAdmin, OutboxRelay, RefusedRow
    from aioprod.page_server import Reply, Request

_PROBE_LIMIT_S = 3.0


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod outbox``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    ddl = actions.add_parser(
        "ddl",
        help="print the SQL that creates or changes the tables",
        description="Prints the SQL statements that create the tables of the outbox, or change "
        "them from one version to another.",
        allow_abbrev=False,
    )
    ddl.add_argument(
        "--dialect",
        choices=("postgresql", "sqlite"),
        default="postgresql",
        help="the database (default: %(default)s)",
    )
    ddl.add_argument(
        "--from",
        dest="from_version",
        type=natural_int,
        default=0,
        metavar="VERSION",
        help="the current version of the tables (default: there are no tables)",
    )
    ddl.add_argument(
        "--to",
        dest="to_version",
        type=natural_int,
        metavar="VERSION",
        help="the version that they will have; 0 drops them with all rows (default: the newest)",
    )
    ddl.add_argument(
        "--debezium",
        action="store_true",
        help="add columns for Debezium's outbox event router (PostgreSQL)",
    )
    ddl.set_defaults(run=_ddl, parser=ddl)
    _add_relay(actions)
    _add_refused(actions)
    name_choices(actions)


def _add_relay(actions: Commands[Parser]) -> None:
    relay = actions.add_parser(
        "relay",
        help="send the rows of the outbox to Kafka",
        description="Sends the rows of the table aioprod_outbox to Kafka, exactly once, and "
        "deletes them, until Ctrl-C or SIGTERM. Several relays share the shards, or wait for each "
        "other if there are fewer shards; all need the same --name and --shards.",
        allow_abbrev=False,
    )
    _add_database(relay)
    relay.add_argument(
        "--name",
        default="default",
        metavar="NAME",
        help="transactional ids and groups are aioprod-outbox-NAME-SHARD (default: %(default)s)",
    )
    relay.add_argument(
        "--shards",
        type=positive_int,
        default=1,
        metavar="N",
        help="in how many parts the work is divided, at most 64 (default: %(default)s)",
    )
    relay.add_argument(
        "--on-refused",
        choices=("stop_key", "set_aside"),
        default="stop_key",
        help="if Kafka refuses a row, later rows of its key wait, or only this one does (default: "
        "%(default)s)",
    )
    relay.add_argument(
        "--max-batch-records",
        type=positive_int,
        default=1_000,
        metavar="N",
        help="the most rows of a transaction (default: %(default)s)",
    )
    relay.add_argument(
        "--lease-ms",
        type=positive_int,
        default=10_000,
        metavar="MS",
        help="how long other relays wait for one that crashed (default: %(default)s)",
    )
    relay.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="serve /ready and /healthy for probes, and /metrics for Prometheus (default host: "
        "127.0.0.1)",
    )
    relay.add_argument("-q", "--quiet", action="store_true", help="don't print the number of rows")
    command(relay, _relay)


def _add_refused(actions: Commands[Parser]) -> None:
    status = actions.add_parser(
        "status", help="print how many rows wait, and for how long", allow_abbrev=False
    )
    refused = actions.add_parser(
        "refused", help="print the rows that Kafka refused", allow_abbrev=False
    )
    retry = actions.add_parser(
        "retry",
        help="let the relay send refused rows again",
        description="Lets the relay send refused rows again, and then those that wait for them.",
        allow_abbrev=False,
    )
    discard = actions.add_parser(
        "discard",
        help="delete refused rows, which are never sent",
        description="Deletes refused rows, which are never sent. Rows that wait for them are sent.",
        allow_abbrev=False,
    )
    for parser, work in (
        (status, _status),
        (refused, _refused),
        (retry, _retry),
        (discard, _discard),
    ):
        _add_database(parser)
        if work in (_status, _refused):
            parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=partial(_run, work), parser=parser)
    retry.add_argument("ids", nargs="*", type=positive_int, metavar="ID")
    retry.add_argument("--all", action="store_true", help="all refused rows")
    discard.add_argument("ids", nargs="+", type=positive_int, metavar="ID")
    add_confirmation(discard)


def _add_database(parser: Parser) -> None:
    parser.add_argument(
        "database",
        metavar="DATABASE",
        help="postgresql://..., or a file of SQLite; @FILE reads it from a file, which hides the "
        "password in it",
    )


def _run(work: Work, options: argparse.Namespace) -> int:
    return run(options.parser.prog, lambda: work(options))


def _ddl(options: argparse.Namespace) -> int:
    from aioprod import ConfigError
    from aioprod.outbox import ddl

    try:
        text = ddl(
            options.dialect,
            from_version=options.from_version,
            to_version=options.to_version,
            debezium=options.debezium,
        )
    except ConfigError as error:
        options.parser.error(str(error))
    say(text, end="")
    return 0


async def _relay(options: argparse.Namespace) -> int:
    from aioprod.outbox import OutboxRelay

    relay = OutboxRelay(
        url_of(options.database, "DATABASE"),
        name=options.name,
        shards=options.shards,
        on_refused=options.on_refused,
        lease_ms=options.lease_ms,
        max_batch_records=options.max_batch_records,
        **settings_of_any_client(options),
    )
    try:
        async with _served(relay, options):
            await relay.run()
    finally:
        if not options.quiet:
            note(f"sent {counted(relay.records_sent, 'row')}")
    return 0


@asynccontextmanager
async def _served(relay: OutboxRelay, options: argparse.Namespace) -> AsyncIterator[None]:
    """Respond to probes and scrapes over HTTP, if requested.

    Raises:
        UsageError: if the address is not one.
        CommandError: if it can't be used.
    """
    if options.http is None:
        yield
        return
    from aioprod.page_server import PageError, PageServer, parse_address

    routes: dict[str, Callable[[Request], Reply]] = {
        "/ready": partial(_probe, relay, asyncio.get_running_loop(), "/ready"),
        "/healthy": partial(_probe, relay, asyncio.get_running_loop(), "/healthy"),
        "/metrics": _scrape(relay),
    }
    try:
        server = PageServer(routes, *parse_address(options.http))
        server.start()
    except ValueError as error:
        raise UsageError(f"--http {error}") from None
    except PageError as error:
        raise CommandError(f"--http {error}") from None
    try:
        if not options.quiet:
            note(f"probes and metrics: {server.url}")
        yield
    finally:
        await asyncio.to_thread(server.close)


def _probe(
    relay: OutboxRelay, loop: asyncio.AbstractEventLoop, path: str, request: Request
) -> Reply:
    """Ask on the event loop, since the server calls this in a thread: a relay whose event loop
    hangs is not healthy.
    """
    from aioprod.page_server import Reply
    from aioprod.probes import Probed, answer

    probed: Future[Probed] = Future()
    loop.call_soon_threadsafe(lambda: probed.set_result(Probed(relay.ready, relay.healthy)))
    try:
        status, body = answer(path, probed.result(_PROBE_LIMIT_S))
    except TimeoutError:
        return Reply(b"the event loop does not respond\n", status=503)
    return Reply(body, "application/json", status)


def _scrape(relay: OutboxRelay) -> Callable[[Request], Reply]:
    from aioprod.page_server import Reply

    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        from aioprod.integrations.prometheus import PrometheusOutboxRelay
    except ModuleNotFoundError as error:
        missing = f'metrics need {error.name}: pip install "aioprod[prometheus]"\n'
        return lambda _: Reply(missing.encode(), status=501)
    registry = CollectorRegistry()
    PrometheusOutboxRelay(relay, registry)

    def metrics(request: Request) -> Reply:
        encode, content_type = choose_encoder(request.accept)
        return Reply(encode(registry), content_type)

    return metrics


def _admin(options: argparse.Namespace) -> OutboxAdmin:
    from aioprod.outbox import OutboxAdmin

    return OutboxAdmin(url_of(options.database, "DATABASE"))


async def _status(options: argparse.Namespace) -> int:
    async with _admin(options) as admin:
        backlog = await admin.backlog()
    if options.json:
        show({**backlog._asdict(), "shards": [each._asdict() for each in backlog.shards]})
        return 0
    age = f", the oldest for {backlog.oldest_age_ms / 1000:.1f} s" if backlog.rows else ""
    say(f"{counted(backlog.rows, 'row')} wait{'s' * (backlog.rows == 1)}{age}; Kafka refused "
        f"{backlog.refused}")  # fmt: skip
    if backlog.shards:
        rows = [(each.shard, each.owner, each.rows, each.oldest_age_ms) for each in backlog.shards]
        say(table([("SHARD", "RELAY", "ROWS", "OLDEST_AGE_MS"), *rows]))
    return 0


async def _refused(options: argparse.Namespace) -> int:
    async with _admin(options) as admin:
        found = await admin.refused()
    if options.json:
        show([{**each._asdict(), **_keys(each)} for each in found])
    elif found:
        say(table(_plan(found)))
    return 0


def _keys(row: RefusedRow) -> dict[str, str | None]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="backslashreplace")

    return {"key": text(row.key), "partition_key": text(row.partition_key)}


def _plan(found: list[RefusedRow]) -> list[tuple[object, ...]]:
    names = ("ID", "TOPIC", "KEY", "SINCE", "STOPS", "REASON")
    return [
        names,
        *(
            (
                each.id,
                each.topic,
                _keys(each)["key"],
                time_text(each.since_ms),
                each.stops,
                each.reason,
            )
            for each in found
        ),
    ]


async def _retry(options: argparse.Namespace) -> int:
    if bool(options.ids) == options.all:
        raise UsageError("give the ids of rows, or --all")
    async with _admin(options) as admin:
        found = await admin.retry(None if options.all else options.ids)
    note(f"{counted(len(found), 'row')} will be sent again")
    return _missing(options, found)


async def _discard(options: argparse.Namespace) -> int:
    check_can_ask(options)
    async with _admin(options) as admin:
        if not options.yes:
            found = [each for each in await admin.refused() if each.id in options.ids]
            question = f"discard {counted(len(found), 'row')}"
            if not found or not await confirmed(options, _plan(found), question):
                return _missing(options, [each.id for each in found])
        deleted = await admin.discard(options.ids)
    note(f"discarded {counted(len(deleted), 'row')}")
    return _missing(options, deleted)


def _missing(options: argparse.Namespace, found: list[int]) -> int:
    missing = [each for each in dict.fromkeys(options.ids) if each not in found]
    for each in missing:
        note(f"{options.parser.prog}: row {each} is not refused, or is being sent")
    return 1 if missing else 0
