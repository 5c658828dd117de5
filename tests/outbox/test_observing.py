"""Operators see the state of a relay: metrics, health, and traces."""

from __future__ import annotations

import sqlite3

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from aioprod import ConfigError
from aioprod.integrations.opentelemetry import OpenTelemetryInterceptor, trace_headers
from aioprod.integrations.prometheus import PrometheusOutboxRelay
from aioprod.integrations.prometheus.collector import Clients
from aioprod.outbox import Outbox, OutboxRelay
from aioprod.outbox import relay as relay_module
from aioprod.testing import ApiKey, EmbeddedCluster, delay
from tests.outbox.test_relay import relay_of, rows
from tests.waiting import until

TOPIC = "orders"


async def test_metrics_and_readiness(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "_BACKLOG_S", 0)
    broker.create_topic(TOPIC, 1)
    with database:
        for number in range(3):
            await Outbox().add(database, TOPIC, b"", key=b"%d" % number)
        database.execute("UPDATE aioprod_outbox SET added_ms = added_ms - 60000 WHERE id = 1")
    relay = relay_of(path, broker, shards=2, lease_ms=1_000)
    assert not relay.ready and relay.healthy
    assert relay.metrics()["rows-waiting"] == 0 and relay.metrics_by_shard() == {}
    broker.on(ApiKey.PRODUCE, delay(0.3), times=2)
    async with relay:
        await until(lambda: relay.metrics()["rows-waiting"] == 3)
        assert 60 <= relay.metrics()["oldest-row-age-seconds"] < 120
        by_shard = relay.metrics_by_shard()
        assert sum(each["rows-waiting"] for each in by_shard.values()) == 3
        assert relay.ready and relay.healthy and relay.metrics()["shards-owned"] == 2
        await until(lambda: relay.metrics()["rows-waiting"] == 0)
        assert relay.metrics()["records-sent-total"] == 3
        database.execute("ALTER TABLE aioprod_outbox_member RENAME TO away")
        await until(lambda: not relay.ready)
        assert relay.healthy  # for a minute
        assert relay.metrics()["shards-failing"]
        database.execute("ALTER TABLE away RENAME TO aioprod_outbox_member")
        await until(lambda: relay.ready)
    assert not relay.ready


async def test_probes_and_metrics_in_an_application(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    with database:
        await Outbox().add(database, TOPIC, b"")
    relay, registry = relay_of(path, broker, name="shop"), CollectorRegistry()
    exported = PrometheusOutboxRelay(relay, registry)
    app = web.Application()
    app.cleanup_ctx.append(relay.cleanup_ctx)
    app.router.add_get("/outbox/{probe}", relay.aiohttp_health)
    async with TestClient(TestServer(app)) as client:
        await until(lambda: relay.records_sent)
        await until(lambda: relay.ready)
        response = await client.get("/outbox/ready")
        assert await response.json() == {"ready": True, "healthy": True}
        assert (await ready_of(relay)).status_code == response.status == 200
        text = generate_latest(registry).decode()
        assert 'kafka_outbox_relay_records_sent_total{relay="shop"} 1.0' in text
        assert 'kafka_outbox_shard_oldest_row_age_seconds{relay="shop",shard="0"}' in text
    assert (await ready_of(relay)).status_code == 503
    exported.close()
    assert generate_latest(registry) == b""


async def ready_of(relay: OutboxRelay) -> httpx.Response:
    transport = httpx.ASGITransport(relay.health_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/ready")


async def test_each_metric_is_known_before_a_relay_runs(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "_BACKLOG_S", 0)
    registry = CollectorRegistry()
    async with relay_of(path, broker) as relay:
        exported = PrometheusOutboxRelay(relay, registry)
        await until(relay.metrics_by_shard)
        found = {each.name for each in registry.collect()}
        (clients,) = registry._collector_to_names
        assert isinstance(clients, Clients)
        assert {each.name for each in clients.describe()} == found
        exported.close()


async def test_a_relay_that_fails_for_a_minute_is_not_healthy(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "_UNHEALTHY_AFTER_S", 0.2)
    async with relay_of(path, broker) as relay:
        await until(lambda: relay.ready)
        database.execute("ALTER TABLE aioprod_outbox RENAME TO away")
        await until(lambda: not relay.healthy)
        database.execute("ALTER TABLE away RENAME TO aioprod_outbox")
        await until(lambda: relay.healthy and relay.ready)


async def test_the_span_of_a_record_is_a_child_of_the_request(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    outbox = Outbox(more_headers=trace_headers)
    with provider.get_tracer("app").start_as_current_span("request") as request, database:
        await outbox.add(database, TOPIC, b"", headers={"own": b"1"})
    interceptor = OpenTelemetryInterceptor(provider)
    async with relay_of(path, broker, interceptors=[interceptor]):
        await until(lambda: not rows(database))
    (record,) = broker.records(TOPIC, committed_only=True)
    trace_id = request.get_span_context().trace_id
    headers = dict(record.headers)
    assert headers["own"] == b"1" and f"{trace_id:032x}".encode() in (headers["traceparent"] or b"")
    (sent,) = [each for each in spans.get_finished_spans() if each.name == f"send {TOPIC}"]
    assert sent.parent is not None and sent.parent.span_id == request.get_span_context().span_id
    with pytest.raises(ConfigError, match="more_headers=1: must be a function"):
        Outbox(more_headers=1)  # type: ignore[arg-type]
