"""The fast path in C does what that in Python does, call by call."""

from __future__ import annotations

import ctypes
import math
import random
import time
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.producer import fast_path as module
from aioprod.protocol.record_buffer import KEYLESS_OVERHEAD
from tests.producer.fast_path_worlds import BASE, HEADERS, LIMIT, NOW, Bytes, Raising, World
from tests.protocol.test_native import needs_native, python

pytestmark = needs_native


@pytest.fixture(autouse=True, scope="module")
def the_source_makes_deliveries_of_the_source() -> Iterator[None]:
    with patch.object(module, "Delivery", python("Delivery")):
        yield


data = st.binary(max_size=40)
OTHERS: list[Any] = [None, "text", 5, bytearray(b"x"), memoryview(b"x"), Bytes(b"x"), ()]
TOPICS: list[Any] = ["one", "new", "", None, 5, b"t", [], Raising(ValueError)]
PARTITIONS: list[Any] = [
    *[0, 0, 1, 2, 2, 3, 4, 5, -1, 1 << 31, 1 << 63, 1 << 64, -(1 << 64)],
    *[True, False, 1.0, "1", b"", Raising(ValueError)],
]
TIMESTAMPS: list[Any] = [
    *[BASE, BASE, BASE + 1, BASE + 7, BASE - 3, 0, -1, (1 << 62) - 1, 1 << 62, -(1 << 62)],
    *[-(1 << 62) - 1, 1 << 63, -(1 << 63), 1 << 64, True, 1.0, "1", Raising(ValueError)],
]
ERRORS = [ValueError, TypeError, KeyError, ZeroDivisionError, KeyboardInterrupt]
ODD_TIMES = [1_700_000_001, True, 0.0, -1.0, -0.0004, math.nan, math.inf, -math.inf, 9.3e15, 1e300]


def some_change(rng: random.Random) -> tuple[Any, ...]:
    at = rng.randrange(5)
    return rng.choice(
        [
            ("now", NOW + rng.randrange(9) * 0.0004),
            ("now", rng.choice(ODD_TIMES)),
            ("now", NOW + rng.choice([-7, 0.001, 5])),
            ("admits", rng.choice([False, 0, Raising(ValueError)])),
            ("admits", rng.choice([True, True, 1, "yes"])),
            ("error", rng.choice(["clock", "check", "status", "first"]), rng.choice(ERRORS)),
            ("first", rng.choice(["opens", "opens", "waits", "other"])),
            ("open", at, rng.choice([LIMIT, LIMIT, 60, 0, -1])),
            ("limit", at, rng.choice([14, 15, 16, 17, 18, 30, 100, 1_000, 10_000])),
            ("shut", at),
            ("encode", at),
            ("sticky", at),
            ("count", rng.randint(1, 5)),
            ("forget", "one"),
            *([("forget", "t"), ("close",)] if rng.random() < 0.03 else []),
        ]
    )


def some_record(rng: random.Random) -> tuple[Any, ...]:
    topic = "t" if rng.random() < 0.9 else rng.choice(TOPICS)
    value = rng.randbytes(rng.choice([0, 1, 1, 2, 30]))
    key = rng.choice([None, None, None, b"", b"k", b"key"])
    headers = rng.choice([0, 0, 0, rng.randrange(len(HEADERS))])
    if rng.random() < 0.05:
        value = rng.choice(OTHERS)
    if rng.random() < 0.05:
        key = rng.choice(OTHERS)
    partition = rng.choice([None, None, None, *PARTITIONS])
    timestamp_ms = rng.choice([None, None, None, *TIMESTAMPS])
    return topic, value, key, headers, partition, timestamp_ms


def change(world: World, name: str, *given: Any) -> None:
    if name in ("now", "admits", "first"):
        setattr(world, name, given[0])
    elif name == "error":
        world.error = given[0], given[1]()
    elif name == "forget":
        world.topics.pop(given[0], None)
    elif name == "close":
        world.path.close()
    elif "t" in world.topics:
        change_topic(world, world.topics["t"], name, *given)


