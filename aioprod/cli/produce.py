"""``aioprod produce``."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
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
from aioprod.cli.parser import (
    Commands,
    Parser,
    assignment,
    bytes_of,
    natural_int,
    separator,
)

if TYPE_CHECKING:
    from aioprod import Deliveries, Producer
    from aioprod.errors import KafkaError
    from aioprod.types import ProducerRecord

_CHUNK_BYTES = 256 * 1024
_CALLS_UNDER_WAY = 20
_CLOSE_LIMIT_MS = 4_000


def add_produce(commands: Commands[Parser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "produce",
        help="send lines to a topic",
        description="Sends each line of standard input as a record, until the input ends.",
        allow_abbrev=False,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--format",
        choices=("value", "json"),
        default="value",
        help='value: a line is the record\'s value. json: it is {"key": ..., "value": ..., '
        '"headers": ..., "partition": ..., "timestamp": ...}, as '
        "aioprod consume prints it (default: %(default)s)",
    )
    parser.add_argument(
        "-K",
        "--key-separator",
        type=separator,
        metavar="TEXT",
        help="separator of key and value in a line; \\t for a tab",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=natural_int,
        metavar="N",
        help=("send to this partition, regardless of the key"),
    )
    parser.add_argument(
        "-H",
        "--header",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="header of each record; may be repeated",
    )
    add_registry_option(parser, "encode values, which are JSON, by their subject's latest schema")
    parser.add_argument(
        "--subject", metavar="NAME", help="subject of the values' schema (default: TOPIC-value)"
    )
    parser.add_argument(
        "--key-subject",
        metavar="NAME",
        help="subject of the keys' schema, such as TOPIC-key (default: keys are not encoded)",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="don't print the number of records"
    )
    command(parser, _produce)


class _Sent(NamedTuple):
    """Records in flight, and the line number of the first one."""

    deliveries: Deliveries
    first_line: int


async def _produce(options: argparse.Namespace) -> int:
    from aioprod.config.producer import PRODUCER

    if options.registry is None and (options.subject or options.key_subject):
        raise UsageError("--subject and --key-subject go with --registry")
    settings = client_settings(options, PRODUCER)
    async with registry_of(options) as registry:
        if registry is not None:
            from aioprod.cli.registry import serializers

            subject = options.subject or f"{options.topic}-value"
            settings |= serializers(registry, subject, options.key_subject)
        await _send(options, settings)
    return 0


async def _send(options: argparse.Namespace, settings: dict[str, object]) -> None:
    from aioprod import Producer

    parse = _line_parser(options)
    producer = Producer.from_config(settings)
    await producer.start()
    sending = Sending(producer, options.topic)
    progress = Progress("sent", options.quiet, sys.stdin)
    failure: CommandError | None = None
    try:
        async for first, lines in _lines(sys.stdin.fileno()):
            records, failure = _records(parse, lines, first)
            await sending.send(records, first)
            progress.at(sending.succeeded)
            if failure is not None or sending.first_error is not None:
                break
        await sending.finish()
    finally:
        await producer.close(_CLOSE_LIMIT_MS)
        sending.count_rest()
        progress.end(
            sending.succeeded,
            f" to {options.topic}" + (f", {sending.failed:,} not" if sending.failed else ""),
        )
    if failure is not None:
        raise failure
    if sending.first_error is not None:
        raise CommandError(f"line {sending.first_failed_line}: {sending.first_error}")


class Sending:
    """Sends records and counts their outcomes, with a bounded number in flight.

    Attributes:
        succeeded, failed: numbers of records.
        first_error, first_failed_line: of the first failed record.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._under_way: deque[_Sent] = deque()
        self.succeeded = self.failed = self.first_failed_line = 0
        self.first_error: KafkaError | None = None

    async def send(self, records: list[bytes | ProducerRecord], first_line: int) -> None:
        """Send records; wait for the oldest if too many are in flight."""
        if records:
            self._under_way.append(
                _Sent(await self._producer.send_many(self._topic, records), first_line)
            )
        while len(self._under_way) > _CALLS_UNDER_WAY or (
            self._under_way and self._under_way[0].deliveries.done()
        ):
            await self._end_oldest()

    async def finish(self) -> None:
        """Wait for all records in flight."""
        while self._under_way:
            await self._end_oldest()

    async def _end_oldest(self) -> None:
        from aioprod.errors import KafkaError

        try:
            await self._under_way[0].deliveries.wait()
        except KafkaError:
            pass  # counted below, with the others
        self._count(self._under_way.popleft())

    def count_rest(self) -> None:
        """Count records still in flight after the producer is closed."""
        while self._under_way:
            self._count(self._under_way.popleft())

    def _count(self, sent: _Sent) -> None:
        errors = sent.deliveries.exceptions()
        if errors and self.first_error is None:
            number = min(errors)
            self.first_error, self.first_failed_line = errors[number], sent.first_line + number
        self.failed += len(errors)
        self.succeeded += len(sent.deliveries) - len(errors)


async def _lines(source: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield available lines, without line ends, many at once, with the number of the first."""
    from aioprod.threads import in_thread

    rest, number = b"", 1
    while chunk := await in_thread(partial(os.read, source, _CHUNK_BYTES)):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield number, lines
            number += len(lines)
    if rest:
        yield number, [rest]


_Parse = Callable[[bytes], "bytes | ProducerRecord"]


def _line_parser(options: argparse.Namespace) -> _Parse:
    """Return the function that converts a line to a record."""
    from aioprod.cli.formats import record_of_line
    from aioprod.types import ProducerRecord

    objects = {"value"} if options.registry is not None else set()
    objects |= {"key"} if options.key_subject is not None else set()
    headers = tuple((name, bytes_of(value)) for name, value in options.header)
    split = options.key_separator and bytes_of(options.key_separator)
    if options.format == "json":
        if split:
            raise UsageError("--key-separator goes with --format value")
        return lambda line: _completed(
            record_of_line(options.topic, line, objects), options.partition, headers
        )
    if not (split or options.partition is not None or headers or objects):
        return lambda line: line

    def make(line: bytes) -> ProducerRecord:
        key, found, value = line.partition(split) if split else (None, b"", line)
        if split and not found:
            raise ValueError(f"key separator {options.key_separator!r} not found")
        return ProducerRecord(
            options.topic,
            _parsed(value) if "value" in objects else value,
            _parsed(key) if "key" in objects and key is not None else key,
            options.partition,
            headers=headers,
        )

    return make


def _parsed(text: bytes) -> object:
    from aioprod.cli.formats import MOST_DEPTH
    from aioprod.decoding_limits import load_json

    try:
        return load_json(text, MOST_DEPTH, "a line")
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


def _completed(
    record: ProducerRecord, partition: int | None, headers: tuple[tuple[str, bytes], ...]
) -> ProducerRecord:
    return record._replace(
        partition=record.partition if partition is None else partition,
        headers=(*record.headers, *headers),
    )


def _records(
    parse: _Parse, lines: list[bytes], first: int
) -> tuple[list[bytes | ProducerRecord], CommandError | None]:
    """Return the records before the first invalid line, and the error of that line."""
    records: list[bytes | ProducerRecord] = []
    for number, line in enumerate(lines, start=first):
        try:
            records.append(parse(line))
        except ValueError as error:
            return records, CommandError(f"line {number}: {error}")
    return records, None
