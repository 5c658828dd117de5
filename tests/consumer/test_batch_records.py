"""The records of a batch are the same, with the accelerator and without."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.consumer import records as module
from aioprod.consumer.records import ColumnBatch, open_batch
from aioprod.protocol.compression import compress
from aioprod.protocol.record_batch import HEADER_SIZE, build_batch, read_header, set_base_offset
from aioprod.protocol.record_encoder import encode_headers, encode_record
from aioprod.protocol.record_headers import HeaderBlocks
from aioprod.types import ConsumerRecord, Header, TopicPartition
from tests.protocol.test_native import accelerator, needs_native, python

TP = TopicPartition("topic", 3)
NAMES = ["name", "other", "näme"]


def headers(rng: random.Random) -> list[Header]:
    names = rng.choices(NAMES, k=rng.randint(0, 3))
    return [(name, rng.choice([None, b"", b"v", rng.randbytes(3)])) for name in names]


def written(rng: random.Random) -> bytearray:
    """Return a batch of any records; with gaps between its offsets, compressed, or with the
    broker's timestamps.
    """
    base, gaps = rng.choice([0, 1_700_000_000_000]), rng.random() < 0.3
    with_keys, with_headers = rng.random() < 0.6, rng.random() < 0.4
    records, offset, count = [], 0, rng.randint(1, 60)
    shared = headers(rng)
    for _ in range(count):
        offset += rng.choice([1, 1, 1, 2, 100]) if gaps else 1
        records.append(
            encode_record(
                rng.choice([0, 0, 1, -3, 100_000]),
                offset - 1,
                rng.randbytes(rng.randint(0, 80)) if with_keys and rng.random() < 0.9 else None,
                rng.randbytes(rng.choice([0, 3, 63, 64, 300])) if rng.random() < 0.9 else None,
                encode_headers(rng.choice([shared, headers(rng)]) if with_headers else []),
            )
        )
    codec = rng.choice([Codec.NONE, Codec.NONE, *Codec])
    batch = bytearray(
        build_batch(
            compress(codec, b"".join(records)),
            attributes=codec | rng.choice([0, 0, 8]),
            last_offset_delta=offset - 1 + rng.choice([0, 0, 5]),
            base_timestamp=base,
            max_timestamp=base + 100_000,
            record_count=count,
        )
    )
    set_base_offset(batch, 0, rng.choice([0, 1_000, 1 << 40]), rng.choice([-1, 7]))
    return batch


def read(data: bytes, start: int, sizes: list[int]) -> object:
    """Return the records in portions, with their types; or the error."""
    try:
        batch = open_batch(TP, memoryview(data), 0, read_header(data), start)
        portions = []
        for size in [*sizes, 1_000]:
            left = batch.left
            portion = list(batch.take(size))
            assert len(portion) == min(size, left) == left - batch.left
            portions.append([(type(record), tuple(record)) for record in portion])
        assert batch.left == 0 and list(batch.take(1)) == []
        return portions
    except Exception as error:
        return type(error), str(error)


def read_both(data: bytes, start: int, sizes: list[int]) -> tuple[object, object]:
    """Return what is read with the accelerator, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "cut_records", accelerator().cut_records)
        fast = read(data, start, sizes)
        patch.setattr(module, "cut_records", python("cut_records"))
        return fast, read(data, start, sizes)


SIZES = st.lists(st.integers(0, 40), max_size=4)


@needs_native
@settings(max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(0, 4), st.integers(-5, 70), SIZES)
def test_batches_are_read_alike(seed: int, changes: int, skipped: int, sizes: list[int]) -> None:
    """Even if bytes are changed: records, errors and their texts are the same."""
    rng = random.Random(seed)
    data = written(rng)
    for _ in range(changes):
        at = rng.randrange(HEADER_SIZE, len(data))
        data[at] = rng.choice([0, 1, 2, 3, 127, 128, 129, 255, rng.randrange(256)])
    fast, slow = read_both(bytes(data), read_header(data).base_offset + skipped, sizes)
    assert fast == slow


@needs_native
@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.integers(23, 61), st.integers(0, 255))
def test_headers_of_batches_are_judged_alike(seed: int, place: int, byte: int) -> None:
    """No header that the checksum would refuse may crash the accelerator, either."""
    data = written(random.Random(seed))
    data[min(place, len(data) - 1)] = byte
    try:
        read_header(data)
    except Exception:
        return
    fast, slow = read_both(bytes(data), 0, [3])
    assert fast == slow


