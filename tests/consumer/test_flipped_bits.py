"""Every single bit of fetched batches is flipped: each reader gives what was written, or an error.

A reader never skips, changes or invents a record, and its position never moves past one that it did
not give. Each case reads a reply in which one bit differs, and then asks again from where it
stands, for a log that has the same bit flipped (the disk), and for one without (the wire).
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aioprod
from aioprod.codecs import Codec
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.partition_reader import FetchedRecords, FetchSettings, PartitionReader
from aioprod.consumer.readable_batches import AbortedBatches
from aioprod.consumer.share.requests import AcquiredRange, read_acquired
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.errors import CorruptRecordError
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.protocol.compression import compress
from aioprod.protocol.messages.fetch import AbortedTransaction, PartitionData
from aioprod.protocol.record_batch import BatchHeader, build_batch, read_header
from aioprod.types import TopicPartition
from aioprod.varints import encode_varint

TP = TopicPartition("t", 0)
BASE = 1_700_000_000_000
PRODUCER = 77
TRANSACTIONAL, CONTROL = 0x10, 0x30
ABORT, COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)
MARKER = struct.pack(">hi", 0, 3)

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

Given = tuple[int, bytes | None]

#: Where each field of a header is, and what comes of a flipped bit of it.
REFUSED = "refused"
FIELDS = {
    "base_offset": (0, 8, "refused if the question or a neighbor contradicts it"),
    "batch_length": (8, 12, "refused, or the batch counts as cut off and is requested again"),
    "partition_leader_epoch": (12, 16, "can't be known: the records are as written"),
    "magic": (16, 17, REFUSED),
    "crc": (17, 21, REFUSED),
    "attributes": (21, 23, REFUSED),
    "last_offset_delta": (23, 27, REFUSED),
    "base_timestamp": (27, 35, REFUSED),
    "max_timestamp": (35, 43, REFUSED),
    "producer_id": (43, 51, REFUSED),
    "producer_epoch": (51, 53, REFUSED),
    "base_sequence": (53, 57, REFUSED),
    "record_count": (57, 61, REFUSED),
}


@dataclass(frozen=True)
class Log:
    """Batches that follow one another without gaps; bits of the inner ones are flipped.

    Attributes:
        aborted: first offsets of aborted transactions of ``PRODUCER``.
        given: the records that a reader of committed records gives, by offset and value.
    """

    batches: tuple[bytes, ...]
    given: tuple[Given, ...]
    aborted: tuple[int, ...] = ()

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).last_offset + 1

    def place_of(self, offset: int) -> int:
        """Return the place where a broker begins to read for an offset."""
        place = 0
        for batch in self.batches:
            if read_header(batch).last_offset >= offset:
                break
            place += len(batch)
        return place


def batch(
    first: int, rows: Sequence[Row], attributes: int = 0, last_delta: int | None = None
) -> bytes:
    """Rows are offset delta, timestamp delta, key, value, headers."""
    body = bytearray()
    for delta, stamp, key, value, headers in rows:
        record = bytearray(b"\0" + encode_varint(stamp) + encode_varint(delta))
        for part in (key, value):
            record += encode_varint(-1) if part is None else encode_varint(len(part)) + part
        record += encode_varint(len(headers))
        for name, content in headers:
            record += encode_varint(len(name)) + name.encode()
            record += (
                encode_varint(-1) if content is None else encode_varint(len(content)) + content
            )
        body += encode_varint(len(record)) + record
    codec = Codec(attributes & 7)
    return build_batch(
        compress(codec, body) if codec else body,
        attributes=attributes,
        last_offset_delta=(rows[-1][0] if rows else 0) if last_delta is None else last_delta,
        base_timestamp=BASE,
        max_timestamp=BASE + 50,
        producer_id=PRODUCER if attributes & TRANSACTIONAL else -1,
        producer_epoch=0 if attributes & TRANSACTIONAL else -1,
        record_count=len(rows),
        base_offset=first,
        leader_epoch=5,
    )


def plain(values: list[bytes | None]) -> list[Row]:
    return [(index, index, None, value, ()) for index, value in enumerate(values)]


def log(
    *inner: tuple[Sequence[Row], int] | tuple[Sequence[Row], int, int], aborted: int | None = None
) -> Log:
    """A plain batch, the inner batches (rows, attributes, last offset delta), a plain batch."""
    batches: list[bytes] = []
    given: list[Given] = []
    first = 0
    for rows, attributes, *last_delta in [
        (plain([b"a", b"b"]), 0),
        *inner,
        (plain([b"y", b"z"]), 0),
    ]:
        batches.append(batch(first, rows, attributes, *last_delta))
        if attributes & CONTROL != CONTROL and not (
            aborted is not None and attributes & TRANSACTIONAL
        ):
            given += [(first + row[0], row[3]) for row in rows]
        first = read_header(batches[-1]).last_offset + 1
    return Log(tuple(batches), tuple(given), () if aborted is None else (aborted,))


TEXT: list[bytes | None] = [b"some text, some text" * 2, b"more text, some text"]
LOGS = {
    "plain": log((plain([b"one", b"two", None]), 0)),
    **{codec.name: log((plain(TEXT), int(codec))) for codec in Codec if codec},
    "keys": log(
        ([(0, 0, b"key", b"one", ()), (1, -3, b"", None, ()), (2, 900, b"key", b"", ())], 0)
    ),
    "headers": log(
        ([(0, 0, None, b"v", (("h", b"x"), ("n", None))), (1, 0, None, b"w", (("h", b"y"),))], 0)
    ),
    "marker": log(([(0, 0, COMMIT, MARKER, ())], CONTROL)),
    "transaction": log(
        (plain([b"t1", b"t2"]), TRANSACTIONAL), ([(0, 0, COMMIT, MARKER, ())], CONTROL)
    ),
    "aborted": log(
        (plain([b"t1", b"t2"]), TRANSACTIONAL), ([(0, 0, ABORT, MARKER, ())], CONTROL), aborted=2
    ),
    "empty": log(([], 0, 6)),
    "compacted": log(([(1, 0, None, b"one", ()), (5, 1, None, b"two", ())], 0, 7)),
    "alike": log((plain([b"%02d" % number for number in range(18)]), 0)),
    "steady": log((plain([b"x" * (number % 3) for number in range(8)]), 0)),
    "append time": log((plain([b"one", b"two"]), 0x08)),
}


Outcome = tuple[list[Given], int, CorruptRecordError | None]
Reader = Callable[[Log, bytes, int, bool], Outcome]
"""From a reply and the offset asked for to offsets and values, the position, and an error."""


def consumed(log: Log, data: bytes, asked: int, check_crcs: bool) -> Outcome:
    """Read a response with the consumer."""
    aborted = AbortedBatches([AbortedTransaction(PRODUCER, first) for first in log.aborted])
    fetched = FetchedData(
        PartitionState(TP), data, Position(asked), aborted, None, check_crcs=check_crcs
    )
    found: list[Given] = []
    try:
        while records := fetched.take(5):
            found += [(record.offset, record.value) for record in records]
    except CorruptRecordError as error:
        return found, fetched.position.offset, error
    if check_crcs:
        assert fetched.following == fetched.position, (
            "the next fetch is asked for where reading ends"
        )
    return found, fetched.position.offset, None


def by_rows(fetched: FetchedRecords) -> list[Given]:
    return [(record.offset, record.value) for record in fetched.records()]


def by_columns(fetched: FetchedRecords) -> list[Given]:
    """Read the columns, as Spark's reading task does."""
    found: list[Given] = []
    for arrays in read_arrays(fetched.data, fetched.batches):
        rows = zip(arrays.offsets.tolist(), arrays.values.to_pylist(), strict=True)
        found += [row for row in rows if fetched.start <= row[0] < fetched.end]
    return found


