"""Runs of batches are read as batches one by one are, with the accelerator and without."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.consumer import readable_batches
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.readable_batches import AbortedBatches
from aioprod.consumer.records import cut_batches
from aioprod.consumer.subscription import PartitionState, Position
from aioprod.protocol.batch_cursor import batch_places
from aioprod.protocol.checksum import crc32c
from aioprod.protocol.compression import compress
from aioprod.protocol.messages.fetch import AbortedTransaction
from aioprod.protocol.record_batch import build_batch
from aioprod.protocol.record_encoder import encode_headers, encode_record
from aioprod.protocol.record_headers import HeaderBlocks
from aioprod.types import Header, TopicPartition
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native, python

TP = TopicPartition("topic", 3)
PRODUCER = 77
MARKER = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3)
HEADERS: list[list[Header]] = [[], [("a", b"1")], [("a", b"1")], [("b", None), ("ä", b"")]]


def drawn_batch(rng: random.Random, base: int, size: int) -> bytes:
    """Return a batch of any kind that a log may have."""
    kind = rng.choice(["plain"] * 12 + ["marker", "empty", "packed", "transaction"])
    count = 0 if kind == "empty" else 1 if kind == "marker" else rng.choice([1, 1, 2, 9])
    gaps, offset, records = rng.random() < 0.2, -1, []
    with_headers = rng.random() < 0.3
    for _ in range(count):
        offset += rng.choice([1, 2, 50]) if gaps else 1
        key, value = rng.choice([None, b"", b"k%d" % offset]), rng.randbytes(rng.choice([0, size]))
        if kind == "marker":
            key, value = MARKER
        pairs = rng.choice(HEADERS) if with_headers else []
        records.append(
            encode_record(rng.choice([0, 0, 7, -2]), offset, key, value, encode_headers(pairs))
        )
    codec = Codec.GZIP if kind == "packed" else Codec.NONE
    return build_batch(
        compress(codec, b"".join(records)),
        attributes=codec
        | rng.choice([0, 0, 0x08])
        | {"marker": 0x30, "transaction": 0x10}.get(kind, 0),
        last_offset_delta=max(offset, 0) + rng.choice([0, 0, 0, 4]),
        base_timestamp=rng.choice([0, 1_700_000_000_000]),
        max_timestamp=1_700_000_000_999,
        producer_id=PRODUCER,
        record_count=count,
        base_offset=base,
        leader_epoch=rng.choice([-1, 5, 5, 6]),
    )


def drawn_log(rng: random.Random) -> tuple[bytearray, list[int]]:
    """Return batches, and the base offset of each."""
    data, bases = bytearray(), []
    base = rng.choice([0, 3, 1 << 40])
    size = rng.choice([3, 100, 5_000])  # the last one fills several runs
    for _ in range(rng.randint(1, 60)):
        batch = drawn_batch(rng, base, size)
        bases.append(base)
        data += batch
        base += struct.unpack_from(">i", batch, 23)[0] + 1 + rng.choice([0, 0, 0, 10])
    return data, bases


def spoiled(rng: random.Random, data: bytearray, changes: int) -> None:
    """Change bytes; let most of the batches have the right checksum nevertheless."""
    for _ in range(changes):
        data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 127, 255, rng.randrange(256)])
    for place in python("batch_places")(bytes(data)):
        (length,) = struct.unpack_from(">i", data, place + 8)
        if length >= 49 and rng.random() < 0.9:
            end = place + 12 + length
            struct.pack_into(">I", data, place + 17, crc32c(bytes(data[place + 21 : end])))


def read(data: bytes, start: int, rng: random.Random, **options: Any) -> list[object]:
    """Return the records with their types, and where reading ends: with an error, if any."""
    aborted = options.pop("aborted")
    transactions = None if aborted is None else AbortedBatches(aborted)
    found: list[object] = []
    try:
        source = FetchedData(
            PartitionState(TP), memoryview(data), Position(start), transactions, None, **options
        )
        found.append(source.following)
        while records := list(source.take(rng.choice([1, 5, 1_000]))):
            found += [(type(record), tuple(record)) for record in records]
            assert records[-1].offset < source.position.offset
            if rng.random() < 0.2:
                source.give_back(records[-1:])
                found.pop()
        found.append(source.position)
    except Exception as error:
        found += [type(error), str(error)]
    return found


def read_both(data: bytes, start: int, seed: int, **options: Any) -> tuple[object, object]:
    """Return what is read in runs, and batch by batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readable_batches, "cut_batches", accelerator().cut_batches)
        fast = read(data, start, random.Random(seed), **options)
        patch.setattr(readable_batches, "cut_batches", python("cut_batches"))
        return fast, read(data, start, random.Random(seed), **options)


