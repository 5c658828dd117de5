"""The rows of observers of consumers, share consumers, admin clients and processors, and of
handlers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from aioprod import (
    Admin,
    AdminObserver,
    ConsumerObserver,
    RebalanceListener,
    ShareConsumer,
    ShareConsumerObserver,
)
from aioprod.admin import ConfigResource
from aioprod.processing import (
    BatchProcessor,
    Processor,
    ProcessorObserver,
    RetryPolicy,
    ShareBatchProcessor,
    ShareProcessor,
)
from aioprod.testing import EmbeddedCluster
from tests.user_code.consumer_seams import (
    GROUP,
    STORED,
    ZERO,
    cluster,
    consumer_of,
    expect,
    read,
)
from tests.user_code.producer_seams import faulty
from tests.user_code.seams import Run, Seam, logged
from tests.waiting import until


def methods_of(base: type) -> list[str]:
    return [name for name in vars(base) if not name.startswith("_")]


def spy_of(base: type, received: list[str]) -> Any:
    """An observer that notes the names of its methods that are called."""
    methods = {
        name: lambda _, *event, name=name: received.append(name) for name in methods_of(base)
    }
    return type("Spy", (base,), methods)()


# -- consumers ------------------------------------------------------------------------------------


async def of_consumer(method: str, run: Run) -> None:
    """It reads, commits, stalls for a while, reads on, reads its topic that was created again, and
    leaves its group.
    """
    received: list[str] = []
    plugins = [faulty(ConsumerObserver, method, run), spy_of(ConsumerObserver, received)]
    async with cluster() as broker:
        settings = {**GROUP, "stall_timeout_ms": 50, "observers": plugins}
        async with consumer_of(broker, **settings) as consumer:
            consumer.subscribe(["t"], listener=RebalanceListener())
            first = await consumer.getmany(1, timeout_ms=60_000)
            consumer.pause(ZERO)
            await until(lambda: "on_stall" in received)
            consumer.resume(ZERO)
            expect([*first, *await read(consumer, 2 * STORED - 1)])
            await consumer.commit()
            broker.delete_topic("t")
            broker.create_topic("t", 2)
            while "on_topic_recreated" not in received:
                await consumer.getmany(1, timeout_ms=10)
    assert set(received) == set(methods_of(ConsumerObserver))


# -- share consumers ------------------------------------------------------------------------------


async def of_share_consumer(method: str, run: Run) -> None:
    """It reads, stalls for a while, reads on and leaves its group; each record is accepted."""
    received: list[str] = []
    plugins = [faulty(ShareConsumerObserver, method, run), spy_of(ShareConsumerObserver, received)]
    async with cluster() as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin:
            earliest = {"share.auto.offset.reset": "earliest"}
            await admin.incremental_alter_configs({ConfigResource.group("g"): earliest})
        settings: dict[str, Any] = {
            "group_id": "g",
            "topics": ["t"],
            "fetch_max_wait_ms": 20,
            "stall_timeout_ms": 50,
            "observers": plugins,
        }
        async with ShareConsumer(servers, **settings) as consumer:
            found = await consumer.getmany(1, timeout_ms=60_000)
            await until(lambda: "on_stall" in received)
            while len(found) < 2 * STORED:
                found += await consumer.getmany(timeout_ms=60_000)
            expect(found)
            assert set((await consumer.commit()).values()) == {None}
    assert set(received) == set(methods_of(ShareConsumerObserver))


# -- admin clients --------------------------------------------------------------------------------


async def of_admin(method: str, run: Run) -> None:
    received: list[str] = []
    plugins = [faulty(AdminObserver, method, run), spy_of(AdminObserver, received)]
    async with cluster() as broker:
        async with Admin(broker.bootstrap_servers, observers=plugins) as admin:
            assert "t" in await admin.list_topics()
    assert set(received) == set(methods_of(AdminObserver))


BATCHES = (BatchProcessor, ShareBatchProcessor)
SHARING = (ShareProcessor, ShareBatchProcessor)
# With the method that only the other kind calls.
PROCESSORS: list[tuple[Any, str, str]] = [
    (Processor, "", "on_acknowledged"),
    (ShareProcessor, "share", "on_offsets_committed"),
]

# -- processors -----------------------------------------------------------------------------------


@asynccontextmanager
async def stored() -> AsyncIterator[EmbeddedCluster]:
    async with cluster() as broker:
        broker.create_topic("dead", 1)
        yield broker


def settings_of(broker: EmbeddedCluster, kind: Any = Processor) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "retry": RetryPolicy(attempts=1),
        "dead_letter_topic": "dead",
    }
    if kind in SHARING:
        return {**settings, "max_deliveries": 1, "consumer": {"fetch_max_wait_ms": 10}}
    return {**settings, "commit_interval_ms": 10}


async def share_all(broker: EmbeddedCluster) -> None:
    """Let the share group begin with the first record."""
    configs = {"share.auto.offset.reset": "earliest"}
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.incremental_alter_configs({ConfigResource.group("g"): configs})


def is_done(broker: EmbeddedCluster, processor: Any) -> bool:
    """Return whether each record is accepted, or before the committed position."""
    if type(processor) in SHARING:
        return bool(processor.metrics()["records-accepted-total"] == 2 * STORED)
    return sum(broker.committed_offsets("g").values()) == 2 * STORED


async def of_processor(kind: Any, method: str, run: Run) -> None:
    received: list[str] = []
    handled: list[tuple[int, int]] = []

    async def handle(record: Any) -> None:
        handled.append((record.partition, record.offset))
        if record.offset == 2:
            raise ValueError("a record at fault")

    plugins = [faulty(ProcessorObserver, method, run), spy_of(ProcessorObserver, received)]
    async with stored() as broker:
        if kind is ShareProcessor:
            await share_all(broker)
        async with kind(handle, "t", observers=plugins, **settings_of(broker, kind)) as processor:
            await until(lambda: is_done(broker, processor))
        assert len(broker.records("dead")) == 2
    assert sorted(handled) == [(p, n) for p in (0, 1) for n in range(STORED)]
    (of_others,) = (others for each, _, others in PROCESSORS if each is kind)
    assert set(received) == set(methods_of(ProcessorObserver)) - {of_others}


async def around_a_handler(step: str, run: Run) -> None:
    """A context manager of an observer fails when it begins, or when it ends."""
    order: list[str] = []

    class Manager(ProcessorObserver):
        @contextmanager
        def handling(self, event: object) -> Iterator[None]:
            order.append("begin")
            if step == "begin":
                run.fail()
            try:
                yield
            finally:
                order.append("end")
            if step == "end":
                run.fail()

    class Inner(ProcessorObserver):
        @contextmanager
        def handling(self, event: object) -> Iterator[None]:
            order.append("inner")
            yield

    async def handle(record: object) -> None:
        order.append("handler")

    async with stored() as broker:
        plugins = [Manager(), Inner()]
        async with Processor(handle, "t", observers=plugins, **settings_of(broker)):
            await until(lambda: sum(broker.committed_offsets("g").values()) == 2 * STORED)
        assert broker.records("dead") == []
    ended = ["end"] if step == "end" else []
    assert order == ["begin", "inner", "handler", *ended] * 2 * STORED


async def handler(kind: Any, run: Run) -> None:
    """The handler fails with one record; a program that is about to end accepts no further ones."""

    async def handle(given: Any) -> None:
        record = given[0] if kind in BATCHES else given
        if (record.partition, record.offset) == (0, 2):
            run.fail()

    more = {"max_batch_records": 1} if kind in BATCHES else {}
    async with stored() as broker:
        if kind in SHARING:
            await share_all(broker)
        processor = kind(handle, "t", **more, **settings_of(broker, kind))
        if run.ends:
            await run.note(processor.run(handle_signals=False))
            assert max(broker.committed_offsets("g").values(), default=0) <= STORED
            return
        async with processor:
            await until(lambda: is_done(broker, processor))
        assert len(broker.records("dead")) == 1


def failed_record(run: Run) -> None:
    """It is a failure of the record, or ends the program and so the processor."""
    assert run.reported == run.ends
    assert run.surfaced == run.ends


OBSERVER_SEAMS = [
    *(
        Seam(f"{base.__name__}.{method}", logged, partial(scenario, method))
        for base, scenario in (
            (ConsumerObserver, of_consumer),
            (ShareConsumerObserver, of_share_consumer),
            (AdminObserver, of_admin),
        )
        for method in methods_of(base)
    ),
    *(
        Seam(f"ProcessorObserver.{method}", logged, partial(of_processor, kind, method), way)
        for kind, way, of_others in PROCESSORS
        for method in methods_of(ProcessorObserver)
        if method != of_others
    ),
    *(
        Seam("ProcessorObserver.handling", logged, partial(around_a_handler, step), step)
        for step in ("begin", "end")
    ),
    *(
        Seam(f"{kind.__name__}(handler)", failed_record, partial(handler, kind))
        for kind in (Processor, BatchProcessor, ShareProcessor, ShareBatchProcessor)
    ),
]
