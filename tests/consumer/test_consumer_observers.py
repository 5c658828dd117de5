"""The observers of a consumer are called for each event, and its metrics count them: polls,
records, commits, rebalances, stalls. With KIP-848: test_consumer_observers_epochs.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import (
    BrokerConnectionError,
    BrokerError,
    Consumer,
    ConsumerObserver,
    ErrorCode,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from aioprod.metrics import (
    CommitDone,
    ObservedConsumer,
    PartitionsChanged,
    RebalanceDone,
    RecordsReturned,
    RequestDone,
    StallChanged,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail

pytestmark = pytest.mark.virtual_time

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
}


class Recorder(ConsumerObserver):
    """Notes everything."""

    def __init__(self) -> None:
        self.consumer: ObservedConsumer | None = None
        self.polls: list[float] = []
        self.events: list[Any] = []
        self.closed = 0

    def on_start(self, consumer: ObservedConsumer) -> None:
        assert self.consumer is None, "once"
        self.consumer = consumer

    def on_request(self, event: RequestDone) -> None:
        self.events.append(event)

    def on_poll(self, interval_s: float) -> None:
        self.polls.append(interval_s)

    def on_records(self, event: RecordsReturned) -> None:
        self.events.append(event)

    def on_commit(self, event: CommitDone) -> None:
        self.events.append(event)

    def on_partitions(self, event: PartitionsChanged) -> None:
        self.events.append(event)

    def on_rebalance(self, event: RebalanceDone) -> None:
        self.events.append(event)

    def on_stall(self, event: StallChanged) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def partitions(self) -> list[tuple[str, tuple[int, ...]]]:
        """The changes of partitions; those without any are left out."""
        return [
            (event.event, tuple(tp.partition for tp in event.partitions))
            for event in self.of(PartitionsChanged)
            if event.partitions
        ]


async def fill(broker: EmbeddedCluster, records: int = 6) -> None:
    broker.create_topic("t", 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(records):
            await producer.send("t", b"%d" % number, partition=number % 2)


def consumer_of(broker: EmbeddedCluster, recorder: Recorder, **settings: Any) -> Consumer:
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "observers": [recorder],
        **settings,
    }
    return Consumer("t", bootstrap_servers=broker.bootstrap_servers, **given)


async def until_shared(*consumers: Consumer) -> None:
    """Poll until each has a partition, and the group is stable."""
    async with asyncio.timeout(600):
        while True:
            await asyncio.gather(*(each.getmany(timeout_ms=500) for each in consumers))
            shares = [len(each.assignment()) for each in consumers]
            is_stable = all(each.state.status == "reading" for each in consumers)
            if is_stable and all(shares) and sum(shares) == 2:
                return


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_rebalances_are_reported_and_counted(broker: EmbeddedCluster, protocol: str) -> None:
    await fill(broker)
    first, second = Recorder(), Recorder()
    settings = PROTOCOLS[protocol]
    async with consumer_of(broker, first, **settings) as one:
        await until_shared(one)
        assert first.partitions() == [("assigned", (0, 1))]
        alone = one.metrics()["rebalance-total"]
        assert alone == len(first.of(RebalanceDone)) == 1
        async with consumer_of(broker, second, **settings) as two:
            await until_shared(one, two)
            metrics = one.metrics()
            assert metrics["rebalance-total"] == len(first.of(RebalanceDone)) > alone
            assert metrics["rebalance-latency-max"] > 0
            assert metrics["rebalance-latency-total"] == pytest.approx(
                sum(event.latency_s for event in first.of(RebalanceDone)) * 1000
            )
            assert 0 <= metrics["last-rebalance-seconds-ago"] < 60
            kept = next(iter(one.assignment())).partition
    given_up = (0, 1) if protocol == "eager" else (1 - kept,)
    assert first.partitions()[1] == ("revoked", given_up)
    assert second.partitions()[0] == ("assigned", (1 - kept,))
    for recorder in (first, second):
        assert all(event.error is None for event in recorder.of(RebalanceDone))
        assert recorder.partitions()[-1][0] == "revoked", "by close"
        assert recorder.closed == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_rebalance_without_a_change_ends(broker: EmbeddedCluster, protocol: str) -> None:
    """A member that gets no partition has none later, whose time would count from the join."""
    await fill(broker)
    recorders = [Recorder() for _ in range(3)]
    consumers = [consumer_of(broker, each, **PROTOCOLS[protocol]) for each in recorders]
    async with consumers[0], consumers[1], consumers[2]:
        async with asyncio.timeout(600):
            while not all(each.of(RebalanceDone) for each in recorders):
                await asyncio.gather(*(each.getmany(timeout_ms=500) for each in consumers))


async def test_a_group_that_refuses_the_member_is_a_failed_rebalance(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker)
    recorder = Recorder()
    broker.on(ApiKey.JOIN_GROUP, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
    async with consumer_of(broker, recorder, **PROTOCOLS["eager"]) as consumer:
        with pytest.raises(BrokerError):
            await consumer.getmany(timeout_ms=5_000)
        (failed,) = recorder.of(RebalanceDone)
        assert isinstance(failed.error, BrokerError)
        assert consumer.metrics()["failed-rebalance-total"] == 1
        assert consumer.metrics()["rebalance-total"] == 0
        await until_read(consumer)
        assert consumer.metrics()["rebalance-total"] == 1


async def until_read(consumer: Consumer) -> None:
    async with asyncio.timeout(600):
        while not await consumer.getmany(timeout_ms=1_000):
            pass


async def test_partitions_that_others_may_have_are_counted_as_lost(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    limits = {"max_poll_interval_ms": 6_000, "session_timeout_ms": 6_000}
    async with consumer_of(broker, recorder, **PROTOCOLS["eager"], **limits) as consumer:
        await until_read(consumer)
        await asyncio.sleep(7)
        await consumer.getmany(timeout_ms=5_000)
        metrics = consumer.metrics()
        assert metrics["partitions-lost-total"] == 2
        assert metrics["time-between-poll-max"] >= 7_000
    assert ("lost", (0, 1)) in recorder.partitions()
    assert max(recorder.polls) >= 7


async def test_the_time_in_the_listener_is_reported(broker: EmbeddedCluster) -> None:
    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: object) -> None:
            await asyncio.sleep(3)

    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder) as consumer:
        await consumer.unsubscribe()
        consumer.subscribe(["t"], listener=Slow())
        await until_read(consumer)
    (assigned,) = [each for each in recorder.of(PartitionsChanged) if each.event == "assigned"]
    assert assigned.listener_s == pytest.approx(3, abs=0.1)


async def test_commits_are_reported_with_their_outcome(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder) as consumer:
        await until_read(consumer)
        await consumer.commit({ZERO: 1})
        broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
        with pytest.raises(BrokerError):
            await consumer.commit({ZERO: 2})
        await consumer.commit_async({ZERO: 3, ONE: 3})
        metrics = consumer.metrics()
        assert (metrics["commit-total"], metrics["commit-error-total"]) == (2, 1)
        assert metrics["commit-latency-max"] >= metrics["commit-latency-avg"] > 0
    done = recorder.of(CommitDone)
    assert [{tp.partition: at.offset for tp, at in each.offsets.items()} for each in done] == [
        {0: 1},
        {0: 2},
        {0: 3, 1: 3},
    ]
    assert [each.error is None for each in done] == [True, False, True]
    assert isinstance(done[1].error, BrokerError)


async def test_polls_and_records_are_reported(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder) as consumer:
        await until_read(consumer)
        recorder.polls.clear()
        await asyncio.sleep(2)
        await consumer.getmany(timeout_ms=100)
        assert recorder.polls[0] == pytest.approx(2, abs=0.1)
        assert consumer.metrics()["last-poll-seconds-ago"] < 1
        read = consumer.metrics()["records-consumed-total"]
    assert sum(event.records for event in recorder.of(RecordsReturned)) == read
    assert {event.partition for event in recorder.of(RecordsReturned)} <= {0, 1}
    assert all(event.api == "Fetch" for event in recorder.of(RequestDone))
    assert recorder.of(RequestDone)


async def test_records_that_are_taken_one_by_one_are_reported(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder, group_id=None) as consumer:
        read = 0
        async for _ in consumer:
            read += 1
            if read == 6:
                break
        consumer.metrics()
        assert recorder.consumer is not None and recorder.consumer.group_id is None
    assert sum(event.records for event in recorder.of(RecordsReturned)) == 6


async def test_lag_is_known_between_two_records_of_a_list(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder, group_id=None) as consumer:
        record = await consumer.getone(timeout_ms=5_000)
        assert recorder.consumer is not None
        tp = TopicPartition("t", record.partition)
        measured = recorder.consumer.metrics_by_partition()[tp]
        assert measured == {"paused": 0, "stalled": 0, "records-lag": 2, "records-lead": 1}
        assert consumer.lag(tp) == 2
        consumer.pause(tp)
        assert recorder.consumer.metrics_by_partition()[tp]["paused"] == 1


async def test_a_stall_is_reported_with_its_reason_and_its_end(broker: EmbeddedCluster) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder, stall_timeout_ms=2_000) as consumer:
        await consumer.getmany(1, timeout_ms=5_000)
        consumer.pause(*consumer.assignment())
        await asyncio.sleep(4)
        stalls = recorder.of(StallChanged)
        assert {event.partition for event in stalls} == {ZERO, ONE}
        assert recorder.consumer is not None
        assert recorder.consumer.metrics_by_partition()[ZERO]["stalled"] == 1
        for event in stalls:
            assert (event.reason, event.is_over) == ("it is paused", False)
            assert event.seconds >= 2
        consumer.resume(*consumer.assignment())
        await until_read(consumer)
        await asyncio.sleep(2)
        over = recorder.of(StallChanged)[2:]
        assert {event.partition for event in over if event.is_over} == {ZERO, ONE}
        assert recorder.consumer.metrics_by_partition()[ZERO]["stalled"] == 0


async def test_a_start_that_fails_is_reported_once(unused_tcp_port: int) -> None:
    recorder = Recorder()
    consumer = Consumer(
        "t",
        bootstrap_servers=f"127.0.0.1:{unused_tcp_port}",
        default_api_timeout_ms=100,
        observers=[recorder],
    )
    for _ in range(2):
        with pytest.raises(BrokerConnectionError):
            await consumer.start()
    await consumer.close()
    assert recorder.consumer is not None and recorder.closed == 1


async def test_an_unsubscribed_consumer_counts_no_time_of_a_rebalance(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker)
    recorder = Recorder()
    async with consumer_of(broker, recorder, **PROTOCOLS["eager"]) as consumer:
        await consumer.getmany(timeout_ms=0)  # it has begun to join
        await consumer.unsubscribe()
        await asyncio.sleep(100)
        consumer.subscribe(["t"])
        await until_read(consumer)
        assert consumer.metrics()["rebalance-latency-max"] < 50_000
