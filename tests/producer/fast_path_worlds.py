"""Fast paths of both variants, each with all that it reads, for the tests that compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aioprod.protocol.record_batch import build_batch
from aioprod.protocol.record_encoder import encode_headers
from aioprod.protocol.record_reader import read_records
from tests.protocol.test_native import accelerator, python

NOW = 1_700_000_000.0
BASE = 1_700_000_000_000
LIMIT = 400


class World:
    """A fast path of one variant with all that it reads, and a log of what it calls."""

    def __init__(self, *, pure: bool = False) -> None:
        self._type = python if pure else partial(getattr, accelerator())
        self.log: list[tuple[object, ...]] = []
        self.batches: list[Any] = []
        self.deliveries: list[Any] = []
        self.topics = {"t": self.topic(3, 5), "one": self.topic(1, 1)}
        self.now: Any = NOW
        self.admits = True
        self.error: tuple[str, BaseException] | None = None
        self.hooks: dict[str, Callable[[], object]] = {}
        self.first: str = "opens"
        self.path = self.path_of()

    def make(self, name: str, *args: Any) -> Any:
        return self._type(name)(*args)

    def path_of(self, **changed: Any) -> Any:
        given = {
            "topics": self.topics,
            "clock": self.clock,
            "check": partial(self.note, "check"),
            "status": self,
            "encode_headers": encode_headers,
            "take_first": self.take_first,
        }
        return self.make("FastPath", *{**given, **changed}.values())

    def topic(self, count: int, queues: int) -> Any:
        topic = self.make("TopicFields")
        topic.count, topic.sticky = count, self.make("StickyFields")
        topic.sticky.current = 0
        topic.queues = [self.queue() for _ in range(queues)]
        return topic

    def queue(self) -> Any:
        queue = self.make("PartitionFields")
        queue.open = None
        return queue

    def open(self, queue: Any, limit: int = LIMIT) -> Any:
        batch = self.make("BatchFields")
        batch.writer = self.make("RecordBuffer", BASE)
        batch.open_until, batch.topic, batch.partition, batch.base_offset = limit, "t", 0, -1
        queue.open = batch
        self.batches.append(batch)
        return batch

    @property
    def queues(self) -> list[Any]:
        return [queue for topic in self.topics.values() for queue in topic.queues]

    # -- what the path calls -----------------------------------------------------------------------

    def note(self, name: str, *given: object) -> None:
        self.log.append((name, *given))
        if name in self.hooks:
            self.hooks[name]()
        if self.error is not None and self.error[0] == name:
            raise self.error[1]

    def clock(self) -> Any:
        self.note("clock")
        return self.now

    @property
    def may_append(self) -> Any:
        self.note("status")
        return self.admits

    def take_first(
        self,
        queue: Any,
        key: Any,
        value: bytes,
        block: bytes,
        size: int,
        now: Any,
        sticky: bool,
    ) -> Any:
        where = self.queues.index(queue) if queue in self.queues else -1
        self.note("first", where, key, value, block, size, repr(float(now)), sticky)
        if self.first == "waits":
            return None
        if self.first == "other":
            return "what it returns"
        batch = self.open(queue)
        batch.writer.add(int(now * 1000), key, value, block)
        return self.delivery(batch, 0)

    def delivery(self, batch: Any, index: int) -> Any:
        delivery = self.make("Delivery")
        delivery._batch, delivery._index = batch, index
        return delivery

    # -- what it did -------------------------------------------------------------------------------

    def append(
        self,
        topic: Any,
        value: Any,
        key: Any = None,
        headers: Any = (),
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> object:
        """Return the place of the record, what is returned in its place, or the error's type."""
        try:
            delivery = self.path.append(topic, value, key, headers, partition, timestamp_ms)
        except BaseException as error:
            return type(error)
        if delivery is None or isinstance(delivery, str):
            return delivery
        self.deliveries.append(delivery)
        return self.batches.index(delivery._batch), delivery._index

    def state(self) -> list[tuple[object, ...]]:
        return [
            (
                *(writer.size, writer.kind, writer.count, writer.until_s, writer.max_timestamp),
                *map(list, writer.timestamp_runs),
                sum(queue.open is batch for queue in self.queues),
            )
            for batch in self.batches
            for writer in (batch.writer,)
        ]

    def contents(self) -> list[tuple[object, ...]]:
        return [
            (
                b"".join(batch.writer.pieces()),
                list(batch.writer.key_sizes),
                list(batch.writer.value_sizes),
                batch.writer.size,
                batch.writer.count,
            )
            for batch in self.batches
        ]

    def assert_whole(self) -> None:
        """Each record is in its batch once, has its delivery, and no delivery is without one."""
        places = {(id(delivery._batch), delivery._index) for delivery in self.deliveries}
        assert len(places) == len(self.deliveries)
        for batch in self.batches:
            writer = batch.writer
            body = b"".join(writer.pieces())
            built = build_batch(
                *(body,),
                attributes=0,
                last_offset_delta=writer.count - 1,
                base_timestamp=writer.base_timestamp,
                max_timestamp=writer.max_timestamp,
                record_count=writer.count,
            )
            assert (
                writer.count == len(writer.value_sizes) == (len(read_records(built)) if body else 0)
            )
            assert {index for of, index in places if of == id(batch)} == set(range(writer.count))


class Raising:
    """Headers, or a key, whose methods raise."""

    def __init__(self, error: type[BaseException], *, only_length: bool = False) -> None:
        self._error = error
        self._only_length = only_length

    def __bool__(self) -> bool:
        if self._only_length:
            return True
        raise self._error

    def __len__(self) -> int:
        raise self._error

    __hash__ = None  # type: ignore[assignment]


class Empty:
    """Headers that are true, but none; or that are false, although there are some."""

    def __init__(self, *items: tuple[str, bytes], is_true: bool) -> None:
        self._items = items
        self._is_true = is_true

    def __bool__(self) -> bool:
        return self._is_true

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._items)


class Bytes(bytes):
    """Not a plain value."""


HEADERS: list[Callable[[], Any]] = [
    tuple,
    tuple,
    list,
    lambda: None,
    lambda: [("name", b"value")],
    lambda: (("name", None), ("name", b"")),
    lambda: [("n" * 300, b"v" * 70)],
    lambda: [("name", "text")],
    lambda: [("name",)],
    lambda: [(5, b"")],
    lambda: [("\ud800", b"")],
    lambda: {"name": b"value"},
    lambda: {"ab": b"value"},
    lambda: "ab",
    lambda: 7,
    lambda: iter([("a", b"1")]),
    lambda: Empty(is_true=True),
    lambda: Empty(("a", b"1"), is_true=False),
    lambda: Empty(("a", b"1"), is_true=True),
    lambda: Raising(TypeError),
    lambda: Raising(ValueError),
    lambda: Raising(ZeroDivisionError),
    lambda: Raising(KeyboardInterrupt),
    lambda: Raising(TypeError, only_length=True),
    lambda: Raising(ZeroDivisionError, only_length=True),
    lambda: Raising(KeyError, only_length=True),
]
