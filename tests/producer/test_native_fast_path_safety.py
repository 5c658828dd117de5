"""The fast path in C survives wrong objects and users' code that changes them meanwhile, and leaks
nothing.
"""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioprod.producer import fast_path as module
from tests.producer.fast_path_worlds import BASE, HEADERS, LIMIT, NOW, World
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native, python

pytestmark = needs_native

# -- wrong objects ---------------------------------------------------------------------------------


def nothing(*_: object) -> Any:
    return None


WRONG: list[tuple[Callable[[Any], object], type[Exception]]] = [
    (lambda world: world.make("FastPath"), TypeError),
    (lambda world: world.make("FastPath", {}, *[nothing] * 4), TypeError),
    (lambda world: world.make("FastPath", {}, *[nothing] * 6), TypeError),
    (lambda world: world.make("FastPath", [], *[nothing] * 5), TypeError),
    (lambda world: world.make("FastPath", None, *[nothing] * 5), TypeError),
    (lambda world: accelerator().FastPath.__new__(type(world.path)), TypeError),
    (lambda world: object.__new__(type(world.path)), TypeError),
    (lambda world: type("Sub", (type(world.path),), {}), TypeError),
    (lambda world: setattr(type(world.path), "append", None), TypeError),
    (lambda world: setattr(world.path, "append", None), AttributeError),
    (lambda world: world.path.append(), TypeError),
    (lambda world: world.path.append("t", b"v", None, ()), TypeError),
    (lambda world: world.path.append("t", b"v", None, (), None, None, ()), TypeError),
    (lambda world: world.path.append("t", b"v", key=None, headers=()), TypeError),
    (lambda world: world.path.close(1), TypeError),
    (lambda world: world.path_of(clock=None).append("t", b"v", None, (), None, None), TypeError),
    (
        lambda world: world.path_of(clock=lambda: None).append("t", b"v", None, (), None, None),
        TypeError,
    ),
    (
        lambda world: world.path_of(clock=lambda: "now").append("t", b"v", None, (), None, None),
        TypeError,
    ),
    (
        lambda world: world.path_of(clock=lambda: 10**400).append("t", b"v", None, (), None, None),
        OverflowError,
    ),
    (lambda world: world.path_of(check=5).append("t", b"v", None, (), None, None), TypeError),
    (lambda world: world.path_of(status=5).append("t", b"v", None, (), None, None), AttributeError),
    (
        lambda world: world.path_of(take_first=5).append("one", b"v", None, (), None, None),
        TypeError,
    ),
    (lambda world: world.path_of(take_first=nothing).append("one", b"v"), TypeError),
    (lambda world: copy.copy(world.path), TypeError),
    (lambda world: copy.copy(world.batches[0]), TypeError),
    (lambda world: setattr(world.batches[0], "open_until", "1"), TypeError),
    (lambda world: setattr(world.topics["t"], "count", None), TypeError),
    (lambda world: setattr(world.topics["t"].sticky, "current", 1.5), TypeError),
    (lambda world: setattr(world.topics["t"].sticky, "current", 1 << 64), OverflowError),
    (lambda world: setattr(world.batches[0], "base_offset", 1 << 63), OverflowError),
    (lambda world: delattr(world.topics["t"], "count"), TypeError),
    (lambda world: setattr(world.topics["t"], "other", 1), AttributeError),
    (lambda world: setattr(world.topics["t"].queues[0], "other", 1), AttributeError),
    (lambda world: world.make("TopicFields", 1), TypeError),
    (lambda world: world.make("BatchFields").writer, AttributeError),
    (lambda world: world.make("TopicFields").queues, AttributeError),
]


def with_open_batch() -> World:
    world = World()
    assert world.append("t", b"first") == (0, 0)
    world.now += 1
    return world


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_raise(number: int) -> None:
    call, error = WRONG[number]
    world = with_open_batch()
    with pytest.raises(error):
        call(world)
    world.topics["t"].count, world.topics["t"].sticky.current = 3, 0
    world.batches[0].open_until = LIMIT
    assert world.append("t", b"second") == (0, 1)
    world.assert_whole()


@pytest.mark.parametrize("block", [None, "text", bytearray(b"\2"), 5, [b"x"], b""])
def test_headers_that_are_not_encoded_to_bytes_are_refused(block: Any) -> None:
    world = with_open_batch()
    path = world.path_of(encode_headers=lambda _: block)
    assert path.append("t", b"v", None, ["header"], None, None) is None
    world.assert_whole()


