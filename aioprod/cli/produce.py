"""``aioprod produce``."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aioprod.cli.client import (
    CommandError,
    Progress,
    UsageError,
    add_registry_option,
    client_settings,
    command,
    registry_of,
)
from aioprod.cli.output import note
from aioprod.cli.parser import (
    Parser,
    assignment,
    bytes_of,
    natural_int,
    separator,
)
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod import Deliveries, Producer
    from aioprod.errors import KafkaError
    from aioprod.types import ProducerRecord

_CHUNK_BYTES = 256 * 1024
_CALLS_IN_FLIGHT = 20
_CLOSE_LIMIT_MS = 4_000


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod produce``."""
    parser.description = "Sends each line of standard input as a record, until the input ends."
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
        "-k", "--key", metavar="KEY", help="key of the records whose lines have no key"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=natural_int,
        metavar="N",
        help="send to this partition, regardless of the key",
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
    _add_encoding(parser)
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="print why a line can't be sent, and continue with the next one (default: stop)",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="don't print the number of records"
    )
    command(parser, _produce)


def _add_encoding(parser: Parser) -> None:
    add_registry_option(parser, "encode values, which are JSON, by their subject's latest schema")
    parser.add_argument(
        "--subject", metavar="NAME", help="subject of the values' schema (default: TOPIC-value)"
    )
    parser.add_argument(
        "--key-subject",
        metavar="NAME",
        help="subject of the keys' schema, such as TOPIC-key (default: keys are not encoded)",
    )


class _Sent(NamedTuple):
    """Records in flight, and their line numbers."""

    deliveries: Deliveries
    lines: Sequence[int]


async def _produce(options: argparse.Namespace) -> int:
    from aioprod.config.producer import PRODUCER

    if options.registry is None and (options.subject or options.key_subject):
        raise UsageError("--subject and --key-subject need --registry")
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
    bad_lines = _BadLines(options.parser.prog, skip=options.skip_bad)
    sending = Sending(producer, options.topic, bad_lines)
    progress = Progress("sent", options.quiet, sys.stdin)
    try:
        async for first, lines in _lines(sys.stdin.fileno()):
            await sending.send(*_records(parse, lines, first, bad_lines))
            progress.at(sending.succeeded)
            if bad_lines.failure is not None or sending.first_error is not None:
                break
        await sending.finish()
    finally:
        await producer.close(_CLOSE_LIMIT_MS)
        sending.count_rest()
        progress.end(
            sending.succeeded,
            f" to {options.topic}"
            + (f", {sending.failed:,} not" if sending.failed else "")
            + (f", skipped {counted(bad_lines.skipped, 'line')}" if bad_lines.skipped else ""),
        )
    if bad_lines.failure is not None:
        raise bad_lines.failure
    if sending.first_error is not None:
        raise CommandError(f"line {sending.first_failed_line}: {sending.first_error}")


class _BadLines:
    """Lines that no broker would accept.

    Attributes:
        skipped: how many were skipped.
        failure: the error of the first one, if they are not skipped.
    """

    def __init__(self, prog: str, *, skip: bool) -> None:
        self._prog = prog
        self._skip = skip
        self.skipped: int = 0
        self.failure: CommandError | None = None

    def skips(self, line: int, error: Exception) -> bool:
        """Return whether to skip a line; if so, print why."""
        if not self._skip:
            return False
        self.skipped += 1
        note(escaped(f"{self._prog}: line {line} skipped: {error}"))
        return True


