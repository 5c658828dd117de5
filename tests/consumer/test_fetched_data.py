"""Fetched batches are read once, in order, however records and columns are taken from them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from crc32c import crc32c

from aioprod import native
from aioprod.codecs import Codec
from aioprod.column_serialization import DecodedColumn
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.errors import CorruptRecordError, DeserializationError
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.preparation import NotPrepared
from aioprod.protocol.compression import compress
from aioprod.protocol.record_batch import BatchHeader, build_batch, read_header
from aioprod.protocol.record_encoder import encode_record
from aioprod.types import TopicPartition

pa: Any = pytest.importorskip("pyarrow")

TP = TopicPartition("t", 0)
EPOCH = 5


def batch(
    offsets: Sequence[int],
    values: Sequence[bytes | None],
    *,
    base: int,
    last: int,
    attributes: int = 0,
    epoch: int = EPOCH,
) -> bytes:
    body = b"".join(
        encode_record(0, offset - base, None, value)
        for offset, value in zip(offsets, values, strict=True)
    )
    codec = Codec(attributes & 7)
    return build_batch(
        compress(codec, body) if codec else body,
        attributes=attributes,
        last_offset_delta=last - base,
        base_timestamp=1_000,
        max_timestamp=1_000,
        record_count=len(offsets),
        base_offset=base,
        leader_epoch=epoch,
    )


def fetched(
    data: bytes | memoryview,
    start: int = 0,
    converter: RecordConverter | None = None,
    *,
    check_crcs: bool = True,
) -> FetchedData:
    return FetchedData(
        PartitionState(TP), data, Position(start), None, converter, check_crcs=check_crcs
    )


# -- once ------------------------------------------------------------------------------------------


class Counted:
    """Counts the bytes that are checksummed, and the headers that are parsed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.checked: list[int] = []
        self.parsed: list[int] = []

        def counted_crc(data: Any, *rest: Any) -> int:
            self.checked.append(len(data))
            return crc32c(data, *rest)

        def counted_read(data: Any, place: int = 0) -> BatchHeader:
            self.parsed.append(place)
            return read_header(data, place)

        patch.setattr("aioprod.protocol.record_batch.crc32c", counted_crc)
        patch.setattr("aioprod.protocol.batch_cursor.read_header", counted_read)


def by_records(data: FetchedData) -> int:
    count = 0
    while records := data.take(7):
        count += len(records)
        if count % 2:  # as the consumer does in each call that needs the position
            rest = list(records)[1:]
            if rest:
                data.give_back(rest)
                count -= len(rest)
    return count


def by_columns(data: FetchedData) -> int:
    count = 0
    while parts := data.take_arrow(7):
        count += sum(part.num_rows for part in parts)
    return count


def by_both(data: FetchedData) -> int:
    count = 0
    while records := data.take(3):
        count += 1
        if rest := list(records)[1:]:
            data.give_back(rest)
        count += sum(part.num_rows for part in data.take_arrow(5))
    return count


@pytest.mark.parametrize("read", [by_records, by_columns, by_both])
@pytest.mark.parametrize("cut", [0, 30, 70])
def test_bytes_are_checksummed_once_and_headers_parsed_once(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[FetchedData], int], cut: int
) -> None:
    batches = [
        batch(range(base, base + 10), [b"v"] * 10, base=base, last=base + 9)
        for base in range(0, 50, 10)
    ]
    places = [sum(map(len, batches[:number])) for number in range(5)]
    rest = batch([50], [bytes(50)], base=50, last=50)[:cut]
    counted = Counted(monkeypatch)
    data = fetched(b"".join(batches) + rest)
    assert data.following == Position(50, EPOCH)
    assert read(data) == 50
    assert data.position == Position(50, EPOCH)
    if native.in_use:  # it reads all but the last one
        places, batches = places[-1:], batches[-1:]
    assert sorted(counted.parsed) == places
    assert sum(counted.checked) == sum(len(each) - 21 for each in batches)


def test_the_last_batch_is_checked_once_if_it_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (batch([base], [b"v"], base=base, last=base) for base in (0, 1))
    broken = bytearray(first + second)
    broken[-1] ^= 1
    counted = Counted(monkeypatch)
    data = fetched(bytes(broken))
    assert data.following is None
    assert len(data.take(10)) == 1
    with pytest.raises(CorruptRecordError, match=r"t-0 at offset 1: .*checksum"):
        data.take(10)
    places = [len(first)] if native.in_use else [len(first), 0]
    assert counted.parsed == places
    assert sum(counted.checked) == len(places) * (len(first) - 21)


