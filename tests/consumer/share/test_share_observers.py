"""The observers of a share consumer are called for each event, and its metrics count them."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from aioprod import (
    AcknowledgeType,
    BrokerConnectionError,
    BrokerError,
    ErrorCode,
    ShareConsumer,
    ShareConsumerObserver,
    ShareRecord,
    TopicPartition,
)
from aioprod.metrics import (
    AcknowledgementsDone,
    AssignmentChanged,
    ObservedConsumer,
    RecordsDelivered,
    RequestDone,
    ShareConsumerMetrics,
    StallChanged,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, fail
from tests.consumer.share.share_groups import ShareTopic, numbers, reporter_to, take
from tests.loops import has_coarse_clock
from tests.testing.java_client import java_clients

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW
PREFIX = "consumer-share-"
# Metrics that Java's share consumer does not have.
OURS = {
    *(f"acknowledgements-{kind}-total" for kind in ("accept", "release", "reject", "renew")),
    *("poll-total", "poll-wait-time-ns-total"),
    *("assigned-partitions", "stalled-partitions", "records-buffered", "records-in-hand"),
}
# What Java's threads and queues have, and what no client of ours measures.
JAVAS = (
    *("application-event", "background-event", "unsent-requests", "time-between-network-thread"),
    *("io-", "select-", "network-io-", "incoming-byte-", "outgoing-byte-", "iotime-", "io-wait"),
    *("request-", "response-", "reauthentication-", "successful-", "failed-"),
)
JAVAS_CONNECTIONS = {"connection-close-rate", "connection-count"}


class Recorder(ShareConsumerObserver):
    """Notes everything."""

    def __init__(self) -> None:
        self.consumer: ObservedConsumer | None = None
        self.polls: list[float] = []
        self.events: list[Any] = []
        self.connections: Counter[bool] = Counter()
        self.closed = 0

    def on_start(self, consumer: ObservedConsumer) -> None:
        assert self.consumer is None, "once"
        self.consumer = consumer

    def on_request(self, event: RequestDone) -> None:
        self.events.append(event)

    def on_poll(self, interval_s: float) -> None:
        self.polls.append(interval_s)

    def on_records(self, event: RecordsDelivered) -> None:
        self.events.append(event)

    def on_acknowledged(self, event: AcknowledgementsDone) -> None:
        self.events.append(event)

    def on_assignment(self, event: AssignmentChanged) -> None:
        self.events.append(event)

    def on_stall(self, event: StallChanged) -> None:
        self.events.append(event)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self.connections[opened] += 1

    def close(self) -> None:
        self.closed += 1

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def numbers(self) -> Counter[tuple[AcknowledgeType, bool]]:
        """The acknowledgements by type, and whether they were confirmed."""
        found: Counter[tuple[AcknowledgeType, bool]] = Counter()
        for event in self.of(AcknowledgementsDone):
            for kind, number in event.numbers.items():
                found[kind, event.error is None] += number
        return found


@pytest.fixture
async def topic(broker: EmbeddedCluster) -> ShareTopic:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create(partitions=2)
    return topic


@pytest.mark.virtual_time
async def test_records_and_acknowledgements_are_reported_and_counted(topic: ShareTopic) -> None:
    recorder = Recorder()
    for partition in (0, 1):
        await topic.write(range(6), partition)
    async with topic.consumer(**EXPLICIT, observers=[recorder]) as consumer:
        records = await take(consumer, 12)
        assert consumer.metrics()["records-in-hand"] == 12
        for record, kind in zip(records, itertools.cycle([ACCEPT, RELEASE, REJECT]), strict=False):
            consumer.acknowledge(record, kind)
        again = await take(consumer, 4)
        consumer.acknowledge(again[0], RENEW)
        await consumer.commit()
        for record in again:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}
        metrics = consumer.metrics()
        by_topic = consumer.metrics_by_topic()[topic.topic]
    delivered = [record for event in recorder.of(RecordsDelivered) for record in event.records]
    assert [*records, *again] == delivered
    assert {type(record) for record in delivered} == {ShareRecord}
    assert all(
        (record.topic, record.partition) == event[:2]
        for event in recorder.of(RecordsDelivered)
        for record in event.records
    )
    assert recorder.numbers() == {
        (ACCEPT, True): 8,
        (RELEASE, True): 4,
        (REJECT, True): 4,
        (RENEW, True): 1,
    }
    expected = {
        "records-consumed-total": 16,
        "acknowledgements-send-total": 17,
        "acknowledgements-error-total": 0,
        "acknowledgements-accept-total": 8,
        "acknowledgements-release-total": 4,
        "acknowledgements-reject-total": 4,
        "acknowledgements-renew-total": 1,
        "records-in-hand": 0,
        "records-buffered": 0,
        "assigned-partitions": 2,
        "rebalance-total": 1,
        "fetch-throttle-time-max": 0,
    }
    assert {name: metrics[name] for name in expected} == expected
    assert by_topic["records-consumed-total"] == 16
    assert by_topic["bytes-consumed-total"] == metrics["bytes-consumed-total"] > 0
    fetches = [each for each in recorder.of(RequestDone) if each.api == "ShareFetch"]
    assert {each.api for each in recorder.of(RequestDone)} == {"ShareFetch", "ShareAcknowledge"}
    assert metrics["fetch-total"] == len(fetches) >= 2
    assert metrics["fetch-latency-max"] >= metrics["fetch-latency-avg"] > 0
    assert metrics["records-per-request-max"] >= 6
    assert metrics["bytes-consumed-total"] >= metrics["fetch-size-max"] > 0
    assert metrics["heartbeat-total"] >= 1
    assert metrics["heartbeat-response-time-max"] > 0 or has_coarse_clock()
    assert 0 <= metrics["last-heartbeat-seconds-ago"] < 60
    assert recorder.connections[True] == metrics["connection-creation-total"] >= 2
    assert recorder.closed == 1


@pytest.mark.virtual_time
async def test_assignments_are_reported(topic: ShareTopic) -> None:
    recorder = Recorder()
    zero, one = (TopicPartition(topic.topic, number) for number in (0, 1))
    async with topic.consumer(observers=[recorder]) as consumer:
        await consumer.getmany(timeout_ms=2_000)
        (event,) = recorder.of(AssignmentChanged)
        assert event == AssignmentChanged((zero, one), (zero, one), ())
        assert list(consumer.metrics_by_partition()) == [zero, one]
        await consumer.unsubscribe()
        assert recorder.of(AssignmentChanged)[1:] == [AssignmentChanged((), (), (zero, one))]
        consumer.subscribe([topic.topic])
        await consumer.getmany(timeout_ms=2_000)
        assert consumer.metrics()["rebalance-total"] == 2
        assert consumer.metrics()["rebalance-rate-per-hour"] > 0
    assert recorder.of(AssignmentChanged)[-1].removed == (zero, one), "by close"


@pytest.mark.virtual_time
async def test_records_that_are_fetched_and_not_returned_are_counted(topic: ShareTopic) -> None:
    await topic.write(range(10))
    async with topic.consumer() as consumer:
        assert len(await take(consumer, 3, max_records=3)) == 3
        assert consumer.metrics()["records-buffered"] == 7
        measured = consumer.metrics_by_partition()[TopicPartition(topic.topic, 0)]
        assert measured["records-buffered"] == 7
        assert consumer.metrics()["records-in-hand"] == 3


@pytest.mark.virtual_time
async def test_acknowledgements_that_fail_are_reported_with_the_error(topic: ShareTopic) -> None:
    recorder = Recorder()
    await topic.write(range(3))
    async with topic.consumer(**EXPLICIT, observers=[recorder]) as consumer:
        records = await take(consumer, 3)
        await asyncio.sleep(40)  # longer than their lock
        for record in records[:2]:
            consumer.acknowledge(record)
        consumer.acknowledge(records[2], REJECT)
        (error,) = (await consumer.commit()).values()
        assert isinstance(error, BrokerError)
        (event,) = recorder.of(AcknowledgementsDone)
        assert event.numbers == {ACCEPT: 2, REJECT: 1}
        assert event.error.code is ErrorCode.INVALID_RECORD_STATE
        assert event.error is not error
        metrics = consumer.metrics()
    assert metrics["acknowledgements-error-total"] == 3
    assert metrics["acknowledgements-error-rate"] > 0
    assert metrics["acknowledgements-accept-total"] == 0


@pytest.mark.virtual_time
async def test_polls_and_waits_are_reported_and_counted(topic: ShareTopic) -> None:
    recorder = Recorder()
    await topic.write(range(3))
    async with topic.consumer(observers=[recorder]) as consumer:
        assert consumer.metrics()["last-poll-seconds-ago"] == -1
        await take(consumer, 3)
        recorder.polls.clear()
        await asyncio.sleep(8)
        await consumer.getmany(timeout_ms=2_000)
        metrics = consumer.metrics()
    assert recorder.polls[0] == pytest.approx(8, abs=0.1)
    assert metrics["time-between-poll-max"] == pytest.approx(8_000, abs=100)
    assert metrics["last-poll-seconds-ago"] < 3
    assert 0 < metrics["poll-idle-ratio-avg"] < 1
    assert metrics["poll-wait-time-ns-total"] >= 2e9


@pytest.mark.virtual_time
async def test_failed_requests_are_reported(broker: EmbeddedCluster, topic: ShareTopic) -> None:
    recorder = Recorder()
    await topic.write(range(3))
    async with topic.consumer(observers=[recorder]) as consumer:
        await take(consumer, 3)
        connection = consumer._core._requests._brokers.live(broker.leader(topic.topic, 0))
        assert connection is not None
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=5_000))
        await asyncio.sleep(0.05)
        before = consumer.metrics()["fetch-total"]
        connection.abort(BrokerConnectionError("cut by the test"))
        again = await waiting  # the implicit acceptance was lost with the connection
        assert numbers(again) in ([], [0, 1, 2])
        failed = [each for each in recorder.of(RequestDone) if each.error is not None]
        assert failed and isinstance(failed[0].error, BrokerConnectionError)
        assert consumer.metrics()["fetch-total"] > before
        assert consumer.metrics()["connection-close-total"] >= 1


@pytest.mark.virtual_time
async def test_a_start_that_fails_is_reported_once(unused_tcp_port: int) -> None:
    recorder = Recorder()
    consumer = ShareConsumer(
        f"127.0.0.1:{unused_tcp_port}",
        group_id="g",
        default_api_timeout_ms=100,
        observers=[recorder],
    )
    for _ in range(2):
        with pytest.raises(BrokerConnectionError):
            await consumer.start()
    await consumer.close()
    assert recorder.consumer is not None and recorder.closed == 1
    assert recorder.consumer.group_id == "g"


@pytest.mark.virtual_time
async def test_numbers_of_topics_end_with_the_subscription(topic: ShareTopic) -> None:
    await topic.write(range(3))
    async with topic.consumer() as consumer:
        await take(consumer, 3)
        assert set(consumer.metrics_by_topic()) == {topic.topic}
        await consumer.unsubscribe()
        assert consumer.metrics_by_topic() == {}
        assert consumer.metrics()["records-consumed-total"] == 3


@pytest.mark.virtual_time
async def test_throttling_is_counted() -> None:
    metrics = ShareConsumerMetrics()
    reporter = reporter_to(metrics=metrics)
    reporter.fetched(1, 0.5, 100, 10, 0)
    reporter.fetched(1, 0.5, 300, 30, 200)
    now = asyncio.get_running_loop().time()
    measured = metrics.snapshot(now, {})
    assert (measured["fetch-throttle-time-avg"], measured["fetch-throttle-time-max"]) == (100, 200)
    assert (measured["records-per-request-avg"], measured["records-per-request-max"]) == (20, 30)
    assert measured["fetch-size-max"] == 300
    assert metrics.snapshot_by_node(now)[1]["response-total"] == 2


@pytest.mark.virtual_time
async def test_a_refused_member_is_not_a_rebalance(
    broker: EmbeddedCluster, topic: ShareTopic
) -> None:
    recorder = Recorder()
    refusal = fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker.on(ApiKey.SHARE_GROUP_HEARTBEAT, refusal, times=1)
    async with topic.consumer(observers=[recorder]) as consumer:
        with pytest.raises(BrokerError):
            await consumer.getmany(timeout_ms=5_000)
        assert consumer.metrics()["rebalance-total"] == 0
        assert recorder.of(AssignmentChanged) == []
        await consumer.getmany(timeout_ms=2_000)
        assert consumer.metrics()["rebalance-total"] == 1


def test_no_event_is_made_if_no_observer_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(ShareConsumerObserver):
        def on_start(self, consumer: ObservedConsumer) -> None: ...

    for name in ("RecordsDelivered", "AcknowledgementsDone"):
        monkeypatch.delattr(f"aioprod.consumer.share.reporting.{name}")

    async def report() -> None:
        metrics = ShareConsumerMetrics()
        reporter = reporter_to(Deaf(), metrics=metrics)
        tp = TopicPartition("t", 0)
        reporter.records_returned(tp, [object(), object()], 1.0)  # type: ignore[list-item]
        reporter.acknowledged(tp, {1: ACCEPT, 2: RELEASE}, 0.0, None)
        measured = metrics.snapshot(asyncio.get_running_loop().time(), {})
        assert measured["records-consumed-total"] == 2
        assert measured["acknowledgements-release-total"] == 1

    asyncio.run(report())


@pytest.mark.kafka
def test_names_are_those_of_java() -> None:
    with java_clients() as java:
        consumer = java.share_consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        names = {(each.group(), each.name()) for each in consumer.metrics().keySet().iterator()}
        consumer.close(java.seconds(0))
    shares = {name for group, name in names if group.startswith(PREFIX)}
    connections = {name for group, name in names if group == "consumer-metrics"}
    ours = ShareConsumer("127.0.0.1:1", group_id="g").metrics().keys()
    assert ours - shares - connections == OURS
    assert {name for name in shares - ours if not name.startswith(JAVAS)} == set()
    assert {name for name in connections - ours if not name.startswith(JAVAS)} == JAVAS_CONNECTIONS


@pytest.mark.virtual_time
async def test_the_latency_of_acknowledgements_has_their_retries(
    topic: ShareTopic, broker: EmbeddedCluster
) -> None:
    recorder = Recorder()
    await topic.write(range(2))
    async with topic.consumer(**EXPLICIT, observers=[recorder]) as consumer:
        first, second = await take(consumer, 2)
        broker.on(
            ApiKey.SHARE_ACKNOWLEDGE,
            delay(1),
            fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, topic=topic.topic),
            times=2,
        )
        consumer.acknowledge(first)
        await consumer.commit()
        broker.on(ApiKey.SHARE_ACKNOWLEDGE, fail(ErrorCode.INVALID_RECORD_STATE))
        consumer.acknowledge(second)
        await consumer.commit()
    late, refused = recorder.of(AcknowledgementsDone)
    assert 2 <= late.latency_s < 3
    assert late.error is None
    assert 0 <= refused.latency_s < 1
    assert refused.error is not None
