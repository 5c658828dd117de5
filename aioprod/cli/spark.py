"""``aioprod spark``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aioprod.cli.client import CommandError, UsageError, client_settings, command
from aioprod.cli.output import note, say, show, table, time_text
from aioprod.cli.parser import Commands, Parser, name_choices
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.spark.checkpoint_check import Verdict
    from aioprod.spark.checkpoint_files import Checkpoint, PlannedBatch
    from aioprod.spark.checkpoint_positions import PartitionPosition
    from aioprod.spark.coordination import Coordination
    from aioprod.spark.exactly_once.decision import Decision
    from aioprod.types import TopicPartition

_DEFAULT_PREFIX = "aioprod-spark"


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod spark``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    _add_checkpoint(actions)
    name_choices(actions)


def _add_checkpoint(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "checkpoint",
        help="show the progress in a query's checkpoint, and check it",
        description=(
            "Shows the newest batches of a query's checkpoint, the last batch written exactly "
            "once, and the lag of each partition. Exit status 1: the query would fail or lose "
            "records if it restarted with this checkpoint."
        ),
        allow_abbrev=False,
    )
    parser.add_argument(
        "directory", metavar="DIR", help="the query's checkpointLocation, on this machine"
    )
    parser.add_argument(
        "--starting-offsets",
        action="store_true",
        help="print only the option startingOffsets for a new checkpoint that continues after the "
        "last written batch, on a line for each source",
    )
    parser.add_argument(
        "--offline", action="store_true", help="connect to no brokers: show the files only"
    )
    parser.add_argument(
        "--transactional-id-prefix",
        default=_DEFAULT_PREFIX,
        metavar="TEXT",
        help="the option transactionalIdPrefix of the query's sink (default: %(default)s)",
    )
    parser.add_argument(
        "--txn-app-id",
        metavar="ID",
        help="the option txnAppId of its writes in foreachBatch (default: the query's id)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _checkpoint)


async def _checkpoint(options: argparse.Namespace) -> int:
    try:
        from aioprod.spark.checkpoint_check import compare, without_decision
        from aioprod.spark.checkpoint_files import CheckpointError, read_checkpoint
        from aioprod.spark.checkpoint_positions import (
            dead_letter_counts,
            kafka_positions,
            look_up,
        )
    except ImportError as error:
        raise UsageError(str(error)) from error
    try:
        checkpoint = read_checkpoint(options.directory)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    decision: Decision | None = None
    partitions: Sequence[PartitionPosition] = ()
    losses: Sequence[str] = ()
    letters: Mapping[TopicPartition, int] = {}
    verdict = without_decision(checkpoint)
    if not options.offline:
        async with _coordination(options) as coordination:
            decision = await _decision(options, coordination, checkpoint)
            if decision is not None:
                verdict = compare(checkpoint, decision)
            letters = await dead_letter_counts(
                coordination, options.transactional_id_prefix, checkpoint.query_id
            )
            positions = kafka_positions(verdict.ends)
            partitions, losses = await look_up(coordination.client, positions)
    usable = verdict.is_usable and not losses
    if options.starting_offsets:
        return _print_starting_offsets(verdict)
    if options.json:
        found = _as_json(checkpoint, decision, verdict, partitions, losses)
        found["dead_letters"] = sum(letters.values())
        show(found)
    else:
        _print(options, checkpoint, decision)
        if letters:
            parts = [f"{tp.topic}-{tp.partition}: {count:,}" for tp, count in letters.items()]
            total = counted(sum(letters.values()), "dead letter")
            say(f"rejected   {total} ({escaped(', '.join(parts))})")
        if partitions:
            say(_table(partitions))
        say(f"{'ok' if verdict.is_usable else 'not usable'}: {escaped(verdict.text)}")
        for loss in losses:
            say(f"records are lost: {escaped(loss)}")
    return 0 if usable else 1


@asynccontextmanager
async def _coordination(options: argparse.Namespace) -> AsyncIterator[Coordination]:
    from aioprod.config.admin import ADMIN
    from aioprod.config.kafka_properties import client_arguments
    from aioprod.spark.coordination import CoordinationClient

    name = "aioprod-spark-checkpoint"
    with client_arguments(ADMIN, client_settings(options, ADMIN), lambda _: name) as given:
        limit_ms = given.get("default_api_timeout_ms", 60_000)
        client = CoordinationClient({**given, "max_block_ms": limit_ms}, given["client_id"])
        try:
            yield await client.connected()
        finally:
            await client.close()


async def _decision(
    options: argparse.Namespace, coordination: Coordination, checkpoint: Checkpoint
) -> Decision | None:
    from aioprod.spark.exactly_once.decision_log import read_decided
    from aioprod.spark.exactly_once.ids import Sink

    sink = Sink(options.transactional_id_prefix, options.txn_app_id or checkpoint.query_id)
    return await read_decided(coordination, sink, stable=True)


def _print_starting_offsets(verdict: Verdict) -> int:
    from aioprod.spark.exactly_once.source_offsets import as_starting_offsets

    if not verdict.ends:
        note(
            f"no offsets: {verdict.text}. Where its last batch ended isn't known; the progress of "
            "the query (sources.endOffset) has it"
            if not verdict.is_usable
            else f"no offsets: {verdict.text}"
        )
        return 1
    for end in verdict.ends:
        say(escaped(as_starting_offsets(end)))
    return 0


def _print(options: argparse.Namespace, checkpoint: Checkpoint, decision: Decision | None) -> None:
    say(f"query      {escaped(checkpoint.query_id)}")
    say(f"planned    {_described(checkpoint.planned)}")
    say(f"finished   {_described(checkpoint.finished_batch)}")
    if options.offline:
        return
    if decision is None:
        sink = options.txn_app_id or checkpoint.query_id
        say(
            "written    no batch exactly once, as group "
            f"{escaped(f'{options.transactional_id_prefix}-{sink}')} says"
        )
    elif decision.is_taken_back:
        say(f"written    batch {decision.version - 1}; {decision.version} was taken back")
    else:
        say(
            f"written    batch {decision.version}: {counted(decision.rows, 'row')} in "
            f"{counted(len(decision.transactions), 'transaction')}, topic {escaped(decision.topic)}"
        )


def _described(batch: PlannedBatch | None) -> str:
    if batch is None:
        return "no batch"
    watermark = f", watermark {time_text(batch.watermark_ms)}" if batch.watermark_ms > 0 else ""
    return f"batch {batch.number}, planned at {time_text(batch.planned_ms)}{watermark}"


def _table(partitions: Sequence[PartitionPosition]) -> str:
    rows: list[tuple[object, ...]] = [("TOPIC", "PARTITION", "OFFSET", "BEGIN", "END", "LAG")]
    rows += [(p.topic, p.partition, p.offset, p.begin, p.end, p.lag) for p in partitions]
    return table(rows)


def _as_json(
    checkpoint: Checkpoint,
    decision: Decision | None,
    verdict: Verdict,
    partitions: Sequence[PartitionPosition],
    losses: Sequence[str],
) -> dict[str, Any]:
    written = None if decision is None else decision.next_version - 1
    return {
        "query": checkpoint.query_id,
        "planned": checkpoint.planned and dataclasses.asdict(checkpoint.planned),
        "finished": checkpoint.finished_batch and dataclasses.asdict(checkpoint.finished_batch),
        "written": written,
        "written_topic": decision.topic if decision is not None else None,
        "usable": verdict.is_usable and not losses,
        "text": verdict.text,
        "losses": list(losses),
        "ends": list(verdict.ends),
        "partitions": [{**dataclasses.asdict(each), "lag": each.lag} for each in partitions],
    }