def test_corrupt_data_is_released() -> None:
    memory = bytearray(batch([0], [b"v"], base=0, last=0))
    memory[-1] ^= 1
    data = fetched(memoryview(memory))
    with pytest.raises(CorruptRecordError):
        data.take(10)
    data.forget()
    memory.clear()  # a BufferError if something still refers to it


# -- any order of calls ----------------------------------------------------------------------------


async def prepare() -> None:
    raise AssertionError("the test notes itself that a letter is prepared")


class Needed(NotPrepared):
    """The first byte of a value is not prepared."""

    def __init__(self, letter: bytes) -> None:
        super().__init__(prepare)
        self.letter = letter


class Slow:
    """A deserializer of rows and of columns that has to be prepared for the first byte of each
    value. A value that begins with ``x`` can't be read, one that begins with ``y`` can't be
    prepared.
    """

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def __call__(self, topic: str, headers: object, data: bytes | None, /) -> str | None:
        if data is None:
            return None
        if data[:1] == b"x":
            raise ValueError("x")
        if data[:1] not in self.known:
            raise Needed(data[:1])
        return data.decode()

    def deserialize_column(self, topic: str, headers: Any, column: Any) -> DecodedColumn:
        values: list[str | None] = []
        errors: dict[int, Exception] = {}
        for number, value in enumerate(column.to_pylist()):
            try:
                values.append(self(topic, (), value))
            except Exception as error:
                errors[number] = error
                values.append(None)
        return DecodedColumn(pa.array(values, pa.string()), errors)


def converting(slow: Slow) -> RecordConverter:
    return RecordConverter(None, slow, ConsumerInterceptorChain(()))


def drawn(
    draw: random.Random, letters: bytes
) -> tuple[dict[int, bytes], list[tuple[int, bytes | None]]]:
    """Return batches of any kind by their last offset, and their records."""
    parts: dict[int, bytes] = {}
    rows: list[tuple[int, bytes | None]] = []
    base = 0
    for _ in range(draw.randint(1, 8)):
        kind = draw.choice(["records", "records", "records", "empty", "marker", "packed"])
        span = draw.randint(1, 12)
        last = base + span - 1
        if kind == "empty":
            parts[last] = batch([], [], base=base, last=last)
        elif kind == "marker":
            last = base
            parts[last] = batch([base], [b"m"], base=base, last=base, attributes=0x30)
        else:
            kept = range(base, base + span)
            offsets = sorted(draw.sample(kept, draw.randint(1, span)))
            values = [
                bytes([draw.choice(letters)]) + b"%d" % offset if draw.random() < 0.95 else None
                for offset in offsets
            ]
            attributes = draw.choice([1, 3, 4]) if kind == "packed" else 0
            parts[last] = batch(offsets, values, base=base, last=last, attributes=attributes)
            rows += zip(offsets, values, strict=True)
        base = last + 1 + draw.choice([0, 0, 0, 3])
    return parts, rows


def from_offset(batches: dict[int, bytes], start: int) -> bytes:
    """Return what a broker sends from an offset on."""
    return b"".join(each for last, each in batches.items() if last >= start)


def values_of(taken: Any) -> list[tuple[int, Any]]:
    return [(record.offset, record.value) for record in taken]


