"""``aioprod consume``."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aioprod.cli.client import (
    CommandError,
    Progress,
    UsageError,
    add_registry_option,
    client_settings,
    command,
    registry_of,
)
from aioprod.cli.parser import Parser, natural_int, positive_int, separator
from aioprod.cli.reset_offsets import timestamp
from aioprod.counts import counted
from aioprod.logs import Logger, get_logger

if TYPE_CHECKING:
    from aioprod import Consumer, RebalanceListener
    from aioprod.cli.patterns import Formatter
    from aioprod.types import ConsumerRecord, TopicPartition

log: Logger = get_logger(__name__)

BEGINNING, END, OFFSET, LAST, TIME = "beginning", "end", "an offset", "the last", "a time"
_AT_ONCE = 2000
_LOOK_MS = 1000
_COMMIT_EACH_S = 1.0
_UNKNOWN_TOPIC_LIMIT_S = 0.5
_UNKNOWN_TOPIC_PAUSE_S = 0.1
_CLOSE_LIMIT_MS = 2_500
_COMMIT_LIMIT_MS = 2_000
_PRINT_LIMIT_S = 0.5


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod consume``."""
    parser.description = "Prints records, one per line, until Ctrl-C, --count or --exit."
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="join this consumer group, and commit printed records",
    )
    parser.add_argument(
        "-f",
        "--from",
        dest="start",
        type=Start.parse,
        default=BEGINNING,
        metavar="WHERE",
        help="beginning, end, an offset, -N for the last N of each partition, or a time such as "
        "2026-01-31T08:00:00Z; with --group only beginning or end, "
        "for partitions without a committed offset (default: %(default)s)",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=natural_int,
        action="append",
        metavar="N",
        help="read only this partition; may be repeated",
    )
    parser.add_argument(
        "-n", "--count", type=positive_int, metavar="N", help="end after this many records"
    )
    parser.add_argument(
        "-e",
        "--exit",
        action="store_true",
        help="end at the partitions' end offsets as of the start",
    )
    _add_format(parser)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="don't print the number of records"
    )
    command(parser, _consume)


def _add_format(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        metavar="PATTERN",
        help="json, or a pattern of %%t topic, %%p partition, %%o offset, %%T timestamp, %%k key, "
        "%%K its length, %%v value, %%V its length, %%R that length as four bytes, "
        "%%h headers, and \\n, \\t, \\xHH as in C (default: json)",
    )
    parser.add_argument(
        "-K",
        "--key-separator",
        type=separator,
        metavar="TEXT",
        help="print key, this text and value, as produce -K reads them; \\t for a tab",
    )
    add_registry_option(
        parser, "decode values by the schema ids that they begin with (extra schema-registry)"
    )
    parser.add_argument(
        "--decode",
        choices=("value", "key", "both"),
        help="what --registry decodes (default: value)",
    )


class Start(NamedTuple):
    """The start position: its kind, and a number."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Start:
        """Parse ``beginning``, ``end``, an offset, ``-N`` or a time."""
        if text in (BEGINNING, END):
            return cls(text)
        if text.removeprefix("-").isdecimal():
            return cls(LAST, int(text[1:])) if text.startswith("-") else cls(OFFSET, int(text))
        try:
            return cls(TIME, timestamp(text))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(
                f"must be beginning, end, an offset, -N or a time, which {error}"
            ) from None


async def _consume(options: argparse.Namespace) -> int:
    from aioprod.config.consumer import CONSUMER

    if options.decode is not None and options.registry is None:
        raise UsageError("--decode needs --registry")
    if options.group is not None and (
        options.partition is not None or options.start.kind not in (BEGINNING, END) or options.exit
    ):
        raise UsageError(
            "--group can't be used with --partition or --exit, and only with --from beginning "
            "or end"
        )
    formatter = _formatter(options)
    defaults = {
        "enable.auto.commit": False,
        "auto.offset.reset": "latest" if options.start.kind == END else "earliest",
        "allow.auto.create.topics": False,
    }
    settings = client_settings(options, CONSUMER, defaults)
    if options.group is not None:
        settings["group_id"] = options.group
    async with registry_of(options) as registry:
        if registry is not None:
            from aioprod.cli.registry import deserializers

            settings |= deserializers(registry, options.decode or "value")
        await _read(options, settings, formatter)
    return 0


def _formatter(options: argparse.Namespace) -> Formatter:
    from aioprod.cli.formats import json_lines
    from aioprod.cli.patterns import PatternError, keys_and_values, pattern

    for_terminal = sys.stdout.isatty()
    if options.key_separator is not None:
        if options.format is not None:
            raise UsageError("--key-separator can't be used with --format")
        return keys_and_values(options.key_separator, for_terminal=for_terminal)
    if options.format in (None, "json"):
        return json_lines
    try:
        return pattern(options.format, for_terminal=for_terminal)
    except PatternError as error:
        raise UsageError(f"--format: {error}") from None


async def _read(
    options: argparse.Namespace, settings: dict[str, object], formatter: Formatter
) -> None:
    from aioprod import Consumer

    consumer = Consumer.from_config(settings)
    await consumer.start()
    progress = Progress("read", options.quiet, sys.stdout)
    printing = Printing(consumer, formatter, progress, commits=options.group is not None)
    try:
        ends = await _begin(consumer, options, printing)
        try:
            await printing.run(options.count, ends)
        finally:
            await printing.commit()
    finally:
        try:
            await consumer.close(_CLOSE_LIMIT_MS)
        finally:
            progress.end(printing.printed)


async def _begin(
    consumer: Consumer, options: argparse.Namespace, printing: Printing
) -> dict[TopicPartition, int] | None:
    """Subscribe or assign; return the end offsets, if the command ends there."""
    from aioprod.types import TopicPartition

    partitions: list[TopicPartition] = []
    for topic in options.topics:
        present = await _partitions_of(consumer, topic)
        if missing := set(options.partition or ()) - present:
            raise UsageError(
                f"topic {topic} has no partition {min(missing)}: its partitions are 0 to "
                f"{len(present) - 1}"
            )
        partitions += [
            TopicPartition(topic, number)
            for number in sorted(present if options.partition is None else set(options.partition))
        ]
    if options.group is not None:
        consumer.subscribe(options.topics, listener=_committing(printing))
        return None
    consumer.assign(partitions)
    for partition, offset in (await start_offsets(consumer, partitions, options.start)).items():
        consumer.seek(partition, offset)
    return await consumer.end_offsets(partitions) if options.exit else None


def _committing(printing: Printing) -> RebalanceListener:
    """Return a listener that commits before partitions move to another member, so that the other
    member does not print records again.
    """
    from aioprod import RebalanceListener

    class Committing(RebalanceListener):
        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await printing.commit()

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            log.warning(
                "%s assigned to another member: the last records may be printed again",
                counted(len(partitions), "partition"),
            )

    return Committing()


async def _partitions_of(consumer: Consumer, topic: str) -> frozenset[int]:
    """Return a topic's partitions; brokers may not know a new topic yet, so retry."""
    patience = time.monotonic() + _UNKNOWN_TOPIC_LIMIT_S
    while not (present := await consumer.partitions_for_topic(topic)):
        if time.monotonic() >= patience:
            raise CommandError(f"topic {topic} does not exist")
        await asyncio.sleep(_UNKNOWN_TOPIC_PAUSE_S)
    return present


