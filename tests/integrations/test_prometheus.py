"""Prometheus: what a scrape sees of producers, by client id, and that nothing stays behind when
they close.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioprod import Producer
from aioprod.integrations import prometheus
from aioprod.integrations.prometheus import PrometheusObserver
from aioprod.metrics import (
    BatchDone,
    ObservedProducer,
    ProducerMetrics,
    ProducerObservers,
    RequestDone,
)
from aioprod.testing import EmbeddedCluster


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    yield CollectorRegistry(auto_describe=True)


def observed(metrics: ProducerMetrics, client_id: str = "shop") -> ObservedProducer:
    return ObservedProducer(
        client_id,
        lambda: metrics.snapshot(1.0, {"buffer-available-bytes": 123.0}),
        lambda: metrics.snapshot_by_topic(1.0),
        lambda: metrics.snapshot_by_node(1.0),
    )


def busy() -> ProducerMetrics:
    metrics = ProducerMetrics()
    metrics.batch_sent("orders", 10, 500, 1_000, 0.002, 1.0)
    metrics.request_sent(7, 10, 500, 1.0)
    metrics.request_done(7, 0.020, 1.0)
    return metrics


def started(
    registry: CollectorRegistry, client_id: str = "shop", topics: bool = True, nodes: bool = True
) -> PrometheusObserver:
    observer = PrometheusObserver(registry, topics=topics, nodes=nodes)
    observer.on_start(observed(busy(), client_id))
    return observer


def names(registry: CollectorRegistry) -> set[str]:
    return {family.name for family in registry.collect()}


def test_a_scrape_sees_kafkas_metrics_under_prometheus_names(registry: CollectorRegistry) -> None:
    started(registry)
    of_client = {"client_id": "shop"}
    assert registry.get_sample_value("kafka_producer_record_send_total", of_client) == 10
    assert registry.get_sample_value("kafka_producer_batch_size_avg", of_client) == 500
    assert registry.get_sample_value("kafka_producer_buffer_available_bytes", of_client) == 123
    assert (
        registry.get_sample_value(
            "kafka_producer_topic_byte_total", of_client | {"topic": "orders"}
        )
        == 500
    )
    assert registry.get_sample_value(
        "kafka_producer_node_request_latency_avg", of_client | {"node_id": "7"}
    ) == pytest.approx(20)
    kinds = {family.name: family.type for family in registry.collect()}
    assert (kinds["kafka_producer_record_send"], kinds["kafka_producer_record_send_rate"]) == (
        "counter",
        "gauge",
    )


def test_a_scrape_sees_the_moment_and_not_what_was_at_the_start(
    registry: CollectorRegistry,
) -> None:
    metrics = ProducerMetrics()
    PrometheusObserver(registry).on_start(observed(metrics))
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "shop"}) == 0
    metrics.batch_sent("orders", 3, 1, 1, 0.0, 1.0)
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "shop"}) == 3


def test_batches_and_requests_make_histograms(registry: CollectorRegistry) -> None:
    observer = started(registry)
    observer.on_batch_done(BatchDone("orders", 0, 10, 500, 1, 0.002, 0.02, None))
    observer.on_batch_done(BatchDone("orders", 0, 10, 70_000, 1, 0.002, 300.0, None))
    observer.on_request(RequestDone(7, "Produce", 0.003, None))
    of_client = {"client_id": "shop"}
    assert (
        registry.get_sample_value(
            "kafka_producer_delivery_seconds_bucket", of_client | {"le": "0.025"}
        )
        == 1
    )
    assert registry.get_sample_value("kafka_producer_delivery_seconds_count", of_client) == 2
    assert registry.get_sample_value("kafka_producer_batch_bytes_sum", of_client) == 70_500
    assert registry.get_sample_value(
        "kafka_producer_request_seconds_sum", of_client
    ) == pytest.approx(0.003)


def test_several_producers_share_a_registry_and_have_their_own_labels(
    registry: CollectorRegistry,
) -> None:
    observers = [started(registry, client_id) for client_id in ("a", "b", "b")]
    page = generate_latest(registry).decode()
    (family,) = [
        family
        for family in text_string_to_metric_families(page)
        if family.name == "kafka_producer_record_send"
    ]
    assert sorted(sample.labels["client_id"] for sample in family.samples) == ["a", "b", "b-2"]
    observers[1].close()
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "b"}) is None
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "b-2"}) == 10


def test_closing_takes_everything_out(registry: CollectorRegistry) -> None:
    first, second = started(registry, "a"), started(registry, "b")
    first.on_request(RequestDone(7, "Produce", 0.003, None))
    first.close()
    assert (
        registry.get_sample_value("kafka_producer_request_seconds_count", {"client_id": "a"})
        is None
    )
    assert (
        registry.get_sample_value("kafka_producer_request_seconds_count", {"client_id": "b"}) == 0
    )
    second.close()
    second.close()
    assert names(registry) == set()
    started(registry, "a").close()
    assert names(registry) == set()


def test_a_registry_is_not_kept_alive() -> None:
    registry = CollectorRegistry()
    started(registry)
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None
    assert not [key for key in prometheus._BY_REGISTRY if key is None]


def test_topics_and_nodes_may_be_left_out(registry: CollectorRegistry) -> None:
    started(registry, topics=False, nodes=False)
    assert "kafka_producer_record_send" in names(registry)
    assert not [
        name
        for name in names(registry)
        if name.startswith(("kafka_producer_topic", "kafka_producer_node"))
    ]


def test_a_scrape_may_ask_for_one_name(registry: CollectorRegistry) -> None:
    metrics = ProducerMetrics()
    PrometheusObserver(registry).on_start(observed(metrics))
    metrics.batch_sent("orders", 10, 500, 1_000, 0.002, 1.0)
    for name in (
        "kafka_producer_batch_size_avg",
        "kafka_producer_topic_byte_rate",
        "kafka_producer_buffer_available_bytes",
    ):
        assert [family.name for family in registry.restricted_registry([name]).collect()] == [name]


def test_one_observer_for_two_producers_is_refused(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    observer = PrometheusObserver(registry)
    ProducerObservers([observer]).start(observed(busy()))
    ProducerObservers([observer]).start(observed(busy(), "other"))
    assert "make one for each" in caplog.text
    assert (
        registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "other"})
        is None
    )


def test_a_name_that_somebody_else_uses_is_refused_and_nothing_stays_behind(
    registry: CollectorRegistry,
) -> None:
    from prometheus_client import Gauge

    Gauge("kafka_producer_batch_size_avg", "mine", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        started(registry)
    assert names(registry) == {"kafka_producer_batch_size_avg"}
    assert registry not in prometheus._BY_REGISTRY


async def test_a_producer_is_scraped_as_long_as_it_runs(
    registry: CollectorRegistry, broker: EmbeddedCluster
) -> None:
    observer = PrometheusObserver(registry)
    async with Producer(
        broker.bootstrap_servers, client_id="shop", observers=[observer]
    ) as producer:
        await producer.send_and_wait("orders", b"x")
        page = (await asyncio.to_thread(generate_latest, registry)).decode()
        assert 'kafka_producer_record_acknowledged_total{client_id="shop"} 1.0' in page
        assert 'kafka_producer_topic_byte_total{client_id="shop",topic="orders"}' in page
        assert 'kafka_producer_node_request_total{client_id="shop",node_id="1"} 1.0' in page
        assert 'kafka_producer_delivery_seconds_count{client_id="shop"} 1.0' in page
        assert 'kafka_producer_buffer_available_bytes{client_id="shop"} 3.3554432e+07' in page
        metrics = producer.metrics()
    assert all(f"kafka_producer_{name.replace('-', '_')}" in page for name in metrics)
    assert names(registry) == set()
