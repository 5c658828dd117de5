"""The rows of producers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aioprod import (
    Delivery,
    JsonSerializer,
    Producer,
    ProducerInterceptor,
    ProducerObserver,
    ProducerRecord,
)
from aioprod.errors import (
    DeliveryTimeoutError,
    KafkaError,
    ProducerClosedError,
    SerializationError,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from tests.user_code.seams import Run, Seam, caused, logged, passed, unchanged

PARTITIONS = 3
QUICK: dict[str, Any] = {
    "linger_ms": 5,
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 10,
}


@asynccontextmanager
async def cluster(**settings: Any) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(num_partitions=PARTITIONS, **settings) as broker:
        broker.create_topic("t")
        yield broker


@asynccontextmanager
async def sending(broker: EmbeddedCluster, **settings: Any) -> AsyncIterator[Producer]:
    """A producer that knows the topic."""
    async with Producer(broker.bootstrap_servers, **{**QUICK, **settings}) as producer:
        await producer.partitions_for("t")
        yield producer


async def send_six(producer: Producer) -> list[Delivery]:
    """Two records for each partition; all go in one request."""
    return [await producer.send("t", b"%d" % n, partition=n % PARTITIONS) for n in range(6)]


async def expect_six(broker: EmbeddedCluster, deliveries: list[Delivery]) -> None:
    """Each is delivered to its place, and stored once."""
    places = [await delivery for delivery in deliveries]
    assert [place[:3] for place in places] == [
        ("t", n % PARTITIONS, n // PARTITIONS) for n in range(6)
    ]
    for partition in range(PARTITIONS):
        values = [record.value for record in broker.records("t", partition)]
        assert values == [b"%d" % partition, b"%d" % (partition + PARTITIONS)]


async def expect_next(producer: Producer) -> None:
    """The producer goes on."""
    assert (await producer.send_and_wait("t", b"next", partition=1)).partition == 1


# -- callbacks ------------------------------------------------------------------------------------


async def callback(run: Run) -> None:
    async with cluster() as broker, sending(broker) as producer:
        deliveries = await send_six(producer)
        received: list[Delivery] = []
        deliveries[0].add_done_callback(run.fail)
        for delivery in deliveries:
            delivery.add_done_callback(received.append)
        await expect_six(broker, deliveries)
        assert len(received) == len(deliveries)
        await expect_next(producer)


async def callback_without_acks(run: Run) -> None:
    async with cluster() as broker:
        async with sending(broker, acks=0, enable_idempotence=False) as producer:
            deliveries = await send_six(producer)
            deliveries[0].add_done_callback(run.fail)
            for delivery in deliveries:
                await delivery
            await expect_next(producer)
        assert len(await broker.wait_for_records("t", 7)) == 7


async def callback_at_once(run: Run) -> None:
    async with cluster() as broker, sending(broker) as producer:
        deliveries = await send_six(producer)
        await deliveries[0]
        deliveries[0].add_done_callback(run.fail)
        await expect_six(broker, deliveries)
        await asyncio.sleep(0)
        await expect_next(producer)


async def callback_at_close(run: Run) -> None:
    async with cluster() as broker, sending(broker, linger_ms=10_000) as producer:
        deliveries = await send_six(producer)
        deliveries[0].add_done_callback(run.fail)
        await producer.close(timeout_ms=0)
        for delivery in deliveries:
            assert isinstance(delivery.exception(), ProducerClosedError)


async def callback_expired(run: Run) -> None:
    limits = {"delivery_timeout_ms": 60, "request_timeout_ms": 50, "linger_ms": 0}
    async with cluster() as broker, sending(broker, **limits) as producer:
        kept_back = broker.on_every(ApiKey.PRODUCE, hold())
        deliveries = await send_six(producer)
        deliveries[0].add_done_callback(run.fail)
        for delivery in deliveries:
            await asyncio.wait([asyncio.ensure_future(outcome(delivery))])
            assert isinstance(delivery.exception(), DeliveryTimeoutError)
        kept_back.cancel()
        kept_back.release()
        # The bystander is the task that sends.
        while isinstance(await outcome(await producer.send("t", b"next")), KafkaError):
            pass


async def compared(run: Run) -> None:
    """Removing compares; an error there removes nothing."""

    class Compared:
        def __eq__(self, other: object) -> bool:
            return bool(run.fail())

        def __call__(self, delivery: Delivery) -> None:
            received.append(delivery)

    async def remove() -> int:
        return deliveries[0].remove_done_callback(print)

    async with cluster() as broker, sending(broker, linger_ms=1_000) as producer:
        deliveries = await send_six(producer)
        received: list[Delivery] = []
        deliveries[0].add_done_callback(received.append)
        deliveries[0].add_done_callback(Compared())
        await run.note(remove())
        await producer.flush()
        await expect_six(broker, deliveries)
        assert received == [deliveries[0], deliveries[0]]
        await expect_next(producer)


async def outcome(delivery: Delivery) -> object:
    try:
        return await delivery
    except KafkaError as error:
        return error


CALLBACKS = [
    Seam("Delivery.add_done_callback(callback)", logged, callback),
    Seam("Delivery.add_done_callback(callback)", logged, callback_without_acks, "acks=0"),
    Seam("Delivery.add_done_callback(callback)", logged, callback_at_once, "delivered already"),
    Seam("Delivery.add_done_callback(callback)", logged, callback_at_close, "close"),
    Seam("Delivery.add_done_callback(callback)", logged, callback_expired, "expired"),
    Seam("Delivery.remove_done_callback(callback)", unchanged, compared),
]


# -- interceptors and observers -------------------------------------------------------------------


def faulty(base: type, method: str, run: Run) -> Any:
    """An object of ``base`` whose ``method`` raises."""
    return type(f"Faulty{base.__name__}", (base,), {method: run.fail, "__doc__": None})()


class Spy(ProducerInterceptor):
    """Sees everything."""

    def __init__(self) -> None:
        self.received: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.received.append("on_send")
        return record

    def on_acknowledgement(self, *_: object) -> None:
        self.received.append("on_acknowledgement")

    def on_send_error(self, *_: object) -> None:
        self.received.append("on_send_error")

    def on_delivery(self, *_: object) -> None:
        self.received.append("on_delivery")

    def close(self) -> None:
        self.received.append("close")


async def interceptor(method: str, run: Run) -> None:
    spy = Spy()
    async with cluster() as broker:
        plugins = [faulty(ProducerInterceptor, method, run), spy]
        async with sending(broker, interceptors=plugins) as producer:
            deliveries = await send_six(producer)
            await expect_six(broker, deliveries)
            await expect_next(producer)
    for name in ("on_send", "on_acknowledgement", "on_delivery"):
        assert spy.received.count(name) == 7
    assert spy.received.count("close") == 1


async def interceptor_of_refused(run: Run) -> None:
    spy = Spy()
    async with cluster() as broker:
        plugins = [faulty(ProducerInterceptor, "on_send_error", run), spy]
        async with sending(broker, interceptors=plugins) as producer:
            deliveries = await send_six(producer)
            try:
                await producer.send("t", "text")
            except SerializationError:
                pass
            await expect_six(broker, deliveries)
            await expect_next(producer)
    assert spy.received.count("on_send_error") == 1


async def observer(method: str, run: Run) -> None:
    received: list[str] = []
    methods = {
        name: lambda _, *event, name=name: received.append(name)
        for name in (
            "on_start",
            "on_batch_sent",
            "on_batch_done",
            "on_request",
            "on_connection",
            "close",
        )
    }
    spy = type("Spy", (ProducerObserver,), methods)()
    async with cluster() as broker:
        plugins = [faulty(ProducerObserver, method, run), spy]
        async with sending(broker, observers=plugins) as producer:
            await expect_six(broker, await send_six(producer))
            await expect_next(producer)
    assert set(received) == set(methods)
    assert received.count("on_batch_done") == 4


REPORTS = [
    *(
        Seam(f"ProducerInterceptor.{name}", logged, partial(interceptor, name))
        for name in ("on_send", "on_acknowledgement", "on_delivery", "close")
    ),
    Seam("ProducerInterceptor.on_send_error", logged, interceptor_of_refused),
    *(
        Seam(f"ProducerObserver.{name}", logged, partial(observer, name))
        for name in (
            "on_start",
            "on_batch_sent",
            "on_batch_done",
            "on_request",
            "on_connection",
            "close",
        )
    ),
]


# -- what turns a record into bytes, and finds its partition ---------------------------------------


async def serializer(setting: str, run: Run, *, of_data: bool = False) -> None:
    def serialize(topic: str, headers: object, data: Any) -> Any:
        return run.fail() if data == b"bad" else data

    given = partial(serialize, "t", ()) if of_data else serialize
    async with cluster() as broker, sending(broker, **{setting: given}) as producer:
        deliveries = await send_six(producer)
        bad = {setting.removesuffix("_serializer"): b"bad"}
        await run.note(producer.send("t", **{"value": b"v", **bad}, partition=0))  # type: ignore[arg-type]
        await expect_six(broker, deliveries)
        await expect_next(producer)


async def json_default(run: Run) -> None:
    async with cluster() as broker:
        async with sending(broker, value_serializer=JsonSerializer(default=run.fail)) as producer:
            delivery = await producer.send("t", 1)
            await run.note(producer.send("t", object()))
            assert (await delivery).offset == 0
            assert [record.value for record in broker.records("t")] == [b"1"]


async def partitioner(run: Run) -> None:
    class Choice:
        def partition(self, topic: str, key: object, value: object, *_: object) -> int:
            if value == b"bad":
                run.fail()
            return 0

    async with cluster() as broker, sending(broker, partitioner=Choice()) as producer:
        deliveries = await send_six(producer)
        await run.note(producer.send("t", b"bad"))
        await expect_six(broker, deliveries)
        await expect_next(producer)


async def sticky_partitioner(run: Run) -> None:
    class Choice:
        def partition(self, *_: object) -> int:
            return 0

        def on_new_batch(self, *_: object) -> None:
            run.fail()

    async with cluster() as broker:
        async with sending(broker, partitioner=Choice(), batch_size=150, linger_ms=20) as producer:
            first = await producer.send("t", b"1" * 100)
            await run.note(producer.send("t", b"2" * 100))
            run.armed = False
            second = await producer.send("t", b"3" * 100)
            assert ((await first).offset, (await second).offset) == (0, 1)
        assert [record.value[:1] for record in broker.records("t", 0) if record.value] == [
            b"1",
            b"3",
        ]


async def clock(run: Run, **place: Any) -> None:
    seconds = 1_000.0

    def now() -> float:
        run.fail()
        return seconds

    run.armed = False
    async with cluster() as broker, sending(broker, clock=now) as producer:
        delivery = await producer.send("t", b"1")
        run.armed = True
        await run.note(producer.send("t", b"bad", **place))
        run.armed = False
        assert (await delivery).timestamp == 1_000_000
        await expect_next(producer)
        assert not [record for record in broker.records("t") if record.value == b"bad"]


async def clock_of_many(run: Run) -> None:
    run.armed = False

    def now() -> float:
        run.fail()
        return 1_000.0

    async with cluster() as broker, sending(broker, clock=now) as producer:
        delivery = await producer.send("t", b"1")
        run.armed = True
        await run.note(producer.send_many("t", [b"bad"] * 3))
        run.armed = False
        assert (await delivery).timestamp == 1_000_000
        await expect_next(producer)
        assert not [record for record in broker.records("t") if record.value == b"bad"]


TRANSFORMS = [
    Seam(
        "Serializer.__call__",
        caused(SerializationError),
        partial(serializer, "key_serializer"),
        "key",
    ),
    Seam(
        "Serializer.__call__",
        caused(SerializationError),
        partial(serializer, "value_serializer"),
        "value",
    ),
    *(
        Seam(setting, caused(SerializationError), partial(serializer, setting, of_data=True))
        for setting in ("key_serializer", "value_serializer")
    ),
    Seam("JsonSerializer(default)", caused(SerializationError), json_default),
    Seam("Partitioner.partition", passed(KafkaError), partitioner),
    Seam("Partitioner.on_new_batch", passed(KafkaError), sticky_partitioner),
    Seam("Producer(clock)", passed(KafkaError), clock),
    Seam("Producer(clock)", passed(KafkaError), partial(clock, partition=2), "slow path"),
    Seam("Producer(clock)", passed(KafkaError), clock_of_many, "send_many"),
]


PRODUCER_SEAMS = [*CALLBACKS, *REPORTS, *TRANSFORMS]