async def start_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """Return the start offsets, moved to the nearest offsets that exist."""
    if start.kind == BEGINNING:
        return await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    if start.kind == END:
        return ends
    if start.kind == TIME:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, start.number))
        return {
            partition: place.offset if (place := found[partition]) is not None else ends[partition]
            for partition in partitions
        }
    begins = await consumer.beginning_offsets(partitions)
    wanted = {
        partition: start.number if start.kind == OFFSET else ends[partition] - start.number
        for partition in partitions
    }
    return {
        partition: min(max(wanted[partition], begins[partition]), ends[partition])
        for partition in partitions
    }


class Printing:
    """Reads, prints, then commits. A record that was not printed is read by the next member.

    Attributes:
        printed: the number of records printed.
    """

    def __init__(
        self, consumer: Consumer, formatter: Formatter, progress: Progress, *, commits: bool
    ) -> None:
        self._consumer = consumer
        self._format = formatter
        self._progress = progress
        self._commits = commits
        self._committed_at = time.monotonic()
        self._uncommitted = False
        self._half_printed = False
        self.printed: int = 0

    async def run(self, count: int | None, ends: dict[TopicPartition, int] | None) -> None:
        """Print records until the count is reached, or all partitions are read to their ends."""
        limits = {(tp.topic, tp.partition): end for tp, end in (ends or {}).items()}
        while count is None or self.printed < count:
            if ends is not None and await self._is_at(ends):
                return
            most = _AT_ONCE if count is None else min(_AT_ONCE, count - self.printed)
            records = await self._consumer.getmany(most, _LOOK_MS)
            if ends is not None:
                records = [record for record in records if record.offset < limits[record[:2]]]
            await self._print(records)
            self._progress.at(self.printed)
            if time.monotonic() - self._committed_at >= _COMMIT_EACH_S:
                await self.commit()

    async def _is_at(self, ends: dict[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if await self._consumer.position(partition) < end:
                return False
        return True

    async def _print(self, records: Sequence[ConsumerRecord]) -> None:
        from aioprod.running_loop import start_task
        from aioprod.threads import in_thread

        if not records:
            return
        self._half_printed = True
        # In a thread: the output may be slow, and the event loop must send heartbeats.
        writing = start_task(
            in_thread(partial(_write, sys.stdout.fileno(), self._format(records))),
            name="aioprod-print",
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Interrupted (Ctrl-C) while writing: let the write complete.
            await asyncio.wait([writing], timeout=_PRINT_LIMIT_S)
            raise
        finally:
            if writing.done() and writing.exception() is None:
                self._half_printed = False
                self.printed += len(records)
                self._uncommitted = self._commits
            writing.cancel()

    async def commit(self) -> None:
        """Commit the positions, unless it is unknown which of the last records were printed."""
        from aioprod.errors import CommitFailedError, RebalanceInProgressError

        if not self._uncommitted or self._half_printed:
            return
        self._committed_at = time.monotonic()
        try:
            await self._consumer.commit(timeout_ms=_COMMIT_LIMIT_MS)
            self._uncommitted = False
        except RebalanceInProgressError:
            pass  # the group rebalances: the next poll completes the rebalance
        except CommitFailedError as error:
            self._uncommitted = False
            log.warning("some records will be printed again by another member: %s", error)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
