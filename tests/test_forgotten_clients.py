"""Clients that are dropped without close(): they say so, with what is lost by it, and leave no
task, socket or waiting caller behind.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import re
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aioprod import (
    Admin,
    AdminObserver,
    Consumer,
    ConsumerInterceptor,
    ConsumerObserver,
    KafkaError,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerObserver,
    ShareConsumer,
    ShareConsumerObserver,
    TopicPartition,
)
from aioprod.config.setting import Source
from aioprod.config.settings.admin import ADMIN_SETTINGS
from aioprod.config.settings.consumer import CONSUMER_SETTINGS
from aioprod.config.settings.producer import PRODUCER_SETTINGS
from aioprod.config.settings.share_consumer import SHARE_CONSUMER_SETTINGS
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.types import Headers
from tests import loops
from tests.waiting import wait_until

LIMIT_S = 5.0
numbers = itertools.count(1)
LOOPS: list[Any] = [pytest.param(make, id=name) for name, make in loops.installed().items()]
Loop = Callable[[], asyncio.AbstractEventLoop]


@dataclass
class Kind:
    """A client that has been at work, and what is said of it when it is dropped."""

    make: Callable[[str], Awaitable[Any]]
    said: str
    logged: bool = False


async def started(client: Any) -> Any:
    await client.start()
    return client


async def producer_at_rest(servers: str) -> Producer:
    producer: Producer = await started(Producer(servers, client_id="c"))
    await producer.send_and_wait("t", b"x")
    await producer.send_many("t", [b"y"])
    await producer.flush()
    return producer


async def producer_with_records(servers: str) -> Producer:
    producer: Producer = await started(Producer(servers, client_id="c", linger_ms=60_000))
    await producer.partitions_for("t")
    for number in range(7):
        await producer.send("t", b"%d" % number)
    return producer


async def producer_in_transaction(servers: str) -> Producer:
    producer: Producer = await started(
        Producer(servers, client_id="c", transactional_id="x", linger_ms=60_000)
    )
    await producer.begin_transaction()
    await producer.send("t", b"x")
    return producer


async def producer_with_stored_records_in_a_transaction(servers: str) -> Producer:
    producer: Producer = await started(
        Producer(servers, client_id="c", transactional_id=f"x{next(numbers)}")
    )
    await producer.begin_transaction()
    await producer.send_and_wait("u", b"x")
    return producer


async def producer_with_offsets_in_a_transaction(servers: str) -> Producer:
    producer: Producer = await started(
        Producer(servers, client_id="c", transactional_id=f"x{next(numbers)}")
    )
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "offsets")
    return producer


async def producer_that_has_committed(servers: str) -> Producer:
    producer: Producer = await started(
        Producer(servers, client_id="c", transactional_id=f"x{next(numbers)}")
    )
    async with producer.transaction():
        await producer.send("u", b"x")
    await producer.begin_transaction()
    return producer


async def consumer_of_partitions(servers: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=servers, client_id="c", auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    await consumer.start()
    await consumer.getone()
    return consumer


async def consumer_of_group(servers: str) -> Consumer:
    group = f"g{next(numbers)}"
    consumer: Consumer = await started(
        Consumer(
            "t",
            bootstrap_servers=servers,
            client_id="c",
            group_id=group,
            auto_offset_reset="earliest",
        )
    )
    await consumer.getone()
    await consumer.commit_async()
    return consumer


async def admin(servers: str) -> Admin:
    client: Admin = await started(Admin(servers, client_id="c"))
    await client.list_topics()
    return client


DELAYED = (
    "its transaction blocks consumers until the coordinator aborts it, after "
    "transaction_timeout_ms=60000"
)
KINDS = {
    "producer": Kind(producer_at_rest, "unclosed producer 'c'; use 'async with', or await close"),
    "producer with records": Kind(
        producer_with_records,
        "unclosed producer 'c': not delivered: 7 accepted records; use",
        True,
    ),
    "producer in a transaction": Kind(
        producer_in_transaction,
        "unclosed producer 'c': not delivered: 1 accepted record",
        True,
    ),
    "producer with stored records in a transaction": Kind(
        producer_with_stored_records_in_a_transaction,
        f"unclosed producer 'c': {DELAYED}; use 'async with'",
        True,
    ),
    "producer with offsets in a transaction": Kind(
        producer_with_offsets_in_a_transaction,
        f"unclosed producer 'c': {DELAYED}; use 'async with'",
        True,
    ),
    "producer that has committed": Kind(
        producer_that_has_committed, "unclosed producer 'c'; use 'async with', or await close"
    ),
    "consumer": Kind(
        consumer_of_partitions, "unclosed consumer 'c'; use 'async with', or await close"
    ),
    "consumer in a group": Kind(
        consumer_of_group,
        "unclosed consumer 'c': group 'g[0-9]+' keeps its 1 partition for it until",
        True,
    ),
    "admin": Kind(admin, "unclosed admin client 'c'; use 'async with', or await close"),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedCluster]:
    async def fill(servers: str) -> None:
        async with Producer(servers) as producer:
            await (await producer.send_many("t", [b"a", b"b", b"c"]))

    with EmbeddedCluster.in_thread() as running:
        running.create_topic("t", 1)
        asyncio.run(fill(running.bootstrap_servers))
        wait_until(lambda: connections(running) == 0)
        yield running


@pytest.fixture(autouse=True)
def no_cycle_is_collected() -> Iterator[None]:
    """Dropping the last reference has to do."""
    gc.disable()
    gc.freeze()  # what there is already takes long to look at
    yield
    gc.unfreeze()
    gc.enable()


def connections(broker: ThreadedCluster) -> int:
    return broker._broker.connection_count(1)


async def tasks_end() -> None:
    """Wait until only this task is left."""
    async with asyncio.timeout(LIMIT_S):
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


def resource_warnings(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in caught if each.category is ResourceWarning]


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["last reference", "in a cycle"])
def test_in_a_loop_that_goes_on(
    broker: ThreadedCluster, caplog: pytest.LogCaptureFixture, name: str, how: str, new_loop: Loop
) -> None:
    kind = KINDS[name]

    async def main() -> list[str]:
        client = await kind.make(broker.bootstrap_servers)
        watched = weakref.ref(client)
        assert connections(broker) > 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if how == "in a cycle":
                client.itself = client
                del client
                gc.collect()
            else:
                del client
            said = resource_warnings(caught)
            caught.clear()  # they refer to the client
            await tasks_end()
        assert watched() is None
        return said

    with asyncio.Runner(loop_factory=new_loop) as runner:
        (said,) = runner.run(main())
        wait_until(lambda: connections(broker) == 0)
    assert re.match(kind.said, said)
    # Nothing else is said of it, such as that time was short.
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == ([said] if kind.logged else [])


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "kept", [False, True], ids=["dropped with the loop", "kept longer than the loop"]
)
def test_in_a_loop_that_ends(
    broker: ThreadedCluster, name: str, kept: bool, new_loop: Loop
) -> None:
    """The application ends, or fails, without closing its client."""
    kind = KINDS[name]
    outside: list[Any] = []

    async def main() -> None:
        client = await kind.make(broker.bootstrap_servers)
        if kept:
            outside.append(client)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
        assert bool(resource_warnings(caught)) is not kept
        outside.clear()
    (said,) = resource_warnings(caught)
    # The error has reported the loss already: consumers see nothing of the transaction.
    lost_before = name == "producer in a transaction" and kept
    assert re.match("unclosed producer 'c'" if lost_before else kind.said, said)
    wait_until(lambda: connections(broker) == 0)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_deliveries_that_others_await_fail(broker: ThreadedCluster, new_loop: Loop) -> None:
    async def main() -> None:
        producer = await started(Producer(broker.bootstrap_servers, linger_ms=60_000))
        deliveries = [*await producer.send_many("t", [b"1", b"2"]), await producer.send("t", b"3")]
        called: list[object] = []
        deliveries[0].add_done_callback(called.append)
        waiting = [asyncio.ensure_future(delivery) for delivery in deliveries]
        await asyncio.sleep(0)
        with pytest.warns(ResourceWarning, match="3 accepted records"):
            del producer
        async with asyncio.timeout(LIMIT_S):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ProducerClosedError] * 3
        assert (
            all(isinstance(delivery.exception(), ProducerClosedError) for delivery in deliveries)
            and len(called) == 1
        )
        await tasks_end()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_deliveries_can_be_looked_at_when_the_loop_is_closed(broker: ThreadedCluster) -> None:
    async def main() -> tuple[Producer, Any]:
        producer = await started(Producer(broker.bootstrap_servers, linger_ms=60_000))
        return producer, await producer.send("t", b"1")

    producer, delivery = asyncio.run(main())
    assert isinstance(delivery.exception(), KafkaError)
    with pytest.warns(ResourceWarning, match="1 accepted record"):
        del producer


@pytest.mark.parametrize("name", KINDS)
def test_a_client_whose_loop_is_closed_can_be_closed_in_another(
    broker: ThreadedCluster, name: str
) -> None:
    """There is nothing to wait for any more."""
    client = asyncio.run(_make(KINDS[name], broker))
    asyncio.run(client.close())
    asyncio.run(client.close())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client


async def _make(kind: Kind, broker: ThreadedCluster) -> Any:
    return await kind.make(broker.bootstrap_servers)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_nothing_is_said_of_one_that_is_closed_or_was_never_started(
    broker: ThreadedCluster, client: Any
) -> None:
    async def main() -> None:
        client(bootstrap_servers=broker.bootstrap_servers)
        failing = client(bootstrap_servers="127.0.0.1:1")
        with pytest.raises(KafkaError):
            await failing.start()
        del failing
        async with client(bootstrap_servers=broker.bootstrap_servers):
            pass
        closing = await started(client(bootstrap_servers=broker.bootstrap_servers))
        cancelled = asyncio.create_task(closing.close())
        del closing
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        del cancelled
        await tasks_end()
        with pytest.raises(KafkaError):
            client(bootstrap_servers="")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


class Part(ProducerInterceptor, ConsumerInterceptor):
    """A plug-in of any kind; an observer has its client's base class, too."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def __call__(self, topic: str, headers: Headers, data: Any) -> Any:
        return data

    def partition(self, *args: object) -> int:
        return 0


