"""The rows of consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aioprod import (
    AcknowledgeType,
    Consumer,
    ConsumerInterceptor,
    ConsumerRecord,
    MemberSubscription,
    Producer,
    RebalanceListener,
    RebalanceProtocol,
    ShareRecord,
    TopicPartition,
)
from aioprod.consumer.share.outcomes import Outcomes
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConsumerStateError, DeserializationError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail
from tests.consumer.share.share_groups import reporter_to
from tests.user_code.seams import Run, Seam, caused, logged, passed, provided

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
STORED = 4  # records of each partition
QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 10,
}
GROUP: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 20}


@asynccontextmanager
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A broker with the values 0 to 3 in each of the two partitions of topic ``t``."""
    async with EmbeddedCluster(num_partitions=2) as broker:
        broker.create_topic("t")
        await fill(broker, "t")
        yield broker


async def fill(broker: EmbeddedCluster, topic: str, first: int = 0) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(first, first + STORED):
            for partition in (0, 1):
                await producer.send(topic, b"%d" % number, b"%d" % number, partition=partition)


def consumer_of(broker: EmbeddedCluster, *topics: str, **settings: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, **{**QUICK, **settings})


@asynccontextmanager
async def reading(
    broker: EmbeddedCluster, *partitions: TopicPartition, **settings: Any
) -> AsyncIterator[Consumer]:
    async with consumer_of(broker, **settings) as consumer:
        consumer.assign(partitions or (ZERO, ONE))
        yield consumer


async def read(consumer: Consumer, count: int = 2 * STORED) -> list[ConsumerRecord]:
    return [await consumer.getone(timeout_ms=60_000) for _ in range(count)]


def expect(records: Sequence[ConsumerRecord | ShareRecord], **missing: Collection[int]) -> None:
    """Each record of both partitions is there once, in order."""
    for partition in (0, 1):
        left_out = missing.get(f"p{partition}", ())
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == [offset for offset in range(STORED) if offset not in left_out]


# -- what turns bytes into objects -----------------------------------------------------------------


async def deserializer(setting: str, several: bool, run: Run, *, of_data: bool = False) -> None:
    """The record at offset 2 of partition 0 can't be read."""

    def deserialize(topic: str, headers: object, data: Any) -> Any:
        return run.fail() if data == b"bad" else data

    async with EmbeddedCluster(num_partitions=2) as broker:
        broker.create_topic("t")
        async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
            for n in range(STORED):
                for partition in (0, 1):
                    data = b"bad" if (partition, n) == (0, 2) else b"%d" % n
                    await producer.send("t", data, data, partition=partition)
        records: list[ConsumerRecord] = []
        given = partial(deserialize, "t", ()) if of_data else deserialize
        async with reading(broker, **{setting: given}) as consumer:
            while len(records) < STORED + 2 or not run.reported:
                if several:
                    records += await run.note(consumer.getmany(timeout_ms=1_000)) or ()  # type: ignore[arg-type]
                elif (record := await run.note(consumer.getone(timeout_ms=1_000))) is not None:
                    assert isinstance(record, ConsumerRecord)
                    records.append(record)
            consumer.seek(ZERO, 3)
            records += await read(consumer, 1)
        expect(records, p0=[2])


# -- interceptors ---------------------------------------------------------------------------------


