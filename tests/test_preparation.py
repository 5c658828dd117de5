"""Serializers and deserializers that have to wait: meanwhile nothing is lost or overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import (
    Consumer,
    DeserializationError,
    KafkaTimeoutError,
    Producer,
    ProducerRecord,
    SerializationError,
    WakeupError,
)
from aioprod.preparation import NotPrepared
from aioprod.processing import Processor, Record, RetryPolicy
from aioprod.serialization import WithHeaders
from aioprod.testing import EmbeddedCluster

pytestmark = pytest.mark.virtual_time


class Slow:
    """Needs one wait per first letter of the data; counts how often it waited."""

    def __init__(self, wait: Callable[[str], Awaitable[object]]) -> None:
        self.wait = wait
        self.known: set[str] = set()
        self.waits: list[str] = []

    def __call__(self, topic: str, headers: object, data: Any, /) -> Any:
        text = data.decode() if isinstance(data, bytes) else data
        if text[0] not in self.known:
            raise NotPrepared(lambda: self._prepare(text[0]))
        return text.encode() if data is text else text

    async def _prepare(self, letter: str) -> None:
        self.waits.append(letter)
        await self.wait(letter)
        self.known.add(letter)


async def a_second(_: str) -> None:
    await asyncio.sleep(1)


def sending(broker: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(broker.bootstrap_servers, linger_ms=0, **settings)


def reading(broker: EmbeddedCluster, **settings: Any) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        **settings,
    )


@pytest.fixture
async def stored(broker: EmbeddedCluster) -> EmbeddedCluster:
    """Six records in one partition."""
    broker.create_topic("t", 1)
    async with sending(broker) as producer:
        await (await producer.send_many("t", [b"a0", b"a1", b"b2", b"a3", b"c4", b"b5"]))
    return broker


# -- producer --------------------------------------------------------------------------------------


async def test_a_later_call_does_not_overtake_a_call_whose_serializer_waits(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 1)
    serializer = Slow(a_second)
    serializer.known.add("b")
    async with sending(broker, value_serializer=serializer) as producer:
        first = asyncio.create_task(producer.send("t", "a1"))
        await asyncio.sleep(0.1)
        async with asyncio.TaskGroup() as group:
            for value in ("b2", "a3", "b4"):
                group.create_task(producer.send("t", value))
        await first
        await producer.flush()
    assert [record.value for record in broker.records("t")] == [b"a1", b"b2", b"a3", b"b4"]


async def test_send_many_keeps_the_order_when_serializers_wait(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    serializer = Slow(a_second)
    async with sending(broker, key_serializer=serializer, value_serializer=serializer) as producer:
        given = [ProducerRecord("t", f"{'vw'[n % 2]}{n}", f"{'kl'[n % 2]}") for n in range(4)]
        await (await producer.send_many("t", given))
    assert [record.value for record in broker.records("t")] == [b"v0", b"w1", b"v2", b"w3"]
    assert serializer.waits == ["k", "v", "l", "w"]


async def test_a_serializer_that_waits_too_long_fails_the_record_only(
    broker: EmbeddedCluster,
) -> None:
    async def forever(letter: str) -> None:
        await asyncio.sleep(1e6 if letter == "a" else 0)

    settings: dict[str, Any] = {"value_serializer": Slow(forever), "max_block_ms": 3000}
    async with sending(broker, **settings) as producer:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SerializationError, match="not prepared within max_block_ms=3000"):
            await producer.send("t", "a")
        assert asyncio.get_running_loop().time() - began < 3.1
        await producer.send_and_wait("t", "b")


async def test_the_error_of_a_wait_is_that_of_the_record(broker: EmbeddedCluster) -> None:
    async def fail(letter: str) -> None:
        raise LookupError(f"no {letter}")

    async with sending(broker, value_serializer=Slow(fail)) as producer:
        with pytest.raises(SerializationError, match=r"Slow failed .* LookupError: no a") as raised:
            await producer.send("t", "a")
        assert isinstance(raised.value.__cause__, LookupError)
        deliveries = await producer.send_many("t", ["b"])
        with pytest.raises(SerializationError, match="no b"):
            await deliveries[0]


async def test_a_serializer_that_is_never_prepared_fails(broker: EmbeddedCluster) -> None:
    async def nothing() -> None:
        pass

    def never(topic: str, headers: object, data: Any, /) -> bytes:
        raise NotPrepared(nothing)

    async with sending(broker, value_serializer=never) as producer:
        with pytest.raises(SerializationError, match="11 times"):
            await producer.send("t", "a")


async def test_a_cancelled_send_lets_the_next_call_go_on(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    serializer = Slow(a_second)
    serializer.known.add("b")
    async with sending(broker, value_serializer=serializer) as producer:
        first = asyncio.create_task(producer.send("t", "a"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(producer.send("t", "b"))
        await asyncio.sleep(0.1)
        first.cancel()
        await (await second)
        assert first.cancelled()
    assert [record.value for record in broker.records("t")] == [b"b"]


async def test_a_serializer_adds_headers(broker: EmbeddedCluster) -> None:
    def serializer(topic: str, headers: object, data: bytes, /) -> WithHeaders:
        return WithHeaders(data, ((data.decode(), b"1"),))

    settings: dict[str, Any] = {"key_serializer": serializer, "value_serializer": serializer}
    async with sending(broker, **settings) as producer:
        await producer.send_and_wait("t", b"v", b"k", headers=[("own", None)])
    (record,) = broker.records("t")
    assert list(record.headers) == [("own", None), ("k", b"1"), ("v", b"1")]
    assert (record.key, record.value) == (b"k", b"v")


# -- consumer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 6])
async def test_all_records_are_read_in_order(stored: EmbeddedCluster, most: int) -> None:
    deserializer = Slow(a_second)
    async with reading(stored, value_deserializer=deserializer) as consumer:
        found: list[Any] = []
        while len(found) < 6:
            found += await consumer.getmany(most, timeout_ms=20_000)
            (tp,) = consumer.assignment()
            assert await consumer.position(tp) == len(found)
    assert [record.value for record in found] == ["a0", "a1", "b2", "a3", "c4", "b5"]
    assert deserializer.waits == ["a", "b", "c"]


async def test_records_that_are_kept_back_are_read_in_smaller_portions(
    stored: EmbeddedCluster,
) -> None:
    async with reading(stored, value_deserializer=Slow(a_second)) as consumer:
        found = list(await consumer.getmany(6, timeout_ms=20_000))
        (tp,) = consumer.assignment()
        while len(found) < 6:
            assert await consumer.position(tp) == len(found)
            found += await consumer.getmany(1, timeout_ms=20_000)
    assert [record.offset for record in found] == list(range(6))


async def test_records_are_read_one_by_one(stored: EmbeddedCluster) -> None:
    async with reading(stored, value_deserializer=Slow(a_second)) as consumer:
        found = [(await consumer.getone(20_000)).value for _ in range(6)]
    assert found == ["a0", "a1", "b2", "a3", "c4", "b5"]


async def test_a_read_ends_in_time_and_the_next_one_goes_on(stored: EmbeddedCluster) -> None:
    async with reading(stored, value_deserializer=Slow(a_second)) as consumer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert not await consumer.getmany(timeout_ms=500)
        with pytest.raises(KafkaTimeoutError):
            await consumer.getone(timeout_ms=500)
        assert 1.0 <= loop.time() - began < 1.1
        assert (await consumer.getone(20_000)).value == "a0"


async def test_a_wakeup_ends_the_wait(stored: EmbeddedCluster) -> None:
    async with reading(stored, value_deserializer=Slow(a_second)) as consumer:
        call = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.9)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await call
        assert (await consumer.getone()).value == "a0"


async def test_a_consumer_closes_while_a_deserializer_waits(stored: EmbeddedCluster) -> None:
    async def forever(_: str) -> None:
        await asyncio.sleep(1e6)

    async with reading(stored, value_deserializer=Slow(forever)) as consumer:
        call = asyncio.create_task(consumer.getone())
        await asyncio.sleep(1)
    with pytest.raises(Exception, match="closed"):
        await call


async def test_a_deserializer_that_cannot_be_prepared_fails_each_read(
    stored: EmbeddedCluster,
) -> None:
    async def fail(letter: str) -> None:
        if letter == "b" and deserializer.waits.count("b") < 3:
            raise LookupError("no b")

    deserializer = Slow(fail)
    async with reading(stored, value_deserializer=deserializer) as consumer:
        found = list(await consumer.getmany(timeout_ms=20_000))
        assert [record.value for record in found] == ["a0", "a1"]
        for _ in range(2):
            with pytest.raises(DeserializationError, match="offset 2 of t-0: LookupError") as bad:
                await consumer.getmany(timeout_ms=20_000)
            assert (bad.value.offset, bad.value.value) == (2, b"b2")
        while len(found) < 6:
            found += await consumer.getmany(timeout_ms=20_000)
    assert [record.offset for record in found] == list(range(6))


async def test_a_seek_forgets_the_wait(stored: EmbeddedCluster) -> None:
    async with reading(stored, value_deserializer=Slow(a_second)) as consumer:
        assert not await consumer.getmany(timeout_ms=500)
        (tp,) = consumer.assignment()
        consumer.seek(tp, 4)
        assert [(await consumer.getone(20_000)).value for _ in range(2)] == ["c4", "b5"]


async def test_a_deserializer_that_is_never_prepared_fails(stored: EmbeddedCluster) -> None:
    async def nothing() -> None:
        pass

    def never(topic: str, headers: object, data: Any, /) -> bytes:
        raise NotPrepared(nothing)

    async with reading(stored, value_deserializer=never) as consumer:
        with pytest.raises(DeserializationError, match="11 times"):
            await consumer.getone(20_000)


# -- errors of user code ---------------------------------------------------------------------------


class Own(BaseException):
    """An error that is not an Exception."""


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, Own, TimeoutError])
async def test_any_error_of_a_wait_is_that_of_its_record_only(
    stored: EmbeddedCluster, kind: type[BaseException]
) -> None:
    async def fail(letter: str) -> None:
        if letter == "b":
            raise kind

    async with sending(stored, value_serializer=Slow(fail)) as producer:
        with pytest.raises(SerializationError) as refused:
            await producer.send("t", "b")
        assert isinstance(refused.value.__cause__, kind)
        await producer.send_and_wait("t", "a6")
    async with reading(stored, value_deserializer=Slow(fail)) as consumer:
        assert len(await consumer.getmany(timeout_ms=20_000)) == 2
        with pytest.raises(DeserializationError) as unread:
            await consumer.getmany(timeout_ms=20_000)
        assert isinstance(unread.value.__cause__, kind)
        (tp,) = consumer.assignment()
        consumer.seek(tp, 3)
        assert (await consumer.getone(20_000)).value == "a3"


# -- processors ------------------------------------------------------------------------------------


async def test_handlers_get_records_whose_deserializer_waits(stored: EmbeddedCluster) -> None:
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(record: Record[Any, str]) -> None:
        handled.append(record.value)
        if len(handled) == 6:
            done.set()

    async with Processor(
        handle,
        "t",
        bootstrap_servers=stored.bootstrap_servers,
        group_id="g",
        value_deserializer=Slow(a_second),
    ):
        async with asyncio.timeout(30):
            await done.wait()
    assert handled == ["a0", "a1", "b2", "a3", "c4", "b5"]


async def test_a_wait_that_fails_is_retried_and_no_dead_letter(stored: EmbeddedCluster) -> None:
    async def fail(letter: str) -> None:
        if deserializer.waits.count(letter) < 3:
            raise LookupError("the registry is away")

    deserializer = Slow(fail)
    handled: list[str] = []
    done = asyncio.Event()

    async def handle(record: Record[Any, str]) -> None:
        handled.append(record.value)
        if len(handled) == 6:
            done.set()

    async with Processor(
        handle,
        "t",
        bootstrap_servers=stored.bootstrap_servers,
        group_id="g",
        value_deserializer=deserializer,
        dead_letter_topic="dead",
        retry=RetryPolicy(attempts=5),
    ):
        async with asyncio.timeout(300):
            await done.wait()
    assert sorted(handled) == ["a0", "a1", "a3", "b2", "b5", "c4"]
    assert deserializer.waits.count("b") == 3
    assert stored.records("dead") == []