def partition_read(read: Callable[[FetchedRecords], list[Given]]) -> Reader:
    """Return a function that reads responses with a partition reader, equal batches once."""
    known: dict[tuple[Any, ...], list[Given]] = {}
    config = SimpleNamespace(retry_backoff_ms=1, retry_backoff_max_ms=1)
    client: Any = SimpleNamespace(config=config)

    def outcome(log: Log, data: bytes, asked: int, check_crcs: bool) -> Outcome:
        settings = FetchSettings(isolation_level="read_committed", check_crcs=check_crcs)
        reader = PartitionReader(client, TP, asked, log.end, settings)
        answer = PartitionData(records=data)
        answer.aborted_transactions = [AbortedTransaction(PRODUCER, first) for first in log.aborted]
        try:
            fetched = reader._take(answer)
            assert fetched is not None
            parts = (
                data[place : place + header.size_in_bytes] for header, place in fetched.batches
            )
            key = (*parts, fetched.start, fetched.end)
            if key not in known:
                known[key] = read(fetched)
            return known[key], reader.position, None
        except CorruptRecordError as error:
            return [], reader.position, error

    return outcome


def by_both(fetched: FetchedRecords) -> list[Given]:
    try:
        rows = by_rows(fetched)
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            by_columns(fetched)
        raise
    assert by_columns(fetched) == rows
    return rows


