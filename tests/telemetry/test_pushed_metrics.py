"""A subscription selects metrics, and a push reports the right part of each sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aioprod.metrics import telemetry
from aioprod.metrics.consumer import ConsumerMetrics
from aioprod.metrics.consumer_observers import ObservedConsumer
from aioprod.metrics.producer import ProducerMetrics
from aioprod.metrics.share_consumer import ShareConsumerMetrics
from aioprod.metrics.telemetry import (
    Ledger,
    MetricValue,
    Selection,
    consumer_telemetry,
    producer_telemetry,
    share_consumer_telemetry,
)
from aioprod.types import AcknowledgeType, TopicPartition

ALL = Selection(("*",))
ROOT = "org.apache.kafka."
BEGAN = 1_000
SENT = MetricValue(f"{ROOT}producer.record.send.total", 10.0)
# The metrics that KIP-714 requires of each client.
REQUIRED_OF_PRODUCERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "produce.throttle.time.avg",
    "produce.throttle.time.max",
    "record.queue.time.avg",
    "record.queue.time.max",
}
REQUIRED_OF_CONSUMERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "poll.idle.ratio.avg",
    "coordinator.commit.latency.avg",
    "coordinator.commit.latency.max",
    "coordinator.assigned.partitions",
    "coordinator.rebalance.latency.avg",
    "coordinator.rebalance.latency.max",
    "coordinator.rebalance.latency.total",
    "fetch.manager.fetch.latency.avg",
    "fetch.manager.fetch.latency.max",
}


def counted(
    ledger: Ledger, *measured: MetricValue, delta: bool = True
) -> list[tuple[float, int | None]]:
    return [ledger.count(measurement, delta=delta) for measurement in measured]


@pytest.mark.parametrize(
    ("prefixes", "selected"),
    [
        ((), False),
        (("*",), True),
        (("",), True),
        (("other", "*"), True),
        ((SENT.name,), True),
        (("org.apache.kafka.producer.",), True),
        (("org.apache.kafka.consumer.", "org.apache.kafka.producer.record"), True),
        (("org.apache.kafka.producer.records",), False),
        (("producer",), False),
    ],
)
def test_metrics_are_selected_by_prefix(prefixes: tuple[str, ...], selected: bool) -> None:
    assert Selection(prefixes).has(SENT.name) is selected
    assert list(of_producer(Selection(prefixes))) == [
        each for each in of_producer(ALL) if Selection(prefixes).has(each.name)
    ]


def of_producer(wanted: Selection) -> Iterator[MetricValue]:
    metrics = ProducerMetrics()
    metrics.batch_sent("orders", 3, 100, 200, 0.5, now=1.0)
    metrics.request_sent(7, 3, 130, now=1.0)
    metrics.request_done(7, 0.25, now=1.25)
    return producer_telemetry(
        wanted,
        lambda: metrics.snapshot(2.0),
        lambda: metrics.snapshot_by_node(2.0),
        lambda: metrics.each_topic(2.0),
    )


def consumer() -> ObservedConsumer:
    metrics = ConsumerMetrics()
    metrics.polled(1.0)
    metrics.waited(1.5, now=2.5)
    metrics.polled(4.0)
    metrics.fetched(7, 0.25, now=2.5)
    metrics.records_returned("orders", 3, now=2.5)
    metrics.connection_changed(True, 1.0)
    return ObservedConsumer(
        "c",
        "g",
        lambda: metrics.snapshot(5.0, {"assigned-partitions": 1.0}),
        lambda: metrics.snapshot_by_topic(5.0),
        lambda: {TopicPartition("orders", 0): {"records-lag": 4.0, "paused": 0.0}},
        lambda: metrics.snapshot_by_node(5.0),
    )


def test_a_producer_has_what_the_kip_requires() -> None:
    measured = {each.name.removeprefix(f"{ROOT}producer."): each for each in of_producer(ALL)}
    assert measured.keys() >= REQUIRED_OF_PRODUCERS
    assert measured["record.queue.time.avg"].value == 500
    assert measured["node.request.latency.max"][1:] == (250.0, (("node_id", "node-7"),))
    assert measured["topic.record.send.total"][1:] == (3.0, (("topic", "orders"),))
    assert not any("acknowledged" in name for name in measured)


def test_a_consumer_has_what_the_kip_requires() -> None:
    measured = {
        (each.name.removeprefix(f"{ROOT}consumer."), each.labels): each.value
        for each in consumer_telemetry(consumer(), ALL)
    }
    assert {name for name, _ in measured} >= REQUIRED_OF_CONSUMERS
    assert measured["poll.idle.ratio.avg", ()] == 0.5
    assert measured["connection.creation.total", ()] == 1
    assert measured["connection.creation.rate", ()] > 0
    assert measured["coordinator.assigned.partitions", ()] == 1
    by_node = (("node_id", "node-7"),)
    assert measured["node.request.latency.avg", by_node] == 250
    assert measured["node.response.total", by_node] == 1
    by_topic = (("topic", "orders"),)
    assert measured["fetch.manager.records.consumed.total", by_topic] == 3
    assert measured["fetch.manager.records.lag", (*by_topic, ("partition", "0"))] == 4
    assert not any("paused" in name for name, _ in measured)


def test_a_share_consumer_has_those_of_javas() -> None:
    metrics = ShareConsumerMetrics()
    metrics.polled(1.0)
    metrics.fetched(7, 0.25, now=2.5)
    metrics.response_came(100, 3, 0, now=2.5)
    metrics.acknowledgements_sent(3, now=2.5)
    metrics.acknowledged({AcknowledgeType.ACCEPT: 3}, failed=False, now=2.5)
    metrics.records_returned("orders", 3, now=2.5)
    observed = ObservedConsumer(
        "c",
        "g",
        lambda: metrics.snapshot(5.0, {"assigned-partitions": 1.0}),
        lambda: metrics.snapshot_by_topic(5.0),
        lambda: {TopicPartition("orders", 0): {"records-buffered": 4.0}},
        lambda: metrics.snapshot_by_node(5.0),
    )
    measured = {
        (each.name.removeprefix(f"{ROOT}consumer."), each.labels): each.value
        for each in share_consumer_telemetry(observed, ALL)
    }
    assert measured["share.fetch.manager.acknowledgements.send.total", ()] == 3
    assert measured["share.fetch.manager.records.per.request.max", ()] == 3
    assert measured["share.last.poll.seconds.ago", ()] == 4
    assert measured["share.coordinator.rebalance.total", ()] == 0
    assert measured["connection.creation.total", ()] == 0
    assert measured["node.request.latency.max", (("node_id", "node-7"),)] == 250
    assert not any("accept" in name or "buffered" in name for name, _ in measured)
    assert {labels for _, labels in measured} == {(), (("node_id", "node-7"),)}
    wanted = Selection((f"{ROOT}producer.",))
    assert list(share_consumer_telemetry(observed, wanted)) == []


def test_metrics_that_are_not_asked_for_are_not_computed() -> None:
    def fails() -> Any:
        raise AssertionError("not asked for")

    wanted = Selection((f"{ROOT}consumer.",))
    assert list(producer_telemetry(wanted, fails, fails, fails)) == []
    wanted = Selection((f"{ROOT}producer.record.", f"{ROOT}producer.node."))
    assert list(producer_telemetry(wanted, dict, dict, fails)) == []


def test_topics_are_computed_one_after_another() -> None:
    metrics = ProducerMetrics()
    for topic in "abc":
        metrics.batch_sent(topic, 1, 100, 100, 0.5, now=1.0)
    each = metrics.each_topic(2.0)
    assert next(each)[0] == "a"
    metrics.batch_sent("d", 1, 100, 100, 0.5, now=2.0)  # the dictionary may change meanwhile
    assert [topic for topic, _ in each] == ["b", "c"]


def test_metrics_of_a_broker_that_is_not_read_from_are_dropped() -> None:
    metrics = ConsumerMetrics()
    metrics.fetched(1, 0.1, now=0.0)
    metrics.fetched(2, 0.1, now=5_000.0)
    assert metrics.snapshot_by_node(5_001.0).keys() == {2}
    metrics.fetched(2, 0.1, now=10_000.0)
    assert metrics.snapshot_by_node(0.0).keys() == {2}


class TestLedger:
    def test_a_delta_counts_since_the_last_acknowledged_push(self) -> None:
        ledger = Ledger(BEGAN)
        assert counted(ledger, SENT) == [(10, BEGAN)]
        more = SENT._replace(value=15.0)
        assert counted(ledger, more) == [(15, BEGAN)]  # nothing was acknowledged
        ledger.acknowledged([more], 2_000)
        assert counted(ledger, more) == [(0, 2_000)]
        assert counted(ledger, SENT._replace(value=18.0)) == [(3, 2_000)]

    def test_a_cumulative_sum_counts_since_the_client_was_made(self) -> None:
        ledger = Ledger(BEGAN)
        ledger.acknowledged([SENT], 2_000)
        assert counted(ledger, SENT._replace(value=15.0), delta=False) == [(15, BEGAN)]

    def test_a_gauge_is_reported_as_it_is(self) -> None:
        gauge = MetricValue(f"{ROOT}producer.record.send.rate", 4.0)
        ledger = Ledger(BEGAN)
        ledger.acknowledged([gauge], 2_000)
        assert counted(ledger, gauge) == [(4, None)]

    @pytest.mark.parametrize("delta", [True, False])
    def test_a_sum_that_begins_again_counts_since_the_last_push(self, delta: bool) -> None:
        ledger = Ledger(BEGAN)
        ledger.acknowledged([SENT], 2_000)
        assert counted(ledger, SENT._replace(value=4.0), delta=delta) == [(4, 2_000)]

    def test_values_with_other_labels_are_counted_apart(self) -> None:
        ledger = Ledger(BEGAN)
        one, other = (SENT._replace(labels=(("topic", topic),)) for topic in "ab")
        ledger.acknowledged([one], 2_000)
        assert counted(ledger, one, other) == [(0, 2_000), (10, BEGAN)]

    def test_sums_that_are_gone_are_forgotten_and_those_not_asked_for_are_kept(self) -> None:
        ledger = Ledger(BEGAN)
        gone = MetricValue(f"{ROOT}producer.topic.byte.total", 5.0, (("topic", "t"),))
        unwanted = MetricValue(f"{ROOT}producer.request.total", 5.0)
        ledger.acknowledged([SENT, gone, unwanted], 2_000)
        ledger.keep([SENT], Selection((SENT.name, gone.name)))
        assert counted(ledger, SENT, gone, unwanted) == [(0, 2_000), (5, BEGAN), (0, 2_000)]

    def test_the_number_of_sums_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(telemetry, "MAX_KNOWN", 2)
        ledger = Ledger(BEGAN)
        measured = [SENT._replace(labels=(("topic", topic),)) for topic in "abc"]
        for number, measurement in enumerate(measured):
            ledger.acknowledged([measurement], 2_000 + number)
        ledger.trim()
        assert counted(ledger, *measured) == [(10, BEGAN), (0, 2_001), (0, 2_002)]
