"""Records of formats 0 and 1, built by aiokafka and kafka-python, and by hand."""

from __future__ import annotations

import random
import struct
import warnings
import zlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.errors import CorruptRecordError
from aioprod.protocol import old_formats
from aioprod.protocol.compression import compress
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.record_reader import read_records
from aioprod.types import TopicPartition
from tests.foreign_bytes.readers import READERS, SPARK, Row
from tests.protocol.record_bytes import BASE, batch_of

Rows = Sequence[tuple[int, bytes | None, bytes | None]]
rows = st.lists(
    st.tuples(
        st.integers(0, 1 << 50),
        st.none() | st.binary(max_size=50),
        st.none() | st.binary(max_size=90),
    ),
    min_size=1,
    max_size=20,
)
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
SOME: Rows = [(BASE + number, b"k%d" % number, b"value %d" % number) for number in range(30)]


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = BASE,
    key: bytes | None = None,
) -> bytes:
    def field(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += field(key) + field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapped(codec: Codec, inner: bytes, offset: int, *, magic: int = 1, **more: Any) -> bytes:
    return message(offset, compress(codec, inner), magic=magic, **{"attributes": codec, **more})


def read(data: bytes) -> list[Row]:
    converted = bytes(in_current_format(data, check_crcs=True))
    found = READERS["records"](converted)
    for name, reader in READERS.items():
        assert reader(converted) == found, name
    return found


def expected(given: Rows, magic: int, first: int = 0) -> list[Row]:
    return [
        (first + index, stamp if magic else -1, key, value, ())
        for index, (stamp, key, value) in enumerate(given)
    ]


def built(builder: Any, given: Rows) -> bytes:
    for index, (stamp, key, value) in enumerate(given):
        builder.append(index, stamp, key, value)
    return bytes(builder.build())


def at(data: bytes, offset: int) -> bytes:
    """Set the offset of a compressed message to that of its last record, as the broker does."""
    return struct.pack(">q", offset) + data[8:]


# Neither writes lz4 of format 0, of which a test by hand follows.
@pytest.mark.parametrize(
    ("magic", "codec"), [pair for pair in product([0, 1], CODECS) if pair != (0, Codec.LZ4)]
)
@settings(max_examples=20)
@given(given=rows)
def test_what_aiokafka_builds(magic: int, codec: Codec, given: Rows) -> None:
    data = built(LegacyRecordBatchBuilder(magic, codec, 1 << 20), given)
    if codec:
        data = at(data, len(given) - 1)
    assert read(data) == expected(given, magic)
    theirs = MemoryRecords(data).next_batch()
    assert theirs is not None
    assert [(each.offset, each.key, each.value) for each in theirs] == [
        (offset, key, value) for offset, _, key, value, _ in read(data)[: 1 if not codec else None]
    ]


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, Codec.NONE), (1, Codec.NONE), (0, Codec.GZIP), (1, Codec.GZIP), (1, Codec.LZ4)],
)
def test_what_kafka_python_builds(magic: int, codec: Codec) -> None:
    with warnings.catch_warnings(action="ignore"):
        from kafka.record.legacy_records import (
            LegacyRecordBatchBuilder as OtherBuilder,
        )
    data = built(OtherBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 20), SOME)
    assert read(at(data, len(SOME) - 1) if codec else data) == expected(SOME, magic)


def test_offsets_in_a_compressed_message_count_from_its_first() -> None:
    inner = b"".join(message(number, b"v") for number in (0, 1, 5))
    assert [row[0] for row in read(wrapped(Codec.GZIP, inner, 105))] == [100, 101, 105]