def unset(name: str, of: Callable[[World], Any]) -> Callable[[World], object]:
    return lambda world: delattr(of(world), name)


def replaced(
    name: str, of: Callable[[World], Any], by: Callable[[World], object]
) -> Callable[[World], object]:
    return lambda world: setattr(of(world), name, by(world))


def always(what: object) -> Callable[[World], object]:
    return lambda _: what


def topic_of(world: World) -> Any:
    return world.topics["t"]


def sticky_of(world: World) -> Any:
    return world.topics["t"].sticky


def queue_of(world: World) -> Any:
    return world.topics["t"].queues[0]


def batch_of(world: World) -> Any:
    return world.batches[0]


def known_as_topic(by: Callable[[World], object]) -> Callable[[World], object]:
    return lambda world: world.topics.update(t=by(world))


MEMBERS: list[tuple[str, Callable[[World], Any], bool]] = [
    ("queues", topic_of, False),
    ("sticky", topic_of, False),
    ("writer", batch_of, True),
    ("open", queue_of, True),
]
# Where a record goes is not what it should be: (change, whether the path asks take_first)
SPOILED: list[tuple[Callable[[World], object], bool]] = [
    (lambda world: world.topics.clear(), False),
    (known_as_topic(always(None)), False),
    (known_as_topic(always(object())), False),
    (known_as_topic(lambda _: TopicLike()), False),
    (known_as_topic(lambda world: world.queue()), False),
    (known_as_topic(lambda world: world.make("TopicFields")), False),
    (known_as_topic(lambda world: type(topic_of(world))), False),
    (known_as_topic(lambda _: python("TopicFields")()), False),
    *((unset(name, of), asks) for name, of, asks in MEMBERS),
    *(
        (replaced(name, of, always(by)), asks)
        for name, of, asks in MEMBERS
        for by in (None, 5, [], (), {}, object())
    ),
    *((replaced("count", topic_of, always(by)), False) for by in (0, -1, -sys.maxsize - 1)),
    *(
        (replaced("queues", topic_of, always(by)), False)
        for by in ([None] * 5, [5], [object()] * 3, ["t"] * 9)
    ),
    (replaced("queues", topic_of, lambda world: [world.batches[0]] * 9), False),
    (replaced("queues", topic_of, lambda world: tuple(topic_of(world).queues)), False),
    (replaced("open", queue_of, queue_of), True),
    (replaced("writer", batch_of, batch_of), True),
    (replaced("writer", batch_of, lambda _: python("RecordBuffer")(BASE)), True),
    *(
        (replaced("current", sticky_of, always(by)), False)
        for by in (-1, 5, 1 << 40, sys.maxsize, -sys.maxsize - 1)
    ),
]


class TopicLike:
    """Has the names of a topic, but not its type."""

    count = 1
    queues = ()
    sticky = None


@pytest.mark.parametrize("number", range(len(SPOILED)))
def test_objects_that_are_not_what_they_should_be_lead_to_the_slow_path(number: int) -> None:
    spoil, asks = SPOILED[number]
    world = with_open_batch()
    kept = world.batches[0].writer
    world.first = "waits"
    world.log.clear()
    spoil(world)
    assert world.append("t", b"second") is None
    gc.collect()
    assert world.append("t", b"third", b"key", [("name", b"value")]) is None
    assert [call[0] for call in world.log].count("first") >= asks
    assert kept.count == 1 and len(b"".join(kept.pieces())) == kept.size


@pytest.mark.parametrize("limit", [-sys.maxsize - 1, -1, 0, sys.maxsize])
def test_the_end_of_a_batch_at_the_limit_of_a_number(limit: int) -> None:
    world = with_open_batch()
    world.batches[0].open_until = limit
    assert world.append("t", b"second") == ((0, 1) if limit > 0 else (1, 0))
    world.assert_whole()


def test_a_count_that_no_batch_has_makes_no_delivery() -> None:
    world = with_open_batch()
    world.batches[0].writer.count = sys.maxsize
    assert world.append("t", b"second") is OverflowError
    world.batches[0].writer.count = 1
    assert world.append("t", b"second") == (0, 1)
    world.assert_whole()


# -- users' code -----------------------------------------------------------------------------------


class Hook:
    """Headers that run code when they are read."""

    def __init__(self, code: Callable[[], object]) -> None:
        self._code = code

    def __bool__(self) -> bool:
        self._code()
        return True

    def __len__(self) -> int:
        self._code()
        return 1

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        self._code()
        return iter([("name", b"value")])