READERS: dict[str, Reader] = {"consumer": consumed, "partition readers": partition_read(by_both)}


def replies(log: Log, read: Reader, data: bytes, check_crcs: bool = True) -> Iterator[Outcome]:
    """Yield a reader's records and position after each response from a log of ``data``."""
    found: list[Given] = []
    position, error = 0, None
    while error is None and position < log.end:
        before = position
        more, position, error = read(log, data[log.place_of(before) :], before, check_crcs)
        assert error is not None or position > before, "the same is requested again and again"
        found = found + more
        yield found, position, error


def flips(log: Log, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """Each bit of the inner batches, as its place in its batch, and the data with it flipped."""
    data = bytearray(log.data)
    start = len(log.batches[0])
    for inner in log.batches[1:-1]:
        for bit in range(0, 8 * len(inner), step):
            place = start + bit // 8
            data[place] ^= 1 << bit % 8
            yield bit // 8, bytes(data)
            data[place] ^= 1 << bit % 8
        start += len(inner)


def field_of(place: int) -> str:
    return next(
        (name for name, (first, end, _) in FIELDS.items() if first <= place < end), "records"
    )


# A broker acquires no offset of an aborted transaction.
@pytest.mark.parametrize("name", [name for name, log in LOGS.items() if not log.aborted])
def test_a_share_consumer_skips_no_acquired_record(name: str) -> None:
    """An acquired record that can't be returned is released. It is not a gap: those are not
    delivered again.
    """
    log = LOGS[name]
    acquired = [AcquiredRange(0, log.end - 1, 1)]
    for place, data in flips(log):
        found = read_acquired(TP, data, acquired, check_crcs=True)
        given = tuple((record.offset, record.value) for record in found.records)
        assert given == log.given[: len(given)], place
        gaps = {offset for first, last in found.gaps for offset in range(first, last + 1)}
        unread = {offset for first, last in found.unread for offset in range(first, last + 1)}
        left = {offset for offset, _ in log.given[len(given) :]}
        assert left <= unread, (place, field_of(place))
        assert gaps & {offset for offset, _ in log.given} == set()


#: What gives headers that are not checked, or takes what it gets as checked, and the modules that
#: call it. One that is new here reads batches in a way that the tests below do not know.
CALLERS = {
    "read_header": {
        "protocol/batch_cursor.py",  # checked_header
        "consumer/fetched_data.py",  # of batches that were opened before
        "testing/broker/partition.py",
        "testing/broker/log.py",  # its own log
        "testing/broker/handlers/produce.py",
        "testing/broker/handlers/fetch.py",
        "testing/broker/handlers/share_fetch.py",
        "testing/broker/dead_letters.py",
    },
    "batch_places": {"protocol/batch_cursor.py"},
    "checked_header": {"protocol/batch_cursor.py"},
    "iter_batches": {"protocol/record_reader.py"},  # records of the producer and the broker
    "BatchCursor": {
        "consumer/readable_batches.py",
        "consumer/partition_reader.py",
        "consumer/share/requests.py",
    },
    "plain_body": {
        "protocol/record_reader.py",
        "protocol/arrow_reader.py",
        "consumer/records.py",
    },
    "body_columns": {"protocol/record_reader.py", "consumer/records.py"},
    "cut_batches": {"consumer/readable_batches.py"},
    "open_batch": {"consumer/fetched_data.py", "consumer/share/requests.py"},
    "read_columns": {"protocol/record_reader.py"},
    "read_batch_records": {
        "protocol/record_reader.py",
        "consumer/partition_reader.py",
        "consumer/readable_batches.py",
        "testing/broker/log.py",
        "testing/broker/cleaning.py",
    },
    "read_arrays": {"consumer/arrow_tables.py", "spark/reading.py"},
}


def test_each_reader_of_batches_is_known_here() -> None:
    root = Path(aioprod.__file__).parent
    found: dict[str, set[str]] = {name: set() for name in CALLERS}
    for path in root.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(name in text for name in CALLERS) else ():
            name = (
                node.func.id
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                else None
            )
            if name in found:
                found[name].add(path.relative_to(root).as_posix())
    assert found == CALLERS


def test_each_field_of_a_header_has_a_row_here() -> None:
    assert list(BatchHeader._fields) == list(FIELDS)
    ends = [0, *(end for _, end, _ in FIELDS.values())]
    assert [first for first, _, _ in FIELDS.values()] == ends[:-1]
    assert ends[-1] == 61


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("reader", READERS)
def test_each_flipped_bit_is_an_error_or_changes_nothing(kind: str, reader: str) -> None:
    log, read = LOGS[kind], READERS[reader]
    written = list(log.given)
    assert list(replies(log, read, log.data)) == [(written, log.end, None)]

    @cache
    def rest(position: int) -> list[Given]:
        if position == log.end:
            return []
        found, position, error = read(log, log.data[log.place_of(position) :], position, True)
        assert (position, error) == (log.end, None)
        return found

    for place, data in flips(log):
        where = f"byte {place}, {field_of(place)}"
        for found, position, _ in (outcomes := list(replies(log, read, data))):
            # What was not given comes from the position on, once the log is whole again.
            assert [*found, *rest(position)] == written, where
        if field_of(place) == "partition_leader_epoch":
            assert outcomes[-1] == (written, log.end, None), where
        else:
            assert outcomes[-1][2] is not None, where


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("reader", READERS)
def test_without_checksums_reading_still_ends(kind: str, reader: str) -> None:
    log, read = LOGS[kind], READERS[reader]
    for _, data in flips(log, 3 if reader == "consumer" else 11):
        for _ in replies(log, read, data, check_crcs=False):
            pass


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("bases", "asked", "refused"),
    [
        ((10, 12), 10, None),
        ((10, 14), 10, None),  # a gap, as compaction leaves
        ((9, 12), 10, None),  # the batch keeps the offset that was asked for
        ((8, 12), 10, "before offset 10"),
        ((11, 12), 10, "before one at offset 12"),
        ((10, 11), 10, "before one at offset 11"),
        ((10, 10), 10, "before one at offset 10"),
        ((10, 2), 10, "before one at offset 2"),
        ((-1, 12), 0, "impossible base offset -1"),
        ((-(2**63), 12), 0, "impossible base offset"),
        ((2**63 - 1, 12), 10, "impossible base offset"),
        ((2**63 - 2, 12), 10, "impossible base offset"),
        ((2**62, 12), 10, "impossible base offset"),
        ((10, 2**63 - 1), 10, "impossible base offset"),
    ],
)  # fmt: skip
def test_base_offsets_are_refused_where_something_contradicts_them(
    reader: str, bases: tuple[int, int], asked: int, refused: str | None
) -> None:
    """They are not under the checksum. A shifted last batch that nothing contradicts is read."""
    batches = tuple(batch(first, plain([b"1", b"2"])) for first in bases)
    log = Log(batches, ())
    found, position, error = READERS[reader](log, log.data, asked, True)
    if error is None and refused is not None:  # partition readers give what comes before an error
        more, position, error = READERS[reader](log, batches[1], position, True)
        found += more
    if refused is None:
        assert error is None
        assert position == log.end
    else:
        assert refused in str(error)
        assert position == asked + len(found)