class Spy(ConsumerInterceptor):
    """Sees everything."""

    def __init__(self) -> None:
        self.consumed = 0
        self.committed: list[Mapping[TopicPartition, Any]] = []
        self.closed = 0

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.consumed += len(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        self.committed.append(offsets)

    def close(self) -> None:
        self.closed += 1


async def interceptor(method: str, commit: str, run: Run) -> None:
    spy = Spy()
    kind = type("Faulty", (ConsumerInterceptor,), {method: run.fail})
    async with cluster() as broker:
        settings = {**GROUP, "enable_auto_commit": commit == "by itself"}
        async with reading(broker, interceptors=[kind(), spy], **settings) as consumer:
            expect(await read(consumer))
            if commit == "commit":
                await consumer.commit({ZERO: 2})
                await consumer.commit({ONE: 3})
            elif commit == "commit_async":
                first, second = consumer.commit_async({ZERO: 2}), consumer.commit_async({ONE: 3})
                await first
                await second
        async with reading(broker, **GROUP) as consumer:
            committed = await consumer.committed(ZERO, ONE)
        offsets = [place.offset if place is not None else None for place in committed.values()]
    assert offsets == ([STORED, STORED] if commit == "by itself" else [2, 3])
    assert spy.consumed == 2 * STORED and spy.closed == 1 and spy.committed


async def consumer_close_plugin(setting: str, run: Run) -> None:
    closed: list[str] = []

    class Plain:
        def __call__(self, topic: str, headers: object, data: Any) -> Any:
            return data

        def close(self) -> None:
            closed.append("plain")

    class Faulty(Plain):
        def close(self) -> None:
            run.fail()

    settings = {name: Plain() for name in ("key_deserializer", "value_deserializer")}
    async with cluster() as broker:
        async with reading(broker, **{**settings, setting: Faulty()}) as consumer:
            expect(await read(consumer))
    assert closed == ["plain"]


# -- listeners ------------------------------------------------------------------------------------


def listener_of(method: str, way: str, run: Run, *, once: bool = True) -> RebalanceListener:
    """A listener whose ``method`` raises, at once or while it is awaited."""

    def sync(self: object, partitions: object) -> None:
        if not (once and run.raised):
            run.fail()

    async def awaited(self: object, partitions: object) -> None:
        await asyncio.sleep(0)
        sync(self, partitions)

    kind: Any = type("Listener", (RebalanceListener,), {method: sync if way == "call" else awaited})
    listener: RebalanceListener = kind()
    return listener


async def assigned(settings: Mapping[str, Any], way: str, run: Run) -> None:
    async with cluster() as broker, consumer_of(broker, **settings) as consumer:
        consumer.subscribe(["t"], listener=listener_of("on_partitions_assigned", way, run))
        while not run.raised:
            await run.note(consumer.getmany(timeout_ms=1_000))
        expect(await read(consumer))


async def revoked(settings: Mapping[str, Any], way: str, run: Run) -> None:
    async with cluster() as broker, consumer_of(broker, **settings) as consumer:
        consumer.subscribe(["t"], listener=listener_of("on_partitions_revoked", way, run))
        await read(consumer, 1)
        await run.note(consumer.unsubscribe())
        assert not consumer.assignment()
        await fill(broker, "u")
        consumer.subscribe(["u"])
        expect(await read(consumer))


async def revoked_by_close(settings: Mapping[str, Any], way: str, run: Run) -> None:
    async with cluster() as broker:
        consumer = consumer_of(broker, **settings, enable_auto_commit=False)
        await consumer.start()
        consumer.subscribe(["t"], listener=listener_of("on_partitions_revoked", way, run))
        await read(consumer, 1)
        await run.note(consumer.close())
        # Another member need not wait for the end of the session.
        async with consumer_of(broker, "t", **settings) as other:
            expect(await read(other))


async def lost(way: str, run: Run) -> None:
    async with cluster() as broker, consumer_of(broker, **GROUP) as consumer:
        consumer.subscribe(["t"], listener=listener_of("on_partitions_lost", way, run))
        records = await read(consumer)
        await consumer.commit()
        broker.on(ApiKey.HEARTBEAT, fail(ErrorCode.ILLEGAL_GENERATION))
        while not run.raised:
            await run.note(consumer.getmany(timeout_ms=50))
        expect(records)
        await fill(broker, "t", STORED)
        more = await read(consumer)
        assert sorted(record.offset for record in more) == sorted([*range(STORED, 2 * STORED)] * 2)


async def lost_without_group(way: str, run: Run) -> None:
    async with cluster() as broker:
        await fill(broker, "u")
        settings = {"metadata_max_age_ms": 20, "allow_auto_create_topics": False}
        async with consumer_of(broker, **settings) as consumer:
            consumer.subscribe(["t", "u"], listener=listener_of("on_partitions_lost", way, run))
            await read(consumer, 4 * STORED)
            broker.delete_topic("t")
            while not run.raised:
                await skip_unknown(run, consumer)
            await fill(broker, "u", STORED)
            found: list[ConsumerRecord] = []
            while len(found) < 2 * STORED:
                found += await skip_unknown(run, consumer)
            assert {record.topic for record in found} == {"u"}


async def skip_unknown(run: Run, consumer: Consumer) -> Sequence[ConsumerRecord]:
    """Records, but not the broker's word that the deleted topic is unknown."""
    before = len(run.reported)
    records = await run.note(consumer.getmany(timeout_ms=50))
    run.reported[before:] = [
        error for error in run.reported[before:] if not isinstance(error, BrokerError)
    ]
    return records or ()  # type: ignore[return-value]


def listener_seam(method: str, scenario: Any, way: str) -> Seam:
    return Seam(f"RebalanceListener.{method}", passed(ConsumerStateError), scenario, way)


LISTENERS = [
    listener_seam(method, partial(scenario, settings, way), f"{call}, {name}, {way}")
    for method, scenario, call in (
        ("on_partitions_assigned", assigned, "getmany"),
        ("on_partitions_revoked", revoked, "unsubscribe"),
        ("on_partitions_revoked", revoked_by_close, "close"),
    )
    for name, settings, way in (
        ("group", GROUP, "call"),
        ("group", GROUP, "await"),
        ("no group", {}, "await"),
    )
] + [
    listener_seam("on_partitions_lost", partial(lost, "call"), "group, call"),
    listener_seam("on_partitions_lost", partial(lost, "await"), "group, await"),
    listener_seam("on_partitions_lost", partial(lost_without_group, "await"), "no group, await"),
]


# -- assignors ------------------------------------------------------------------------------------


class Everything:
    """Gives all to the first member."""

    name = "everything"
    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return None

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition]]:
        given = [
            TopicPartition(topic, n)
            for topic, count in partitions_per_topic.items()
            for n in range(count)
        ]
        return {members[0].member_id: given}

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        pass


