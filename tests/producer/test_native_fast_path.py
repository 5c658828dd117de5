"""The fast path in C does what that in Python does, call by call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.producer import fast_path as module
from tests.producer.fast_path_worlds import BASE, HEADERS, LIMIT, NOW, Bytes, Raising, World
from tests.protocol.test_native import needs_native, python

pytestmark = needs_native


@pytest.fixture(autouse=True, scope="module")
def the_source_makes_deliveries_of_the_source() -> Iterator[None]:
    with patch.object(module, "Delivery", python("Delivery")):
        yield


data = st.binary(max_size=40)
others: st.SearchStrategy[Any] = st.sampled_from(
    [None, "text", 5, bytearray(b"x"), memoryview(b"x"), Bytes(b"x"), (), Raising(ValueError)]
)
topics: st.SearchStrategy[Any] = st.sampled_from(
    ["t", "t", "t", "one", "new", "", None, 5, b"t", [], Raising(ValueError)]
)
errors = st.sampled_from([ValueError, TypeError, KeyError, ZeroDivisionError, KeyboardInterrupt])
clocks = st.sampled_from(
    [
        NOW,
        NOW + 0.0004,
        NOW + 0.0015,
        NOW - 7,
        NOW + 3600,
        1_700_000_001,
        True,
        0.0,
        -1.0,
        -0.0004,
        math.nan,
        math.inf,
        -math.inf,
        9.3e15,
        -9.3e15,
        1e300,
    ]
)
changes = st.one_of(
    st.tuples(st.just("now"), clocks),
    st.tuples(st.just("now"), clocks),
    st.tuples(st.just("admits"), st.sampled_from([True, False, 1, 0, "yes", Raising(ValueError)])),
    st.tuples(st.just("admits"), st.just(True)),
    st.tuples(st.just("error"), st.sampled_from(["clock", "check", "status", "first"]), errors),
    st.tuples(st.just("first"), st.sampled_from(["opens", "opens", "waits", "other"])),
    st.tuples(st.just("open"), st.integers(0, 5), st.sampled_from([LIMIT, 1_000, 60, 0, -1])),
    st.tuples(st.just("limit"), st.integers(0, 5), st.integers(-5, 1_000)),
    st.tuples(st.just("shut"), st.integers(0, 5)),
    st.tuples(st.just("encode"), st.integers(0, 5)),
    st.tuples(st.just("sticky"), st.integers(0, 4)),
    st.tuples(st.just("count"), st.integers(1, 5)),
    st.tuples(st.just("forget"), st.sampled_from(["t", "one"])),
    st.tuples(st.just("close")),
)
records = st.tuples(
    st.just("record"),
    topics,
    data | data | data | others,
    st.none() | st.none() | data | others,
    st.integers(0, 5) | st.integers(0, len(HEADERS) - 1),
    st.integers(1, 6),
)
acts = st.lists(records | records | records | changes, min_size=1, max_size=40)


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


@settings(max_examples=400)
@given(acts, st.booleans())
def test_both_do_the_same(acts: list[tuple[Any, ...]], with_status: bool) -> None:
    worlds = World(pure=True), World()
    for world in worlds:
        if not with_status:
            world.path = world.path_of(status=None)
    ours, theirs = worlds
    for name, *arguments in acts:
        if name != "record":
            for world in worlds:
                change(world, name, *arguments)
            continue
        topic, value, key, headers, times = arguments
        for _ in range(times):
            results = [world.append(topic, value, key, HEADERS[headers]()) for world in worlds]
            assert results[0] == results[1], arguments
            assert ours.log == theirs.log
            assert ours.state() == theirs.state()
        for world in worlds:
            world.error = None
    assert ours.contents() == theirs.contents()


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