class Now:
    """A time that runs code when it is read."""

    def __init__(self, code: Callable[[], object]) -> None:
        self._code = code

    def __float__(self) -> float:
        self._code()
        return NOW + 2


class Truth:
    """An answer that runs code when it is read."""

    def __init__(self, code: Callable[[], object]) -> None:
        self._code = code

    def __bool__(self) -> bool:
        self._code()
        return True


class Name(str):
    """A name that compares itself in Python code, among the names of topics."""

    code: Callable[[], object]

    def __hash__(self) -> int:
        return hash("t")

    def __eq__(self, other: object) -> bool:
        self.code()
        return False


def append_more(world: World) -> None:
    """Append to the same batch, without the hooks."""
    hooks, world.hooks = world.hooks, {}
    now, admits, error = world.now, world.admits, world.error
    world.now, world.admits, world.error = NOW + 3, True, None
    world.append("t", b"in between", None, ())
    world.now, world.admits, world.error = now, admits, error
    world.hooks = hooks


DEEDS: dict[str, Callable[[World], object]] = {
    "close": lambda world: world.path.close(),
    "close twice": lambda world: [world.path.close(), gc.collect(), world.path.close()],
    "no topics": lambda world: world.topics.clear(),
    "other topics": lambda world: world.topics.update({f"t{at}": None for at in range(500)}),
    "the topic again": lambda world: world.topics.update(t=world.topic(1, 1)),
    "no queues": lambda world: topic_of(world).queues.clear(),
    "other queues": lambda world: setattr(topic_of(world), "queues", []),
    "no sticky": lambda world: delattr(topic_of(world), "sticky"),
    "no batch": lambda world: setattr(queue_of(world), "open", None),
    "another batch": lambda world: world.open(queue_of(world)),
    "no writer": lambda world: world.batches[0].__setattr__("writer", None),
    "no path": lambda world: world.__dict__.update(path=None),
    "append": append_more,
    "append often": lambda world: list(map(append_more, [world] * 30)),
    "encode": lambda world: world.batches[0].writer.pieces(),
    "collect": lambda world: gc.collect(),
}
PLACES: dict[str, Callable[[World, Callable[[], object]], Any]] = {
    "headers": lambda world, code: Hook(code),
    "clock": lambda world, code: world.hooks.update(clock=code),
    "time": lambda world, code: setattr(world, "now", Now(code)),
    "status": lambda world, code: world.hooks.update(status=code),
    "answer": lambda world, code: setattr(world, "admits", Truth(code)),
    "check": lambda world, code: world.hooks.update(check=code),
    "check for a timestamp": lambda world, code: world.hooks.update(check=code),
    "first": lambda world, code: world.hooks.update(first=code),
    "names": lambda world, code: world.topics.update({name_that_runs(code): None}),
}


def name_that_runs(code: Callable[[], object]) -> Name:
    name = Name("other")
    name.code = lambda: None
    name.code = code
    return name