@pytest.mark.parametrize("reader", READERS)
def test_a_batch_that_is_cut_off_still_shows_its_base_offset(reader: str) -> None:
    log = Log((batch(11, plain([b"1", b"2"])),), ())
    for size, refused in ((7, False), (8, True), (60, True)):
        data = log.data + batch(12, plain([b"3"]))[:size]
        found, position, error = READERS[reader](log, data, 10, True)
        assert (error is not None, position) == ((True, 10) if refused else (False, 13))
        assert not found or not refused


def end_of(data: bytes) -> Position | None:
    fetched = FetchedData(PartitionState(TP), data, Position(10), None, None, check_crcs=True)
    return fetched.following


@pytest.mark.parametrize("cut", [1, 20, 75])
def test_the_end_of_a_reply_is_not_known_without_a_whole_batch_that_is_right(cut: int) -> None:
    """No request goes on from an offset that may be wrong."""
    whole, second = batch(10, plain([b"1", b"2"])), batch(12, plain([b"3"]))
    assert end_of(whole[:cut]) is None
    broken = bytearray(whole + second)
    broken[len(whole) + 23] ^= 0x40  # the last offset delta
    assert end_of(bytes(broken)) is None
    assert end_of(whole + second) == Position(13, 5)
    assert end_of(whole + second[:cut]) == (
        Position(12, 5) if cut < len(second) else Position(13, 5)
    )
