"""Prometheus: what a scrape sees of producers, by client id, and that nothing stays behind when
they close.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioprod import Admin, Consumer, Producer
from aioprod.admin import ConfigResource
from aioprod.integrations.prometheus import (
    PrometheusConsumerObserver,
    PrometheusObserver,
    PrometheusProcessorObserver,
    collector,
)
from aioprod.metrics import (
    BatchDone,
    ObservedProducer,
    ProducerMetrics,
    ProducerObservers,
    RequestDone,
)
from aioprod.processing import Processor, ShareProcessor
from aioprod.testing import EmbeddedCluster
from tests.integrations.metrics_of_clients import Raw, at_work, of_processor
from tests.waiting import until


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


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
    assert not [key for key in collector._BY_REGISTRY if key is None]


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


def test_a_name_that_is_in_use_is_refused_and_nothing_is_left(
    registry: CollectorRegistry,
) -> None:
    from prometheus_client import Gauge

    Gauge("kafka_producer_batch_size_avg", "mine", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        started(registry)
    assert names(registry) == {"kafka_producer_batch_size_avg"}
    assert registry not in collector._BY_REGISTRY


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


# -- consumers and processors ----------------------------------------------------------------------

READER = {"client_id": "reader", "group_id": "audit"}
SHARER = {"client_id": "sharer", "group_id": "mailers"}
WORKER = {"client_id": "worker", "group_id": "billing"}
OUT_0 = {"topic": "out", "partition": "0"}
ORDERS_0 = {"topic": "orders", "partition": "0"}


@pytest.mark.virtual_time
async def test_a_scrape_sees_consumers_and_processors(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    async with at_work(broker, registry):

        def value(name: str, *labels: dict[str, str]) -> float | None:
            joined = {name: text for each in labels for name, text in each.items()}
            return registry.get_sample_value(f"kafka_{name}", joined)

        assert value("consumer_records_consumed_total", READER) == 5
        assert value("consumer_topic_records_consumed_total", READER, {"topic": "out"}) == 5
        assert value("consumer_partition_records_lag", READER, OUT_0) == 0
        assert value("consumer_partition_records_lead", READER, OUT_0) == 5
        assert value("consumer_partition_stalled", READER, OUT_0) == 0
        assert value("consumer_rebalance_total", READER) == 1
        assert value("consumer_rebalance_seconds_count", READER) == 1
        assert value("consumer_commit_total", READER) == 1
        assert value("consumer_commit_seconds_count", READER, {"outcome": "success"}) == 1
        assert (value("consumer_poll_interval_seconds_count", READER) or 0) > 0
        assert (value("consumer_request_seconds_count", READER) or 0) > 0
        assert (value("consumer_connection_creation_total", READER) or 0) > 0
        assert value("share_consumer_records_consumed_total", SHARER) == 5
        assert value("share_consumer_topic_records_consumed_total", SHARER, {"topic": "out"}) == 5
        assert value("share_consumer_acknowledgements_accept_total", SHARER) == 5
        assert value("share_consumer_partition_records_buffered", SHARER, OUT_0) == 0
        assert value("share_consumer_partition_stalled", SHARER, OUT_0) == 0
        assert value("share_consumer_rebalance_total", SHARER) == 1
        assert (value("share_consumer_poll_interval_seconds_count", SHARER) or 0) > 0
        of_fetches = {"api": "ShareFetch"}
        assert (value("share_consumer_request_seconds_count", SHARER, of_fetches) or 0) > 0
        assert value("processor_records_handled_total", WORKER) == 5
        assert value("processor_records_retried_total", WORKER) == 6
        assert value("processor_records_dead_lettered_total", WORKER) == 1
        assert value("processor_handler_errors_total", WORKER) == 7
        assert value("processor_partition_records_lag", WORKER, ORDERS_0) == 0
        assert value("processor_partition_records_in_flight", WORKER, ORDERS_0) == 0
        assert value("processor_longest_call_seconds", WORKER) == 0
        of_calls = [WORKER, {"topic": "orders"}]
        count = "processor_handler_seconds_count"
        assert value(count, *of_calls, {"outcome": "success"}) == 5
        assert value(count, *of_calls, {"outcome": "error"}) == 7
    assert names(registry) == set(), "all have closed"


@pytest.mark.virtual_time
async def test_a_scrape_sees_processors_of_share_groups(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    async def handle(record: Raw) -> None:
        if record.value == b"poison":
            raise ValueError("never")

    for topic in ("orders", "dead"):
        broker.create_topic(topic, 1)
    settings = of_processor(broker, observers=[PrometheusProcessorObserver(registry)])
    del settings["commit_interval_ms"]
    async with Admin(broker.bootstrap_servers) as admin:
        configs = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({ConfigResource.group("billing"): configs})
    async with Producer(broker.bootstrap_servers) as producer:
        for value in (b"1", b"2", b"poison"):
            await producer.send_and_wait("orders", value)
    async with ShareProcessor(handle, "orders", **settings) as processor:
        await until(lambda: processor.metrics()["records-accepted-total"] == 3)
        for name, expected in (
            ("records_handled_total", 2.0),
            ("records_dead_lettered_total", 1.0),
            ("handler_errors_total", 4.0),
            ("records_accepted_total", 3.0),
            ("records_released_total", 1.0),
            ("records_pending", 0.0),
        ):
            assert registry.get_sample_value(f"kafka_processor_{name}", WORKER) == expected, name
        described = {
            family.name
            for clients in collector._BY_REGISTRY[registry].values()
            for family in clients.describe()
        }
        assert names(registry) <= described
    assert names(registry) == set()


@pytest.mark.virtual_time
async def test_a_handler_that_hangs_is_seen(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    called = asyncio.Event()

    async def hang(record: Raw) -> None:
        called.set()
        await asyncio.Event().wait()

    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"x", key=b"same")
    observer = PrometheusProcessorObserver(registry)
    settings = of_processor(broker, observers=[observer], drain_timeout_ms=0)
    async with Processor(hang, "orders", **settings):
        await called.wait()
        of_partition = WORKER | ORDERS_0
        for name, expected in (
            ("processor_records_in_flight", 1.0),
            ("processor_keys_in_flight", 1.0),
        ):
            assert registry.get_sample_value(f"kafka_{name}", WORKER) == expected
        assert (registry.get_sample_value("kafka_processor_longest_call_seconds", WORKER) or 0) > 0
        name = "kafka_processor_partition_records_in_flight"
        assert registry.get_sample_value(name, of_partition) == 1
        await until(lambda: registry.get_sample_value(PENDING, of_partition) == 3)
        assert registry.get_sample_value(LAG, of_partition) == 3


PENDING = "kafka_processor_partition_records_pending"
LAG = "kafka_processor_partition_records_lag"


@pytest.mark.virtual_time
async def test_a_scrape_may_ask_for_any_name_before_there_is_a_value(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    """A scrape has no name that the registry did not see at the registration."""
    async with at_work(broker, registry):
        described = {
            family.name
            for clients in collector._BY_REGISTRY[registry].values()
            for family in clients.describe()
        }
        assert names(registry) <= described


@pytest.mark.virtual_time
async def test_scrapes_in_another_thread_change_nothing(
    broker: EmbeddedCluster, registry: CollectorRegistry
) -> None:
    broker.create_topic("out", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send("out", b"%d" % number)
    consumer = Consumer(
        "out",
        bootstrap_servers=broker.bootstrap_servers,
        client_id="reader",
        auto_offset_reset="earliest",
        observers=[PrometheusConsumerObserver(registry)],
    )
    of_partition = {"client_id": "reader", "group_id": "", **OUT_0}
    async with consumer:
        lags = []
        async for record in consumer:
            ready = len(consumer._ready)
            scrape = threading.Thread(target=lambda: lags.append(lag(registry, of_partition)))
            scrape.start()
            scrape.join()
            assert len(consumer._ready) == ready, "the fast path goes on"
            if record.offset == 9:
                break
    assert lags == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def lag(registry: CollectorRegistry, labels: dict[str, str]) -> float | None:
    return registry.get_sample_value("kafka_consumer_partition_records_lag", labels)