class Sending:
    """Sends records and counts their outcomes, with a bounded number in flight.

    Args:
        producer: sends them.
        topic: where to.
        bad_lines: skips the records that no broker would accept.

    Attributes:
        succeeded, failed: numbers of records.
        first_error, first_failed_line: error and line number of the first failed record.
    """

    failed: int
    first_failed_line: int
    succeeded: int

    def __init__(self, producer: Producer, topic: str, bad_lines: _BadLines) -> None:
        self._producer = producer
        self._topic = topic
        self._bad_lines = bad_lines
        self._in_flight: deque[_Sent] = deque()
        self.succeeded = self.failed = self.first_failed_line = 0
        self.first_error: KafkaError | None = None

    async def send(self, records: list[bytes | ProducerRecord], lines: Sequence[int]) -> None:
        """Send the records of these lines; wait for the oldest if too many are in flight."""
        if records:
            self._in_flight.append(
                _Sent(await self._producer.send_many(self._topic, records), lines)
            )
        while len(self._in_flight) > _CALLS_IN_FLIGHT or (
            self._in_flight and self._in_flight[0].deliveries.done()
        ):
            await self._end_oldest()

    async def finish(self) -> None:
        """Wait for all records in flight."""
        while self._in_flight:
            await self._end_oldest()

    async def _end_oldest(self) -> None:
        from aioprod.errors import KafkaError

        try:
            await self._in_flight[0].deliveries.wait()
        except KafkaError:
            pass  # counted below with the others
        self._count(self._in_flight.popleft())

    def count_rest(self) -> None:
        """Count records still in flight after the producer is closed."""
        while self._in_flight:
            self._count(self._in_flight.popleft())

    def _count(self, sent: _Sent) -> None:
        errors = sent.deliveries.exceptions()
        for number, error in sorted(errors.items()):
            line = sent.lines[number]
            if _is_of_record(error) and self._bad_lines.skips(line, error):
                continue
            self.failed += 1
            if self.first_error is None:
                self.first_error, self.first_failed_line = error, line
        self.succeeded += len(sent.deliveries) - len(errors)


def _is_of_record(error: KafkaError) -> bool:
    """Return whether no broker would accept the record. An unreachable registry or a missing schema
    is not such an error: all lines would be skipped.
    """
    from aioprod.errors import (
        InvalidPartitionError,
        KafkaError,
        RecordTooLargeError,
        SerializationError,
    )

    if isinstance(error, SerializationError):
        return not isinstance(error.__cause__, KafkaError)
    return isinstance(error, InvalidPartitionError | RecordTooLargeError)


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
    default_key: Any = None if options.key is None else bytes_of(options.key)
    if default_key is not None and "key" in objects:
        default_key = _parsed(default_key)
    if options.format == "json":
        if split:
            raise UsageError("--key-separator needs --format value")
        return lambda line: _completed(
            record_of_line(options.topic, line, objects), default_key, options.partition, headers
        )
    plain = options.partition is None and default_key is None and not (split or headers or objects)
    if plain:
        return lambda line: line

    def make(line: bytes) -> ProducerRecord:
        key: Any
        key, found, value = line.partition(split) if split else (b"", b"", line)
        if found:
            key = _parsed(key) if "key" in objects else key
        elif split and default_key is None:
            raise ValueError(
                f"key separator {options.key_separator!r} not found; give --key for lines without "
                "one, or --skip-bad"
            )
        else:
            key, value = default_key, line
        return ProducerRecord(
            options.topic,
            _parsed(value) if "value" in objects else value,
            key,
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
    record: ProducerRecord,
    key: object,
    partition: int | None,
    headers: tuple[tuple[str, bytes], ...],
) -> ProducerRecord:
    return record._replace(
        key=key if record.key is None else record.key,
        partition=record.partition if partition is None else partition,
        headers=(*record.headers, *headers),
    )


def _records(
    parse: _Parse, lines: list[bytes], first: int, bad_lines: _BadLines
) -> tuple[list[bytes | ProducerRecord], Sequence[int]]:
    """Return the records before the first invalid line that is not skipped, and their lines."""
    records: list[bytes | ProducerRecord] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, start=first):
        try:
            records.append(parse(line))
            numbers.append(number)
        except ValueError as error:
            if not bad_lines.skips(number, error):
                bad_lines.failure = CommandError(f"line {number}: {error}")
                break
    return records, numbers