def rows_of(parts: list[Any]) -> list[tuple[int, Any]]:
    return [
        (offset, value)
        for part in parts
        for offset, value in zip(
            part.column("offset").to_pylist(), part.column("value").to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize("deserialized", [False, True])
def test_each_record_is_returned_once_in_any_order_of_calls(deserialized: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    draw = random.Random(seed)
    ends = 0
    for _ in range(200):
        batches, written = drawn(draw, b"aaaabbc")
        end = max(batches) + 1
        start = draw.randint(0, end - 1)
        slow = Slow()
        converter = converting(slow) if deserialized else None
        source = fetched(from_offset(batches, start), start, converter)
        expected: list[tuple[int, Any]] = [
            (offset, value.decode() if deserialized and value is not None else value)
            for offset, value in written
            if offset >= start
        ]
        found: list[tuple[int, Any]] = []
        while True:
            limit = draw.randint(1, 20)
            try:
                if draw.random() < 0.3:
                    taken = rows_of(source.take_arrow(limit))
                    ended = not taken
                    found += taken
                else:
                    records = list(source.take(limit))
                    assert len(records) <= limit
                    ended = not records
                    kept = draw.randint(0, len(records))
                    if kept < len(records) and draw.random() < 0.5:
                        source.give_back(records[kept:])
                        records = records[:kept]
                    found += values_of(records)
            except Needed as needed:
                ended = False
                slow.known.add(needed.letter)
                needed.is_done = True
            assert found == expected[: len(found)]
            left = expected[len(found) :]
            if left:
                before = found[-1][0] + 1 if found else start
                assert before <= source.position.offset <= left[0][0]
                assert not source.at_end
            if source.at_end:
                assert source.position == source.following
                ends += not ended
            if ended:
                break
        assert found == expected
        assert source.position == source.following == Position(end, EPOCH)
    assert ends, "the end was never found with the last record"


@pytest.mark.parametrize("letter", ["x", "y"])
def test_records_before_one_that_cannot_be_read_come_first_in_any_order_of_calls(
    letter: str,
) -> None:
    """The error of a record is raised when the records before it are returned, and again after the
    same data was fetched again.
    """
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    draw = random.Random(seed)
    for _ in range(200):
        batches, written = drawn(draw, b"aaaaaabbbbbb" + letter.encode())
        bad = [offset for offset, value in written if (value or b"")[:1] == letter.encode()]
        expected = [
            (offset, None if value is None else value.decode())
            for offset, value in written
            if not bad or offset < bad[0]
        ]
        slow = Slow()
        source = fetched(from_offset(batches, 0), 0, converting(slow))
        found: list[tuple[int, Any]] = []
        failure: DeserializationError | None = None
        while True:
            limit = draw.randint(1, 20)
            try:
                if draw.random() < 0.3:
                    taken = rows_of(source.take_arrow(limit))
                    found += taken
                else:
                    records = list(source.take(limit))
                    taken = values_of(records)
                    kept = draw.randint(0, len(records))
                    if kept < len(records) and draw.random() < 0.5:
                        source.give_back(records[kept:])
                        records = records[:kept]
                    found += values_of(records)
            except Needed as needed:
                needed.is_done = True
                if needed.letter == b"y":
                    needed.fail(LookupError("y"))
                else:
                    slow.known.add(needed.letter)
                continue
            except DeserializationError as error:
                failure = error
                break
            assert found == expected[: len(found)]
            assert not (source.at_end and bad)
            if not taken:
                break
        assert found == expected
        assert (failure.offset if failure else None) == (bad[0] if bad else None)
        if bad:
            before = found[-1][0] + 1 if found else 0
            assert before <= source.position.offset <= bad[0]


@pytest.mark.parametrize("deserialized", [False, True])
def test_records_before_a_corrupt_batch_come_first_in_any_order_of_calls(
    deserialized: bool,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    draw = random.Random(seed)
    slow = Slow()
    slow.known |= {b"a", b"b"}
    for _ in range(200):
        batches, written = drawn(draw, b"ab")
        corrupt = draw.choice(list(batches))
        broken = bytearray(batches[corrupt])
        broken[-1] ^= 1
        first = int.from_bytes(broken[:8], "big")
        batches[corrupt] = bytes(broken)
        expected: list[tuple[int, Any]] = [
            (offset, value.decode() if deserialized and value is not None else value)
            for offset, value in written
            if offset < first
        ]
        data = from_offset(batches, 0)
        source = fetched(data, 0, converting(slow) if deserialized else None)
        found: list[tuple[int, Any]] = []
        with pytest.raises(CorruptRecordError, match="checksum"):
            while True:
                limit = draw.randint(1, 20)
                if draw.random() < 0.3:
                    found += rows_of(source.take_arrow(limit))
                    continue
                records = list(source.take(limit))
                kept = draw.randint(0, len(records))
                if kept < len(records) and draw.random() < 0.5:
                    source.give_back(records[kept:])
                    records = records[:kept]
                found += values_of(records)
                assert not source.at_end
        assert found == expected
        assert (found[-1][0] + 1 if found else 0) <= source.position.offset <= first
        assert (source.following is None) == (corrupt == max(batches))


def test_a_start_after_the_last_record_of_a_compacted_batch() -> None:
    """A broker begins with the batch that kept the requested offset."""
    data = batch([0, 3], [b"a", b"b"], base=0, last=9) + batch([10], [b"c"], base=10, last=10)
    slow = Slow()
    slow.known.add(b"c")
    for each in (None, converting(slow)):
        rows = fetched(data, 7, each).take_arrow(1)
        assert [offset for offset, _ in rows_of(rows)] == [10]


def test_the_position_has_the_epoch_of_its_batch() -> None:
    data = batch([0, 1], [b"a", b"b"], base=0, last=1, epoch=1) + batch(
        [2, 3], [b"c", b"x"], base=2, last=3, epoch=2
    )
    slow = Slow()
    slow.known |= {b"a", b"b", b"c"}
    source = fetched(data, 0, converting(slow))
    assert len(rows_of(source.take_arrow(10))) == 3
    assert source.position == Position(3, 2)
    with pytest.raises(DeserializationError):
        source.take_arrow(10)