@needs_native
def test_valid_batches_need_no_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source in Python would hide an accelerator that gives up too soon."""
    monkeypatch.setattr(module, "cut_records", accelerator().cut_records)
    for seed in range(300):
        data = written(random.Random(seed))
        assert not isinstance(open_batch(TP, data, 0, read_header(data), 0), ColumnBatch)


def template(**fields: Any) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 0, 0, 0, None, None, ())._replace(**fields)


ONE = encode_record(0, 0, b"key", b"value", encode_headers([("name", b"x")]))


@needs_native
@given(st.binary(max_size=200), st.integers(-2, 30), st.integers(-(1 << 62), 1 << 62))
def test_any_bytes_are_survived(body: bytes, count: int, number: int) -> None:
    cut = accelerator().cut_records
    for fields in (template(offset=number), template(timestamp=number)):
        records = cut(fields, body, count, number, number, False, HeaderBlocks())
        assert records is None or len(records.take(100)) == records.left or records.left == 0


@needs_native
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({0: ["not a tuple"]}, TypeError),
        ({0: ("too", "short")}, ValueError),
        ({0: template(offset="0")}, TypeError),
        ({0: template(timestamp=1 << 70)}, OverflowError),
        ({1: "text"}, TypeError),
        ({2: 1.0}, TypeError),
        ({3: 1 << 70}, OverflowError),
        ({4: None}, TypeError),
    ],
)
def test_wrong_arguments_raise(change: dict[int, Any], error: type[Exception]) -> None:
    arguments: list[Any] = [template(), ONE, 1, 0, 0, False, HeaderBlocks()]
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(error):
        accelerator().cut_records(*arguments)


@needs_native
def test_wrong_numbers_of_records_raise() -> None:
    records = accelerator().cut_records(template(), ONE, 1, 0, 0, False, HeaderBlocks())
    with pytest.raises(TypeError):
        records.take("1")
    with pytest.raises(OverflowError):
        records.take(1 << 70)
    assert records.take(-1) == [] and records.left == 1
    assert records.take(5) == [template(key=b"key", value=b"value", headers=(("name", b"x"),))]


@needs_native
def test_only_functions_make_batches() -> None:
    records = accelerator().cut_records(template(), ONE, 1, 0, 0, False, HeaderBlocks())
    with pytest.raises(TypeError):
        type(records)()


class _Interrupted(BaseException):
    pass


class _Blocks(dict[bytes, Any]):
    def __missing__(self, block: bytes) -> Any:
        raise _Interrupted


@needs_native
def test_a_base_exception_is_not_hidden() -> None:
    with pytest.raises(_Interrupted):
        accelerator().cut_records(template(), ONE, 1, 0, 0, False, _Blocks())


def test_a_batch_keeps_its_bytes_until_its_last_record_and_records_do_not() -> None:
    memory = bytearray(
        build_batch(
            ONE + encode_record(0, 1, b"k" * 20, b"v" * 70_000, b"\0"),
            attributes=0,
            last_offset_delta=1,
            base_timestamp=0,
            max_timestamp=0,
            record_count=2,
        )
    )
    with memoryview(memory) as view:
        batch = open_batch(TP, view, 0, read_header(memory), 0)
    records = list(batch.take(1))
    records += batch.take(1)
    memory.clear()  # a BufferError if there is still a view of it
    assert [record.value for record in records] == [b"value", b"v" * 70_000]


@needs_native
@pytest.mark.parametrize("name", ["whole", "part", "not taken", "invalid", "bad headers", "wrong"])
def test_nothing_leaks(name: str) -> None:
    cut, blocks = accelerator().cut_records, HeaderBlocks()
    body = b"".join(
        encode_record(at, at, b"k" * at, b"v" * at, encode_headers([("name", b"%d" % at)]))
        for at in range(50)
    )
    given = template(offset=1 << 50, timestamp=1 << 50)

    def wrong() -> None:
        with pytest.raises(_Interrupted):
            cut(given, body, 50, 49, 0, False, _Blocks())

    calls: dict[str, Callable[[], object]] = {
        "whole": lambda: cut(given, body, 50, 49, 0, False, blocks).take(50),
        "part": lambda: cut(given, body, 50, 49, 7, False, blocks).take(5),
        "not taken": lambda: cut(given, body, 50, 49, 0, False, blocks),
        "invalid": lambda: cut(given, body[:-1], 50, 49, 0, False, blocks),
        "bad headers": lambda: cut(given, ONE[:-2] + b"\xff" + ONE[-1:], 1, 0, 0, False, blocks),
        "wrong": wrong,
    }
    call = calls[name]
    for _ in range(50):
        call()
    gc.collect()
    before, references = sys.getallocatedblocks(), sys.getrefcount(ConsumerRecord)
    for _ in range(500):
        call()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100
    assert sys.getrefcount(ConsumerRecord) - references < 10