def change_topic(world: World, topic: Any, name: str, *given: Any) -> None:
    queue = topic.queues[given[0] % 5]
    if name == "open":
        batch = world.open(queue, given[1])
        batch.writer.add(BASE, None, b"first")
    elif name == "limit" and queue.open is not None:
        queue.open.open_until = queue.open.writer.size + given[1]
    elif name == "shut":
        queue.open = None
    elif name == "encode" and queue.open is not None:
        queue.open.writer.encode_pending()
    elif name == "sticky":
        topic.sticky.current = given[0]
    elif name == "count":
        topic.count = given[0]


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_both_do_the_same(seed: int) -> None:
    rng = random.Random(seed)
    ours, theirs = worlds = World(pure=True), World()
    if rng.random() < 0.2:
        for world in worlds:
            world.path = world.path_of(status=None)
    for _ in range(rng.randint(1, 60)):
        if rng.random() < 0.3:
            act = some_change(rng)
            for world in worlds:
                change(world, *act)
            continue
        topic, value, key, headers, *rest = record = some_record(rng)
        for _ in range(rng.choice([1, 1, 2, 5])):
            results = [
                world.append(topic, value, key, HEADERS[headers](), *rest) for world in worlds
            ]
            assert results[0] == results[1], record
            assert ours.log == theirs.log
            assert ours.state() == theirs.state()
        for world in worlds:
            world.error = None
    assert ours.contents() == theirs.contents()


@pytest.mark.parametrize("now", ODD_TIMES)
@pytest.mark.parametrize("timestamp_ms", [None, BASE + 7])
def test_both_do_the_same_if_the_clock_is_wrong(now: Any, timestamp_ms: int | None) -> None:
    worlds = World(pure=True), World()
    results = []
    for world in worlds:
        world.append("t", b"opens")
        world.append("t", b"before", timestamp_ms=timestamp_ms)
        world.now = now
        results.append([world.append("t", b"value") for _ in range(2)])
    assert results[0] == results[1]
    assert worlds[0].log == worlds[1].log
    assert worlds[0].state() == worlds[1].state()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.none() | data, data, st.integers(0, 6)), min_size=1, max_size=30))
def test_the_clock_is_read_once_for_each_record(given: list[tuple[Any, ...]]) -> None:
    worlds = World(pure=True), World()
    for number, (key, value, headers) in enumerate(given):
        for world in worlds:
            world.now = NOW + number / 3000
            world.append("t", value, key, HEADERS[headers]())
    assert worlds[0].log == worlds[1].log
    assert [call[0] for call in worlds[1].log].count("clock") == len(given)
    assert worlds[0].contents() == worlds[1].contents()


def test_records_of_two_partitions_are_taken_without_help() -> None:
    """A comparison of refusals would say little."""
    world = World()
    for number in range(200):
        world.now = NOW + number // 20 / 1000
        assert world.append("t", b"%d" % number, b"key" if number % 2 else None) is not None
        for batch in world.batches:
            batch.open_until = 1 << 20
    calls = [call[0] for call in world.log]
    # The first record of each batch was not added by the path.
    assert [calls.count(name) for name in ("first", "check", "status")] == [2, 2 * 10, 198]
    assert [batch.writer.count for batch in world.batches] == [100, 100]
    world.assert_whole()


def test_a_given_partition_is_taken_in_place_of_that_of_the_key() -> None:
    for world in (World(pure=True), World()):
        for partition, key in ((2, None), (1, b"key"), (0, b"k")):
            world.append("t", b"first", key, (), partition)
            assert world.append("t", b"second", key, (), partition) is not None
            assert world.queues[partition].open.writer.count == 2
        batches = len(world.batches)
        world.topics["t"].queues[2].open = None
        world.topics["t"].count = 2  # the topic was made again
        assert world.append("t", b"third", None, (), 2) is None
        assert len(world.batches) == batches


def test_a_record_with_a_timestamp_joins_an_open_batch() -> None:
    for world in (World(pure=True), World()):
        assert world.append("t", b"first", None, (), 0, BASE + 5) is None  # it would open the batch
        assert world.append("t", b"first", None, (), 0) == (0, 0)
        stamps = [BASE + 5, BASE + 5, None, BASE - 2, None]
        for number, timestamp_ms in enumerate(stamps, 1):
            assert world.append("t", b"next", None, (), 0, timestamp_ms) == (0, number)
        calls = [call[0] for call in world.log]
        # The clock is not read for a timestamp; the time after a timestamp is set again.
        assert [calls.count(name) for name in ("clock", "check", "status")] == [3, 3 + 2, 5]
        runs = world.batches[0].writer.timestamp_runs
        assert [*map(list, runs)] == [
            [0, 1, 3, 4, 5],
            [BASE, BASE + 5, BASE, BASE - 2, BASE],
        ]
        for refused in (1 << 62, -(1 << 62) - 1, True, 1.5):
            assert world.append("t", b"refused", None, (), 0, refused) is None
        world.assert_whole()


class Text(str):
    """Not a plain name."""


names = st.text(max_size=70) | st.sampled_from(
    ["", "n" * 63, "ä" * 32, "\ud800", Text("n"), b"n", 5]
)
header_values = st.none() | data | st.sampled_from([b"v" * 64, b"v" * 8_192, Bytes(b"v"), "v", 5])
pairs = st.tuples(names, header_values).flatmap(
    lambda pair: st.sampled_from([pair, pair, pair, pair, list(pair), (*pair, None), pair[:1]])
)