@needs_native
@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([0, 0, 1, 3]),
    st.booleans(),
    st.sampled_from([None, [], [0], [20]]),
)
@example(0, 0, True, None)
def test_runs_are_read_as_batch_by_batch(
    seed: int, changes: int, check_crcs: bool, aborted: list[int] | None
) -> None:
    """Records, positions, errors and their texts are the same, even if bytes are changed."""
    rng = random.Random(seed)
    data, bases = drawn_log(rng)
    if changes:
        spoiled(rng, data, changes)
    listed = (
        None
        if aborted is None
        else [AbortedTransaction(PRODUCER, bases[0] + offset) for offset in aborted]
    )
    cut = len(data) - rng.choice([0, 0, 1, 70])
    start = bases[0] + rng.choice([0, 0, 1, 4])
    fast, slow = read_both(bytes(data[:cut]), start, seed, check_crcs=check_crcs, aborted=listed)
    assert fast == slow


@needs_native
@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(0, 6), st.integers(0, 200))
def test_the_accelerator_finds_the_same_batches(seed: int, changes: int, cut: int) -> None:
    rng = random.Random(seed)
    data, _ = drawn_log(rng)
    for _ in range(changes):
        data[rng.randrange(len(data))] = rng.choice([0, 1, 255])
    part = bytes(data[: max(len(data) - cut, 0)])
    assert accelerator().batch_places(part) == python("batch_places")(part)
    assert accelerator().batch_places(memoryview(part)) == python("batch_places")(part)


def one_by_one(count: int, size: int = 10) -> bytes:
    """Return batches of one record each."""
    return b"".join(
        build_batch(
            encode_record(0, 0, None, bytes(size)),
            attributes=0,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=0,
            record_count=1,
            base_offset=offset,
            leader_epoch=0,
        )
        for offset in range(count)
    )


def run_of(data: Any, most: int = 1 << 20, crcs: int | None = None, start: int = 0) -> Any:
    size = len(data) if crcs is None else crcs
    found = accelerator().cut_batches(TP, data, 0, most, start, size, True, HeaderBlocks())
    return found


@needs_native
def test_a_run_ends_after_the_bytes_that_are_asked_for() -> None:
    data = one_by_one(100)
    size = len(data) // 100
    for most, batches in [(1, 1), (size, 1), (size + 1, 2), (50 * size, 50), (1 << 40, 100)]:
        records, count, following, epoch = run_of(data, most)
        assert (records.left, count, following, epoch) == (batches, batches, batches, 0)
    assert run_of(data, 0) is None


@needs_native
def test_a_checksum_is_verified_up_to_the_place_that_is_given() -> None:
    data = bytearray(one_by_one(3))
    size = len(data) // 3
    data[-2] ^= 1  # in the last value
    assert run_of(data)[1] == 2
    assert run_of(data, crcs=2 * size)[1] == 3
    data[size - 2] ^= 1
    assert run_of(data) is None
    assert run_of(data, crcs=0)[1] == 3


@needs_native
def test_no_place_outside_the_data_is_taken() -> None:
    data = one_by_one(1)
    for place, crcs in [(-1, 0), (len(data) + 1, 0), (0, -1), (0, len(data) + 1)]:
        with pytest.raises(ValueError, match="a place is not in the data"):
            accelerator().cut_batches(TP, data, place, 1, 0, crcs, True, HeaderBlocks())
    arguments = (data, len(data), 1, 0, 0, True, HeaderBlocks())
    assert accelerator().cut_batches(TP, *arguments) is None


@needs_native
@pytest.mark.parametrize("at", [16, 11, 60, 61])
def test_memory_that_changes_while_it_is_read_is_an_error(at: int) -> None:
    data = bytearray(one_by_one(3))
    records = run_of(data)[0]
    assert len(records.take(1)) == 1
    data[len(data) // 3 + at] = 255
    with pytest.raises(SystemError, match="changed while its records were read"):
        records.take(2)
    assert records.take(2) == []
    data.clear()  # nothing refers to it


@needs_native
def test_runs_leak_nothing() -> None:
    rng = random.Random(7)
    log, bases = drawn_log(rng)
    data, broken = bytes(log), bytearray(log)
    broken[len(broken) // 2] ^= 255
    assert_no_leak(lambda: run_of(data, start=bases[0]) and run_of(data, start=bases[0])[0].take(5))
    assert_no_leak(lambda: run_of(broken, start=bases[0]))
    assert_no_leak(lambda: batch_places(data))


def test_python_opens_no_runs() -> None:
    arguments = (TP, one_by_one(1), 0, 1, 0, 0, True, HeaderBlocks())
    assert python("cut_batches")(*arguments) is None
    assert cut_batches.__name__ == "cut_batches"
