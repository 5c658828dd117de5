"""Tests of fastapi_app.py with a Kafka broker that runs in the test's process and fails on demand.

pip install aioprod fastapi httpx pytest pytest-asyncio
pytest test_fastapi_app.py
pytest test_fastapi_app.py --kafka=real  # on a real broker, without the tests that make it fail
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import fastapi_app
import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from aioprod import ErrorCode
from aioprod.testing import ApiKey, EmbeddedCluster, drop_after, fail, hold
from aioprod.testing.pytest_plugin.blocking import BlockingConsumer
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer

ORDER = {"customer": "42", "item": "tea", "quantity": 3}


@pytest.fixture
def application(
    kafka_broker: EmbeddedCluster, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> FastAPI:
    """The application, configured for the test's broker and topic."""
    monkeypatch.setenv("AIOPROD_BOOTSTRAP_SERVERS", kafka_broker.bootstrap_servers)
    monkeypatch.setattr(fastapi_app, "TOPIC", kafka_topic)
    return fastapi_app.app


@pytest_asyncio.fixture
async def client(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, which runs on the test's event loop."""
    async with application.router.lifespan_context(application):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url="http://test"
        ) as opened:
            yield opened


@pytest.mark.asyncio
async def test_an_order_is_a_record(client: httpx.AsyncClient, consumer: TopicConsumer) -> None:
    answer = await client.post("/orders", json=ORDER)
    record = await consumer.getone()
    assert answer.status_code == 201
    assert answer.json() == {"partition": record.partition, "offset": record.offset}
    assert (record.key, json.loads(record.value or b"")) == (b"42", ORDER)


@pytest.mark.asyncio
async def test_orders_of_a_customer_keep_their_sequence(
    client: httpx.AsyncClient, consumer: TopicConsumer
) -> None:
    for quantity in range(1, 6):
        await client.post("/orders", json={**ORDER, "quantity": quantity})
    assert [
        json.loads(record.value or b"")["quantity"] for record in await consumer.getmany(5)
    ] == [1, 2, 3, 4, 5]


@pytest.mark.asyncio
async def test_a_lost_answer_makes_no_second_order(
    client: httpx.AsyncClient, kafka_broker: EmbeddedCluster, kafka_topic: str
) -> None:
    lost = kafka_broker.on(ApiKey.PRODUCE, drop_after())
    assert (await client.post("/orders", json=ORDER)).status_code == 201
    assert lost.used == 1
    assert len(kafka_broker.records(kafka_topic)) == 1


@pytest.mark.asyncio
async def test_a_refused_order_is_said(
    client: httpx.AsyncClient, kafka_broker: EmbeddedCluster
) -> None:
    kafka_broker.on_every(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    answer = await client.post("/orders", json=ORDER)
    assert answer.status_code == 503
    assert "TOPIC_AUTHORIZATION_FAILED" in answer.json()["detail"]


@pytest.mark.asyncio
async def test_no_answer_before_the_broker_has_the_order(
    client: httpx.AsyncClient, kafka_broker: EmbeddedCluster
) -> None:
    rule = kafka_broker.on(ApiKey.PRODUCE, hold())
    request = asyncio.create_task(client.post("/orders", json=ORDER))
    await rule.wait()
    assert not request.done()
    rule.release()
    assert (await request).status_code == 201


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # newer versions of Starlette warn
def test_without_asyncio(application: FastAPI, consumer: BlockingConsumer) -> None:
    from fastapi.testclient import TestClient

    with TestClient(application) as client:
        assert client.post("/orders", json=ORDER).status_code == 201
        assert json.loads(consumer.getone().value or b"") == ORDER