@settings(max_examples=200)
@given(st.lists(pairs, max_size=4), st.sampled_from([1, 1, 20, 70]), st.booleans())
def test_headers_are_encoded_alike(given: list[Any], times: int, as_tuple: bool) -> None:
    worlds = World(pure=True), World()
    headers: Any = tuple(given * times) if as_tuple else given * times
    for world in worlds:
        results = [world.append("t", b"v", None, headers) for _ in range(2)]
        for batch in world.batches:
            batch.open_until = 1 << 20
        results.append(world.append("t", b"v", None, headers))
        world.note("results", *results)
    assert worlds[0].log == worlds[1].log
    assert worlds[0].contents() == worlds[1].contents()


def test_headers_of_any_size_are_encoded_alike() -> None:
    worlds = World(pure=True), World()
    for world in worlds:
        world.append("t", b"v")
        for batch in world.batches:
            batch.open_until = 1 << 20
        # Those of more than 1,024 bytes are left to the source.
        for size in range(990, 1_030):
            headers = ("a", b"x"), ("name", b"v" * size)
            world.note(str(size), world.append("t", b"v", None, headers))
    assert worlds[0].log == worlds[1].log
    assert worlds[0].contents() == worlds[1].contents()


@given(st.lists(st.lists(st.integers(0, 11), max_size=10), max_size=20), st.booleans())
def test_headers_that_come_again_are_encoded_alike(
    chosen: list[list[int]], is_one_list: bool
) -> None:
    """The last ones are remembered, as the same objects in a list that may be another."""
    pairs: list[Any] = [(f"name-{number}", b"v" * number * 9) for number in range(9)]
    pairs += [("name-0", None), ["name-0", b""], ("name-0", "text")]
    headers: list[Any] = []
    worlds = World(pure=True), World()
    for world in worlds:
        world.append("t", b"v")
        world.batches[0].open_until = 1 << 20
        for numbers in chosen:
            headers = headers if is_one_list else []
            headers[:] = [pairs[number] for number in numbers]
            world.note("result", world.append("t", b"v", None, headers))
            world.note("again", world.append("t", b"v", b"key", tuple(headers)))
    assert worlds[0].log == worlds[1].log
    assert worlds[0].contents() == worlds[1].contents()


def test_a_batch_is_full_at_the_same_byte() -> None:
    """It is full if a record does not fit into it, nor into 15/16 of it after it was encoded."""
    bound = 5 + KEYLESS_OVERHEAD
    for open_until, pure in product(range(100), (True, False)):
        world, encoded = World(pure=pure), World(pure=pure)
        for each in (world, encoded):
            assert [each.append("t", b"12345") for _ in range(2)] == [(0, 0), (0, 1)]
        encoded.batches[0].writer.encode_pending()
        counted, exact = (each.batches[0].writer.size for each in (world, encoded))
        assert exact < counted == 2 * bound
        world.batches[0].open_until = open_until
        fits = counted + bound <= open_until or exact + bound <= open_until * 15 / 16
        assert world.append("t", b"12345") == ((0, 2) if fits else (1, 0))


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p))


def test_a_replaced_c_function_of_the_clock_is_called() -> None:
    """The library time-machine replaces it, for tests of applications."""
    replacement = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
        lambda module, unused: NOW
    )
    definition = ctypes.POINTER(MethodDef).from_address(id(time.time) + object.__basicsize__)[0]
    world = World()
    world.path = world.path_of(clock=time.time)
    before, original = time.time(), definition.function
    world.append("t", b"v")
    try:
        definition.function = ctypes.cast(replacement, ctypes.c_void_p).value
        world.append("t", b"v", partition=1)
    finally:
        definition.function = original
    world.append("t", b"v", partition=2)
    real, replaced, real_again = (batch.writer.max_timestamp for batch in world.batches)
    assert int(before * 1000) <= real <= real_again <= time.time() * 1000
    assert replaced == BASE


def test_a_check_that_raises_leaves_the_time_of_the_batch() -> None:
    for world in (World(pure=True), World()):
        assert world.append("t", b"v") == (0, 0)
        world.now, before = NOW + 1, world.state()
        for name, error in (("check", ValueError), ("status", KeyError), ("clock", TypeError)):
            world.error = name, error()
            assert world.append("t", b"v") is error and world.state() == before
        world.error, world.admits = None, False
        assert world.append("t", b"v") is None and world.state() == before
        world.admits = True
        assert world.append("t", b"v") == (0, 1)
