"""The RecordBuffer in C does what that in Python does, and survives whatever is given to it."""

from __future__ import annotations

import copy
import gc
import math
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.protocol.record_buffer import KEYLESS, KEYLESS_OVERHEAD, NOTHING, RECORD_OVERHEAD
from aioprod.protocol.record_encoder import NO_HEADERS, encode_headers, encode_record
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native, python

pytestmark = needs_native

BASE = 1_700_000_000_000
LAST = (1 << 63) - 1
FIRST = -(1 << 63)
HEADERS = encode_headers([("name", b"value"), ("other", None)])


def native_buffer(base: int = BASE) -> Any:
    return accelerator().RecordBuffer(base)


# -- both do the same ------------------------------------------------------------------------------

field = st.binary(max_size=70) | st.sampled_from([63, 64, 8_191, 8_192, 20_000]).map(bytes)
near = st.integers(BASE - 70, BASE + 9_000)
times_s = near.map(lambda ms: ms / 1000) | st.floats(BASE / 1000, BASE / 1000 + 1)
odd_times_s = st.sampled_from(
    [0.0, -1.0, -0.0005, 5, math.nan, math.inf, -math.inf, 9.2e15, -9.2e15, 9.3e15, -9.3e15, 1e300]
)
timestamps = near | st.sampled_from([0, -1, FIRST, LAST, FIRST - 1, LAST + 1, BASE + (1 << 40)])
header_blocks = st.sampled_from(
    [NO_HEADERS, NO_HEADERS, HEADERS, encode_headers([("n", b"x" * 99)])]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), near, st.none() | field, field, header_blocks),
        st.tuples(st.just("add"), timestamps, st.none() | field, st.none() | field, header_blocks),
        st.tuples(st.just("add without headers"), near, st.none() | field, st.none() | field),
        st.tuples(st.just("at"), times_s | odd_times_s, field),
        st.tuples(
            st.just("values"),
            st.lists(field, max_size=12),
            st.integers(0, 3),
            st.integers(-40, 700) | st.sampled_from([30_000, sys.maxsize, -sys.maxsize - 1]),
            times_s | odd_times_s,
        ),
        st.tuples(st.just("encode")),
        st.tuples(st.just("take"), st.integers(1, 20), st.binary(max_size=40)),
        st.tuples(st.just("pieces")),
    ),
    max_size=25,
)


def take_step(buffer: Any, step: tuple[Any, ...]) -> object:
    """Take a step as the users of the class do; return what it returns, or the error's type."""
    name, *given = step
    try:
        if name.startswith("add"):
            return buffer.add(*given)
        if name == "at":  # a record must follow
            buffer.at(given[0])
            return buffer.add(int(given[0] * 1000), None, given[1])
        if name == "values":
            if buffer.kind != KEYLESS:
                return None
            values, start, room, now_s = given
            room = min(room + buffer.size, sys.maxsize)
            return buffer.add_values(values, start, room, now_s)
        buffer.encode_pending()
        if name == "take":
            buffer.count += given[0]
            return buffer.take(given[1])
        if name == "pieces":
            return b"".join(buffer.pieces())
        return None
    except (OverflowError, ValueError) as error:
        buffer.encode_pending()
        return type(error)


def state(buffer: Any) -> tuple[object, ...]:
    starts, stamps = buffer.timestamp_runs
    until = buffer.until_s
    return (
        *(buffer.size, buffer.kind, buffer.count, buffer.base_timestamp, buffer.max_timestamp),
        # So far from 1970, it is not the nearest number.
        until if abs(until) < 1 << 43 else pytest.approx(until, rel=1e-15),
        *(list(starts), list(stamps), buffer.compressed, buffer.timestamps),
    )


def contents(buffer: Any) -> tuple[object, ...]:
    pieces = b"".join(buffer.pieces())
    return pieces, list(buffer.key_sizes), list(buffer.value_sizes), *state(buffer)


@settings(max_examples=400)
@given(st.sampled_from([BASE, BASE, BASE, 0, FIRST, LAST, -(1 << 62)]), steps, st.booleans())
def test_both_do_the_same(base: int, steps: list[tuple[Any, ...]], with_timestamps: bool) -> None:
    ours, theirs = python("RecordBuffer")(base), native_buffer(base)
    assert state(ours) == state(theirs)
    for step in steps:
        assert take_step(ours, step) == take_step(theirs, step), step
        assert state(ours) == state(theirs), step
    assert contents(ours) == contents(theirs)
    for buffer in (ours, theirs):
        buffer.compressed = b"compressed"
        buffer.timestamps = range(buffer.count) if with_timestamps else None
        buffer.max_timestamp = 7
    assert contents(ours) == contents(theirs)
    for buffer in (ours, theirs):
        size = buffer.size
        buffer.release()
        assert (buffer.size, buffer.kind, buffer.pieces()) == (size, NOTHING, [])
        assert len(buffer.key_sizes) == len(buffer.value_sizes) == 0
        buffer.release()
    assert contents(ours) == contents(theirs)