def test_format_0_has_the_offsets_of_the_log_in_a_compressed_message() -> None:
    inner = b"".join(message(number, b"v", magic=0) for number in (100, 101, 105))
    found = read(wrapped(Codec.SNAPPY, inner, 105, magic=0))
    assert [row[:2] for row in found] == [(100, -1), (101, -1), (105, -1)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_are_all_numbered_0_end_with_the_outer_offset(magic: int) -> None:
    inner = message(0, b"a", magic=magic) * 3
    assert [row[0] for row in read(wrapped(Codec.GZIP, inner, 7, magic=magic))] == [5, 6, 7]


def test_the_broker_s_timestamp_is_that_of_all_inner_messages() -> None:
    inner = b"".join(message(number, b"v", timestamp=number) for number in range(3))
    data = wrapped(Codec.GZIP, inner, 2, attributes=Codec.GZIP | 8, timestamp=BASE + 5)
    assert [row[1] for row in read(data)] == [BASE + 5] * 3
    converted = read_records(in_current_format(data, check_crcs=True))
    assert [each.timestamp_type for each in converted] == [1, 1, 1]


def test_the_first_lz4_writers_computed_another_header_checksum() -> None:
    inner = b"".join(message(number, b"v" * 50, magic=0) for number in range(3))
    for store_size in (False, True):
        frame = bytearray(lz4.frame.compress(inner, block_linked=False, store_size=store_size))
        frame[14 if store_size else 6] ^= 0x55
        data = message(2, bytes(frame), magic=0, attributes=Codec.LZ4)
        assert [row[0] for row in read(data)] == [0, 1, 2]
        with pytest.raises(CorruptRecordError):
            read(message(2, bytes(frame), magic=1, attributes=Codec.LZ4))


def test_all_formats_follow_one_another() -> None:
    """A log has several formats if that of its topic was changed."""
    old = message(0, b"a", magic=0) + message(1, b"b", magic=0)
    middle = wrapped(Codec.GZIP, message(0, b"c") + message(1, b"d"), 3)
    new = bytearray(batch_of([(BASE, None, b"e", [])]))
    new[:8] = struct.pack(">q", 4)
    data = old + middle + bytes(new)
    assert [(row[0], row[3]) for row in read(data)] == [*enumerate([b"a", b"b", b"c", b"d", b"e"])]
    assert [each.value for each in read_records(bytes(new) + old)] == [b"e"], "refetched"


@pytest.mark.all_packages
def test_sparks_tasks_read_the_same() -> None:
    old = message(0, b"a") + message(1, b"b")
    both = old + wrapped(Codec.GZIP, message(0, b"c") + message(1, b"d"), 3)
    converted = bytes(in_current_format(both, check_crcs=True))
    assert SPARK(converted) == READERS["records"](converted) and len(SPARK(converted)) == 4


def test_data_of_the_current_format_are_not_copied() -> None:
    data = batch_of([(BASE, None, b"e", [])])
    assert in_current_format(data, check_crcs=True) is data
    assert in_current_format(b"", check_crcs=True) == b""


def test_an_incomplete_last_message_is_left_out() -> None:
    data = message(0, b"a") + message(1, b"b")
    for end in range(len(data) // 2, len(data)):
        assert [row[3] for row in read(data[:end])] == [b"a"]


BROKEN = {
    "a wrong checksum": message(0, b"abc")[:-1] + b"x",
    "an unknown codec": message(0, b"abc", attributes=6),
    "data that are not compressed": message(0, b"abc", attributes=1),
    "nothing": message(0, None, attributes=1),
    "a compressed message in one": wrapped(Codec.GZIP, wrapped(Codec.GZIP, message(0, b"v"), 0), 0),
    "another format inside": wrapped(Codec.GZIP, message(0, b"v", magic=0), 0),
    "half a message inside": wrapped(Codec.GZIP, message(0, b"vvv")[:-1], 0),
    "more messages than offsets": wrapped(Codec.GZIP, message(0, b"v") * 3, 1),
    "a size that is too small": struct.pack(">qi", 0, 5) + message(0, b"abc")[12:],
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_message_is_named_after_those_before_it(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=r"of format \(magic\) 1|truncated|gzip"):
        in_current_format(data, check_crcs=True)
    good = message(0, b"good")
    later = struct.pack(">q", 1) + data[8:]
    assert [row[3] for row in read(good + later)] == [b"good"]


@given(data=st.binary(max_size=300), magic=st.sampled_from([0, 1]), codec=st.sampled_from(CODECS))
def test_any_bytes_end_in_records_or_in_one_error(data: bytes, magic: int, codec: Codec) -> None:
    for garbage in (
        message(0, data, magic=magic)[:16] + bytes([magic]) + data,
        wrapped(codec, data, 3, magic=magic),
        message(3, data, magic=magic, attributes=codec),
    ):
        try:
            read_records(in_current_format(garbage, check_crcs=False))
        except CorruptRecordError:
            pass


def test_changed_bytes_end_in_records_or_in_one_error() -> None:
    random_ = random.Random(5)
    whole = wrapped(Codec.GZIP, b"".join(message(n, b"v" * n) for n in range(5)), 4)
    whole += b"".join(message(n, b"k", key=b"v" * n) for n in range(5, 9))
    for _ in range(2000):
        broken = bytearray(whole)
        for _ in range(random_.randint(1, 3)):
            broken[random_.randrange(len(broken))] = random_.randrange(256)
        broken[16] = 1
        try:
            read_records(in_current_format(bytes(broken), check_crcs=False), check_crc=False)
        except CorruptRecordError:
            pass


def test_bombs_are_not_unpacked_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_formats, "_ENOUGH", 1 << 20)
    inner = message(0, bytes(1 << 20))
    data = b"".join(wrapped(Codec.GZIP, inner, offset) for offset in range(50))
    converted = in_current_format(data, check_crcs=True)
    assert len(converted) < 3 << 20
    assert [each.offset for each in read_records(converted)] == [0]


def fetched(data: bytes, start: int = 0) -> FetchedData:
    state = PartitionState(TopicPartition("old", 3))
    return FetchedData(state, data, Position(start), None, None, check_crcs=True)


def test_a_consumer_reads_them_from_its_position_on() -> None:
    data = wrapped(Codec.GZIP, b"".join(message(n, b"%d" % n) for n in range(5)), 4)
    found = fetched(data, start=2)
    assert found.following == Position(5, -1)
    assert [each.value for each in found.take(10)] == [b"2", b"3", b"4"]
    assert found.position == Position(5, -1)
    rows = fetched(data, start=3).take_arrow(10)
    assert [value for part in rows for value in part.column("value").to_pylist()] == [b"3", b"4"]


@pytest.mark.parametrize("call", ["take", "take_arrow"])
def test_a_consumer_says_which_message_it_can_t_read(call: str) -> None:
    found = fetched(message(7, b"abc")[:-1] + b"x", start=7)
    assert found.following is None, "not fetched again before the application has the error"
    with pytest.raises(
        CorruptRecordError, match=r"old-3 at offset 7: message .* format \(magic\) 1"
    ):
        getattr(found, call)(10)