# By client: the settings that take a plug-in, and those that take a list.
PARTS: list[tuple[type[Any], list[str], list[str]]] = [
    (
        Producer,
        ["key_serializer", "value_serializer", "partitioner"],
        ["interceptors", "observers"],
    ),
    (Consumer, ["key_deserializer", "value_deserializer"], ["interceptors", "observers"]),
    (ShareConsumer, ["key_deserializer", "value_deserializer"], ["observers"]),
    (Admin, [], ["observers"]),
]
REQUIRED: dict[type[Any], dict[str, Any]] = {ShareConsumer: {"group_id": "g"}}
OBSERVERS: dict[type[Any], type] = {
    Producer: ProducerObserver,
    Consumer: ConsumerObserver,
    ShareConsumer: ShareConsumerObserver,
    Admin: AdminObserver,
}
ENDS = [
    "closed",
    "closed in another loop",
    "closed twice in others",
    "dropped",
    "dropped with its loop",
    "dropped after it",
]


def test_every_setting_that_takes_plugins_is_in_the_table() -> None:
    table = {client: (single, listed) for client, single, listed in PARTS}
    for client, settings in (
        (Producer, PRODUCER_SETTINGS),
        (Consumer, CONSUMER_SETTINGS),
        (ShareConsumer, SHARE_CONSUMER_SETTINGS),
        (Admin, ADMIN_SETTINGS),
    ):
        single, listed = table[client]
        for source, names in ((Source.PLUGIN, single), (Source.PLUGINS, listed)):
            assert set(names) == {
                name for name, setting in settings.items() if setting.source is source
            }


@pytest.mark.parametrize(
    ("client", "single", "listed"), PARTS, ids=["producer", "consumer", "share consumer", "admin"]
)
@pytest.mark.parametrize("how", ENDS)
def test_parts_are_closed_once_however_the_client_ends(
    broker: ThreadedCluster, client: type[Any], single: list[str], listed: list[str], how: str
) -> None:
    of_observers: Any = type("Observer", (Part, OBSERVERS[client]), {})
    parts = {name: of_observers() if name == "observers" else Part() for name in (*single, *listed)}
    settings: dict[str, Any] = {
        **REQUIRED.get(client, {}),
        **{name: [part] if name in listed else part for name, part in parts.items()},
    }
    outside: list[Any] = []

    async def main() -> None:
        running = await started(client(bootstrap_servers=broker.bootstrap_servers, **settings))
        if how == "closed":
            await running.close()
        elif how == "dropped":
            del running
            await tasks_end()
        elif how != "dropped with its loop":
            outside.append(running)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        for _ in range({"closed in another loop": 1, "closed twice in others": 2}.get(how, 0)):
            asyncio.run(outside[0].close())
        outside.clear()
    assert {name: part.closed for name, part in parts.items()} == dict.fromkeys(parts, 1)