@settings(max_examples=60)
@given(steps)
def test_released_while_records_are_not_encoded_both_are_the_same(
    steps: list[tuple[Any, ...]],
) -> None:
    ours, theirs = python("RecordBuffer")(BASE), native_buffer()
    for buffer in (ours, theirs):
        for step in steps:
            take_step(buffer, step)
        buffer.release()
    assert state(ours) == state(theirs)
    assert contents(ours) == contents(theirs)


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("length", [0, 100, 1_048_576])
def test_many_and_large_records_are_the_same(with_keys: bool, length: int) -> None:
    """Past the ends of tables of varints, and many steps of growing memory."""
    count = 17_000 if length <= 100 else 5
    ours, theirs = python("RecordBuffer")(BASE), native_buffer()
    for buffer in (ours, theirs):
        for number in range(count):
            timestamp = BASE + number // 3 * (number % 1_000 // 500)
            buffer.add(timestamp, b"%d" % number if with_keys else None, bytes(length))
        buffer.add(BASE, bytes(length), None)
    assert contents(ours) == contents(theirs)
    pieces = b"".join(theirs.pieces())
    assert (
        pieces.endswith(encode_record(0, count, bytes(length), None)) and theirs.count == count + 1
    )


def test_records_are_encoded_as_one_by_one() -> None:
    buffer, expected, rest = native_buffer(), b"", [(None, b"v"), (b"k", b"v"), (b"k", None)]
    for index, (key, value) in enumerate(rest * 3):
        headers = HEADERS if index % 2 else NO_HEADERS
        buffer.add(BASE + index // 2, key, value, headers)
        expected += encode_record(index // 2, index, key, value, headers)
    assert b"".join(buffer.pieces()) == expected
    assert list(buffer.key_sizes) == [-1, 1, 1] * 3 and list(buffer.value_sizes) == [1, 1, -1] * 3


# -- wrong arguments -------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[Any], object], type[Exception]]] = [
    (lambda _: accelerator().RecordBuffer(), TypeError),
    (lambda _: accelerator().RecordBuffer("0"), TypeError),
    (lambda _: accelerator().RecordBuffer(0.5), TypeError),
    (lambda _: accelerator().RecordBuffer(None), TypeError),
    (lambda _: accelerator().RecordBuffer(0, 0), TypeError),
    (lambda _: accelerator().RecordBuffer(base=0), TypeError),
    (lambda _: accelerator().RecordBuffer(LAST + 1), OverflowError),
    (lambda _: accelerator().RecordBuffer(FIRST - 1), OverflowError),
    (lambda _: accelerator().RecordBuffer.__new__(accelerator().RecordBuffer), TypeError),
    (lambda buffer: object.__new__(type(buffer)), TypeError),
    (copy.copy, TypeError),
    (lambda buffer: buffer.add(), TypeError),
    (lambda buffer: buffer.add(BASE, None), TypeError),
    (lambda buffer: buffer.add(BASE, None, b"", NO_HEADERS, 5), TypeError),
    (lambda buffer: buffer.add(BASE, None, value=b""), TypeError),
    (lambda buffer: buffer.add("0", None, b""), TypeError),
    (lambda buffer: buffer.add(1.0, None, b""), TypeError),
    (lambda buffer: buffer.add(None, None, b""), TypeError),
    (lambda buffer: buffer.add(BASE, "key", b""), TypeError),
    (lambda buffer: buffer.add(BASE, None, "value"), TypeError),
    (lambda buffer: buffer.add(BASE, None, bytearray()), TypeError),
    (lambda buffer: buffer.add(BASE, memoryview(b""), b""), TypeError),
    (lambda buffer: buffer.add(BASE, None, b"", "headers"), TypeError),
    (lambda buffer: buffer.add(BASE, None, b"", None), TypeError),
    (lambda buffer: buffer.add(LAST + 1, None, b""), OverflowError),
    (lambda buffer: buffer.add(FIRST, None, b""), OverflowError),
    (lambda buffer: buffer.at(), TypeError),
    (lambda buffer: buffer.at("now"), TypeError),
    (lambda buffer: buffer.at(math.nan), ValueError),
    (lambda buffer: buffer.at(math.inf), OverflowError),
    (lambda buffer: buffer.at(-math.inf), OverflowError),
    (lambda buffer: buffer.at(10**400), OverflowError),
    (lambda buffer: buffer.at(-9.22337203685477e15), OverflowError),
    (lambda buffer: buffer.add_values([b""], 0, 99), TypeError),
    (lambda buffer: buffer.add_values((b"",), 0, 99, 0.0), TypeError),
    (lambda buffer: buffer.add_values(["x"], 0, 99, 0.0), TypeError),
    (lambda buffer: buffer.add_values([None], 0, 99, 0.0), TypeError),
    (lambda buffer: buffer.add_values([b""], -1, 99, 0.0), IndexError),
    (lambda buffer: buffer.add_values([b""], -sys.maxsize - 1, 99, 0.0), IndexError),
    (lambda buffer: buffer.add_values([b""], 1 << 64, 99, 0.0), OverflowError),
    (lambda buffer: buffer.add_values([b""], 0, 1 << 64, 0.0), OverflowError),
    (lambda buffer: buffer.add_values([b""], 0, 0.5, 0.0), TypeError),
    (lambda buffer: buffer.add_values([b""], 0, 99, "now"), TypeError),
    (lambda buffer: buffer.add_values([b""], 0, 99, math.inf), OverflowError),
    (lambda buffer: buffer.take(), TypeError),
    (lambda buffer: buffer.take("text"), TypeError),
    (lambda buffer: buffer.take(bytearray(b"x")), TypeError),
    (lambda buffer: buffer.take(None), TypeError),
    (lambda buffer: buffer.encode_pending(1), TypeError),
    (lambda buffer: buffer.pieces(1), TypeError),
    (lambda buffer: buffer.release(1), TypeError),
    (lambda buffer: delattr(buffer, "count"), TypeError),
    (lambda buffer: setattr(buffer, "other", 1), AttributeError),
    *(
        (lambda buffer, name=name: setattr(buffer, name, 0), AttributeError)
        for name in (
            *("base_timestamp", "size", "kind", "until_s"),
            *("key_sizes", "value_sizes", "timestamp_runs"),
        )
    ),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_raise_and_change_nothing(number: int) -> None:
    call, error = WRONG[number]
    buffer = native_buffer()
    buffer.add(BASE + 3, None, b"first")
    buffer.encode_pending()
    before = contents(buffer)
    with pytest.raises(error):
        call(buffer)
    assert contents(buffer) == before
    buffer.add(BASE, b"key", b"second")
    assert b"".join(buffer.pieces()) == encode_record(3, 0, None, b"first") + encode_record(
        0, 1, b"key", b"second"
    )


def test_a_value_that_is_not_bytes_leaves_those_before_it() -> None:
    """They have their deliveries: the next call raises."""
    buffer = native_buffer()
    values = [b"a", b"b", "c"]
    assert buffer.add_values(values, 0, 1_000, BASE / 1000) == 2 and buffer.count == 2
    with pytest.raises(TypeError, match="values must be bytes"):
        buffer.add_values(values, 2, 1_000, BASE / 1000)
    assert buffer.add_values([b"c"], 0, 1_000, BASE / 1000) == 1 and buffer.count == 3
    assert list(buffer.value_sizes) == [1, 1, 1]


@pytest.mark.parametrize("name", ["count", "max_timestamp"])
@pytest.mark.parametrize("given", ["1", None, 1.5, 1 << 64, -(1 << 64)])
def test_a_member_that_is_set_to_no_number_harms_nothing(name: str, given: Any) -> None:
    """CPython sets it to -1, besides the exception."""
    buffer = native_buffer()
    buffer.add(BASE, None, b"first")
    with pytest.raises((TypeError, OverflowError)):
        setattr(buffer, name, given)
    assert getattr(buffer, name) == -1
    assert b"".join(buffer.pieces()) == encode_record(0, 0, None, b"first")


def test_a_room_is_full_at_the_same_byte() -> None:
    for buffer in (python("RecordBuffer")(BASE), native_buffer()):
        buffer.add(BASE, None, b"first")
        room = buffer.size + 2 * (3 + KEYLESS_OVERHEAD)
        assert buffer.add_values([b"123"] * 9, 1, room - 1, BASE / 1000) == 2
        assert buffer.add_values([b"123"] * 9, 2, room, BASE / 1000) == 3
        assert buffer.add_values([b""] * 9, 3, room, BASE / 1000) == 3


@pytest.mark.parametrize("room", [-sys.maxsize - 1, sys.maxsize])
def test_a_room_at_the_limit_of_a_number(room: int) -> None:
    buffer = native_buffer()
    buffer.add(BASE, None, b"first")
    assert buffer.add_values([b"x"] * 3, 0, room, 0.0) == (3 if room > 0 else 0)
    assert buffer.add_values([b"x"], sys.maxsize, room, 0.0) == sys.maxsize


@pytest.mark.parametrize("count", [sys.maxsize, (1 << 31) - 1, -1, -sys.maxsize - 1])
def test_a_count_that_no_batch_has_takes_no_record(count: int) -> None:
    buffer = native_buffer()
    buffer.add(BASE, None, b"first")
    buffer.count = count
    calls: list[Callable[[], object]] = [
        lambda: buffer.add(BASE, None, b"x"),
        lambda: buffer.add(BASE + 1, b"k", None),
        lambda: buffer.add_values([b"x"], 0, 1_000, BASE / 1000),
    ]
    for add in calls:
        with pytest.raises(OverflowError, match="takes no more records"):
            add()
    assert buffer.count == count and len(buffer.value_sizes) == 1
    assert b"".join(buffer.pieces()) == encode_record(0, 0, None, b"first")


@pytest.mark.parametrize("base", [FIRST, -1, 0, 1, LAST])
@pytest.mark.parametrize("timestamp", [FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST])
def test_timestamps_at_the_limits_of_64_bits(base: int, timestamp: int) -> None:
    buffer = native_buffer(base)
    if not FIRST <= timestamp - base <= LAST:
        with pytest.raises(OverflowError, match="more than 64 bits"):
            buffer.add(timestamp, None, b"x")
        assert buffer.count == 0 and buffer.max_timestamp == base
        return
    buffer.add(timestamp, None, b"x")
    assert buffer.max_timestamp == max(base, timestamp)
    assert list(map(list, buffer.timestamp_runs)) == [[0], [timestamp]]
    assert b"".join(buffer.pieces()) == encode_record(timestamp - base, 0, None, b"x")


# -- users' code, subclasses, the garbage collector ------------------------------------------------


class Number:
    """A number that runs code when it is read."""

    def __init__(self, code: Callable[[], object], number: int = 0) -> None:
        self._code = code
        self._number = number

    def __index__(self) -> int:
        self._code()
        gc.collect()
        return self._number

    def __float__(self) -> float:
        self._code()
        gc.collect()
        return BASE / 1000


@pytest.mark.usefixtures("quick_collections")
def test_reading_a_number_may_change_the_buffer() -> None:
    values = [b"v" * 100] * 50

    def codes(buffer: Any) -> list[Callable[[], object]]:
        return [
            values.clear,
            buffer.release,
            buffer.pieces,
            lambda: buffer.add(BASE + 9, b"k", b"v" * 5_000),
            lambda: setattr(buffer, "timestamps", None),
            lambda: buffer.__init__(BASE),
        ]

    for at in range(6):
        buffer = native_buffer()
        buffer.add(BASE, None, b"first")
        values[:] = [b"v" * 100] * 50
        number = Number(codes(buffer)[at])
        buffer.add(Number(codes(buffer)[at], BASE), b"k", b"v")
        buffer.at(number)
        assert buffer.add_values(values, number, sys.maxsize, 0.0) == len(values)
        assert buffer.add_values(values, 0, Number(codes(buffer)[at], 500), 0.0) <= len(values)
        assert buffer.add_values(values, 0, sys.maxsize, number) == len(values)
        sizes = buffer.key_sizes, buffer.value_sizes
        assert b"".join(buffer.pieces()) or len(sizes[1]) == 0


def test_the_pieces_may_be_changed() -> None:
    buffer = native_buffer()
    buffer.add(BASE, None, b"first")
    pieces = buffer.pieces()
    kept_back = memoryview(pieces[0])  # prevents that the bytearray changes its size
    buffer.add(BASE, None, b"v" * 10_000)
    pieces.append(buffer)
    assert len(buffer.pieces()) == 3 and buffer.pieces() is pieces
    pieces.clear()
    assert bytes(kept_back) == encode_record(0, 0, None, b"first")
    buffer.add(BASE, None, b"third")
    buffer.release()
    buffer.add(BASE, None, b"fourth")
    assert pieces == [] and buffer.pieces() == [encode_record(0, 3, None, b"fourth")]


def test_subclasses_live_and_die_as_other_objects() -> None:
    died = []

    class WithAttributes(accelerator().RecordBuffer):  # type: ignore[misc]
        def __del__(self) -> None:
            self.add(BASE, b"last", None)
            died.append(self.count)

    class Failing(accelerator().RecordBuffer):  # type: ignore[misc]
        __slots__ = ("kept",)

        def __init__(self, kept: list[Any]) -> None:
            kept.append(self)
            raise ZeroDivisionError

        def __new__(cls, kept: list[Any]) -> Any:
            return super().__new__(cls, BASE)

    kept: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        Failing(kept)
    kept[0].add(BASE, b"k", b"v")
    assert kept[0].count == 1 and list(kept[0].key_sizes) == [1]
    buffer = WithAttributes(BASE)
    buffer.itself = buffer.compressed = buffer
    buffer.compressed = None
    buffer.add(BASE, None, b"v")
    del buffer
    gc.collect()
    assert died == [2]


def test_a_value_of_a_subclass_of_bytes_is_copied() -> None:
    class Odd(bytes):
        def __len__(self) -> int:
            return 1 << 40

        def __bytes__(self) -> bytes:
            raise AssertionError

    buffer = native_buffer()
    buffer.add(BASE, Odd(b"key"), Odd(b"value"), Odd(HEADERS))
    assert b"".join(buffer.pieces()) == encode_record(0, 0, b"key", b"value", HEADERS)
    size = buffer.size
    buffer.take(Odd(b"xyz"))
    assert buffer.size == size + 3


# -- memory ----------------------------------------------------------------------------------------


def whole_life() -> None:
    buffer = native_buffer()
    for number in range(30):
        buffer.add(BASE + number, b"k" if number > 20 else None, b"v" * number, HEADERS)
    buffer.add(BASE, b"k", None)
    buffer.add(BASE, None, b"v")
    buffer.add_values([b"v"] * 20, 3, 5_000, BASE / 1000)
    buffer.take(b"more")
    assert len(buffer.pieces()) == 2 and buffer.pieces()
    assert len(buffer.key_sizes) == len(buffer.value_sizes) == 49
    assert len(buffer.timestamp_runs) == 2
    buffer.timestamps, buffer.compressed = [1 << 40] * 3, b"compressed"
    assert buffer.timestamp_runs
    buffer.add(BASE, None, b"v")
    if buffer.count % 2:
        buffer.release()


def sealed() -> None:
    """Records of a block, and few ones, which take none."""
    for count in (3, 100):
        buffer = accelerator().RecordBuffer(BASE, [], 1 << 14)
        for _ in range(count):
            buffer.add(BASE, None, b"v" * 100)
        sizes = [len(buffer.seal(0, 1, 2, sequence)) for sequence in (3, 4)]
        assert sizes[0] == sizes[1] > count * 100
        buffer.release()


def mistakes() -> None:
    buffer = native_buffer()
    buffer.add(BASE, None, b"first")
    for call, error in WRONG:
        with pytest.raises(error):
            call(buffer)


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("calls", [whole_life, sealed, mistakes])
def test_nothing_leaks(calls: Callable[[], None]) -> None:
    assert_no_leak(calls)


def test_a_large_buffer_is_freed_and_takes_what_it_counts() -> None:
    def large(*, released: bool) -> Any:
        buffer = native_buffer()
        for number in range(20_000):
            buffer.add(BASE + number // 10, b"key", b"%05d" % number)
        counted = 20_000 * (len(b"key") + 5 + RECORD_OVERHEAD)
        taken = tracemalloc.get_traced_memory()[0] - before
        assert buffer.size == counted and taken < 2 * counted
        assert len(buffer.pieces()) == 1 and buffer.size < counted
        if released:
            buffer.release()
        return buffer

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        large(released=False)
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
        kept = large(released=True)
        assert kept.count == 20_000
        assert tracemalloc.get_traced_memory()[0] - before < 80_000  # runs of timestamps
    finally:
        tracemalloc.stop()


def test_the_constants_are_those_of_c() -> None:
    buffer = native_buffer()
    buffer.add(BASE, None, b"12345")
    assert buffer.size == 5 + KEYLESS_OVERHEAD
    buffer.add(BASE, b"123", b"12345")
    keyless = len(encode_record(0, 0, None, b"12345"))
    assert buffer.size == keyless + 8 + RECORD_OVERHEAD