@pytest.mark.parametrize("raising", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("deed", DEEDS)
def test_users_code_may_do_anything_meanwhile(deed: str, place: str, raising: bool) -> None:
    """In each case a record is in its batch and has a delivery, or neither."""
    world = with_open_batch()
    writers = [world.batches[0].writer]
    has_run = False

    def code() -> None:
        nonlocal has_run
        if not has_run:
            has_run = True
            DEEDS[deed](world)
            if raising:
                raise ZeroDivisionError

    if place == "names":  # in front of the topic, so that it is compared
        known = dict(world.topics)
        world.topics.clear()
        world.topics[name_that_runs(nothing)] = None
        (name,) = world.topics
        world.topics.update(known)
        name.code = code  # type: ignore[attr-defined]
        headers: Any = ()
    else:
        given = PLACES[place](world, code)
        headers = () if given is None else given
    key = b"key" if place == "first" else None
    timestamp_ms = BASE + 9 if place == "check for a timestamp" else None
    result = world.append("t", b"second", key, headers, None, timestamp_ms)
    assert has_run
    if raising:
        assert result is ZeroDivisionError
    for batch in world.batches:
        if not hasattr(batch, "writer") or batch.writer is None:
            batch.writer = writers[0]
    world.assert_whole()
    if world.path is not None:
        world.append("t", b"third")
        world.assert_whole()


def test_a_batch_that_ends_meanwhile_is_freed_behind_it() -> None:
    """The path keeps the last reference to batch and writer while the loop is checked."""
    world, freed = World(), []

    class Batch(accelerator().BatchFields):  # type: ignore[misc]
        def __del__(self) -> None:
            freed.append(self.writer.count)

    batch = Batch()
    batch.writer, batch.open_until = world.make("RecordBuffer", BASE), LIMIT
    batch.writer.add(BASE, None, b"first")
    queue_of(world).open = batch
    del batch

    def check() -> None:
        world.topics.clear()
        world.path.close()
        gc.collect()
        assert not freed

    world.hooks["check"] = check
    delivery = world.path.append("t", b"second", None, (), None, None)
    assert not freed and delivery._index == 1
    del delivery
    assert freed == [2]


# -- memory ----------------------------------------------------------------------------------------


def test_a_path_in_a_cycle_is_freed() -> None:
    died = []

    class Topic(accelerator().TopicFields):  # type: ignore[misc]
        __slots__ = ("path",)

        def __del__(self) -> None:
            died.append(self.path.append("t", b"v", None, (), None, None))

    class Batch(accelerator().BatchFields):  # type: ignore[misc]
        __slots__ = ("__weakref__",)

    world = World()
    topic, batch = Topic(), Batch()
    topic.count, topic.sticky, topic.queues = 1, world.make("StickyFields"), [world.queue()]
    world.topics["t"] = topic
    topic.path = batch.topic = batch.starts = world.path
    topic.queues[0].open = topic.queues[0].open, batch
    seen = weakref.ref(batch)
    del topic, batch, world
    gc.collect()
    assert seen() is None and len(died) == 1


_IMMORTAL = 1 << 30


def calls_of_all_kinds() -> None:
    world = World()
    for number in range(20):
        world.now = NOW + number / 1000
        for make in HEADERS:
            world.append("t", b"v" * number, None if number % 2 else b"key", make())
        for change_of_error in ("check", "status", "clock", "first"):
            world.error = change_of_error, ValueError("no")
            world.append("one", b"v" * 200)
        world.error = None
    world.append("none", b"v")
    world.append(5, b"v")
    world.path.close()
    world.append("t", b"v")
    assert len(world.deliveries) > 30


def mistakes() -> None:
    for call, error in WRONG:
        with pytest.raises(error):
            call(with_open_batch())
    for spoil, _ in SPOILED:
        world = with_open_batch()
        spoil(world)
        world.append("t", b"v")


@pytest.mark.parametrize("calls", [calls_of_all_kinds, mistakes])
def test_nothing_leaks(calls: Callable[[], None]) -> None:
    assert_no_leak(calls, times=200)


def test_an_append_leaks_no_references() -> None:
    """Of objects that all records share: the counts of blocks do not show these."""
    world = with_open_batch()
    world.batches[0].open_until = 1 << 30
    value, key, block = b"v" * 9, b"k" * 9, b"\2\2n\2v"
    usual, headers = [("name", value), ("other", None)], iter(())
    path = world.path_of(encode_headers=lambda _: block)
    objects: list[Any] = [
        value,
        key,
        block,
        headers,
        usual,
        *usual,
        *usual[0],
        "other",
        path,
        module,
    ]
    objects += [world.topics, topic_of(world), queue_of(world), "t", None, b"\0"]
    objects += [world.batches[0], world.batches[0].writer]
    # Since 3.12, the interpreter does not count the references to some; libraries built for the
    # stable ABI of 3.11 do (PEP 683 allows for that).
    objects = [item for item in objects if sys.getrefcount(item) < _IMMORTAL]
    assert len(objects) > 8
    gc.collect()  # what other tests have left counts, too
    before = [sys.getrefcount(item) for item in objects]
    for _ in range(2_000):
        path.append("t", value, None, (), None, None)
        path.append("t", value, None, headers, None, None)
        path.append("t", value, None, usual, None, None)
        path.append("t", value, key, [*usual, ("\ud800", key)], None, None)
        path.append("t", value, key, (), None, None)
        path.append("t", value, key, headers, None, None)
        path.append("t", value, None, (), None, 1_700_000_000_000)
        path.append("t", value, None, (), None, 1 << 64)
        path.append("new", value, key, headers, None, None)
    gc.collect()
    after = [sys.getrefcount(item) for item in objects]
    del path
    grown = [new - old for old, new in zip(before, after, strict=True)]
    assert max(map(abs, grown)) < 1_000, grown