async def assignor(method: str, run: Run) -> None:
    def once(self: Everything, *arguments: Any) -> Any:
        if not run.raised:
            run.fail()
        return getattr(Everything, method)(self, *arguments)

    kind = type("Faulty", (Everything,), {method: once})
    async with cluster() as broker:
        settings = {**GROUP, "partition_assignment_strategy": [kind()]}
        async with (
            consumer_of(broker, "t", **settings) as consumer,
            consumer_of(broker, "t") as other,
        ):
            while not run.raised or not consumer.assignment():
                await run.note(consumer.getmany(1, timeout_ms=50))
            await consumer.seek_to_beginning()
            expect(await read(consumer))
            expect(await read(other))


# -- clocks ---------------------------------------------------------------------------------------


async def clock(run: Run) -> None:
    async with cluster() as broker:
        settings = {"clock": run.fail, "auto_offset_reset": "by_duration:PT1H"}
        async with reading(broker, **settings) as consumer:
            expect(await read(consumer))
            assert consumer.state.since > 0
        assert consumer.state.since > 0


# -- acknowledgements of share groups -------------------------------------------------------------


async def acknowledged(run: Run) -> None:
    outcomes = Outcomes(run.fail, reporter_to())
    error = BrokerError(ErrorCode.INVALID_RECORD_STATE, "t-1")
    outcomes.confirmed(ZERO, dict.fromkeys([0, 1], AcknowledgeType.ACCEPT), 0.0)
    outcomes.failed(ONE, {2: AcknowledgeType.ACCEPT}, error, 0.0)
    assert run.raised == 2
    taken = outcomes.take()
    assert taken[ZERO] is None
    assert str(taken[ONE]) == str(error)
    await asyncio.sleep(0)


INTERCEPTORS = [
    Seam("ConsumerInterceptor.on_consume", logged, partial(interceptor, "on_consume", "commit")),
    *(
        Seam("ConsumerInterceptor.on_commit", logged, partial(interceptor, "on_commit", way), way)
        for way in ("commit", "commit_async", "by itself")
    ),
    Seam("ConsumerInterceptor.close", logged, partial(interceptor, "close", "commit")),
]

CONSUMER_SEAMS = [
    *(
        Seam(
            "Deserializer.__call__",
            caused(DeserializationError, may_surface=several),
            partial(deserializer, setting, several),
            f"{setting}, {name}",
        )
        for setting in ("key_deserializer", "value_deserializer")
        for name, several in (("getone", False), ("getmany", True))
    ),
    *(
        Seam(
            setting,
            caused(DeserializationError, may_surface=False),
            partial(deserializer, setting, False, of_data=True),
        )
        for setting in ("key_deserializer", "value_deserializer")
    ),
    *INTERCEPTORS,
    *(
        Seam("plugin.close", logged, partial(consumer_close_plugin, setting), setting)
        for setting in ("key_deserializer", "value_deserializer")
    ),
    *LISTENERS,
    *(
        Seam(
            f"Assignor.{method}",
            provided(ConsumerStateError, plain=True),
            partial(assignor, method),
        )
        for method in ("subscription_user_data", "assign")
    ),
    Seam("Assignor.on_assignment", logged, partial(assignor, "on_assignment")),
    Seam("Consumer(clock)", logged, clock),
    Seam("ShareConsumer(acknowledgement_commit_callback)", logged, acknowledged),
]
