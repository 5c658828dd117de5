"""Sending the flights: every delivery is checked, whatever happens to it."""

from __future__ import annotations

import asyncio
import time

import pytest

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.demo.flights import Flights, encode, read_flights
from aioprod.demo.sending import FlightSender, FlightTopics
from aioprod.demo.topics import PARTITIONS, count_records, create_topics
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, drop_before, fail

TOPICS = FlightTopics("flights", "flights.cancelled")


@pytest.fixture(scope="module")
def some() -> Flights:
    year = read_flights()
    # With many cancelled flights among them.
    return Flights(year.lines[39_000:49_000])


async def test_each_flight_arrives_once_under_its_carrier(
    broker: EmbeddedCluster, some: Flights
) -> None:
    progress: list[int] = []
    async with Producer(broker.bootstrap_servers) as producer:
        sender = FlightSender(producer, some, TOPICS, on_progress=progress.append)
        await sender.run()
    report = sender.report()
    events = [encode(line) for line in some.lines]
    cancelled = sum(is_cancelled for _, _, is_cancelled in events)
    assert cancelled > 100
    assert (report.sent, report.acknowledged, report.acknowledged_cancelled, report.failed) == (
        10_000,
        10_000,
        cancelled,
        0,
    )
    assert report.acknowledged_flights == 10_000 - cancelled
    assert progress == sorted(progress)
    assert progress[-1] == 10_000
    for topic, wanted in ((TOPICS.flights, False), (TOPICS.cancelled, True)):
        stored = [(record.key, record.value) for record in broker.records(topic)]
        assert sorted(stored, key=str) == sorted(
            ((key, value) for key, value, is_cancelled in events if is_cancelled is wanted), key=str
        )


async def test_a_lost_connection_loses_and_doubles_nothing(
    broker: EmbeddedCluster, some: Flights
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        sender = FlightSender(producer, some, TOPICS)
        broker.on(ApiKey.PRODUCE, drop_before(), times=2)
        await sender.run()
    assert (sender.report().acknowledged, sender.report().failed) == (10_000, 0)
    assert len(broker.records(TOPICS.flights)) + len(broker.records(TOPICS.cancelled)) == 10_000


async def test_failed_deliveries_are_counted_with_their_reason(
    broker: EmbeddedCluster, some: Flights
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        sender = FlightSender(producer, some, TOPICS)
        await sender.run()
    report = sender.report()
    assert report.failed > 0
    assert report.acknowledged + report.failed == report.sent == 10_000
    assert report.first_error is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in report.first_error
    assert (
        len(broker.records(TOPICS.flights)) + len(broker.records(TOPICS.cancelled))
        == report.acknowledged
    )


async def test_a_rate_is_kept(broker: EmbeddedCluster, some: Flights) -> None:
    few = Flights(some.lines[:300])
    async with Producer(broker.bootstrap_servers) as producer:
        started_at = time.perf_counter()
        await FlightSender(producer, few, TOPICS, rate=600).run()
        assert time.perf_counter() - started_at >= 0.5


async def test_cancelled_in_the_middle_it_knows_what_was_acknowledged(
    broker: EmbeddedCluster, some: Flights
) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        sent_some = asyncio.Event()
        sender = FlightSender(
            producer,
            some,
            TOPICS,
            rate=2000,
            on_progress=lambda sent: sent_some.set() if sent >= 400 else None,
        )
        task = asyncio.create_task(sender.run())
        async with asyncio.timeout(30):
            await sent_some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.close(timeout_ms=10_000)
    report = sender.report()
    assert 400 <= report.sent < 10_000
    assert report.acknowledged == report.sent
    assert (
        len(broker.records(TOPICS.flights)) + len(broker.records(TOPICS.cancelled))
        == report.acknowledged
    )


async def test_topics_are_made_once_and_counted(bootstrap: str) -> None:
    names = ["demo-topics.one", "demo-topics.two"]
    async with ClusterClient(bootstrap) as client:
        await create_topics(client, names)
        await create_topics(client, names)  # existing ones are fine
        assert {len(client.snapshot.topics[name].partitions) for name in names} == {PARTITIONS}
        async with Producer(bootstrap) as producer:
            for number in range(7):
                await producer.send_and_wait(names[0], b"x", str(number).encode())
        assert await count_records(client, names) == {names[0]: 7, names[1]: 0}
