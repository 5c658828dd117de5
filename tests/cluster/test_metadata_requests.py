"""A producer requests a new topic alone, and all of its topics when something is stale."""

from __future__ import annotations

import asyncio
from typing import Any

from aioprod import Producer
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, fail
from tests.waiting import until

LIMIT_SECONDS = 10.0


def listen(broker: EmbeddedCluster) -> list[set[str]]:
    """Collect the topics of each later metadata request."""
    asked: list[set[str]] = []

    def note(request: Any) -> bool:
        asked.append({topic.name for topic in request.topics or ()})
        return False

    broker.on(ApiKey.METADATA, delay(0), times=None, where=note)
    return asked


async def test_a_new_topic_is_asked_for_alone(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        asked = listen(broker)
        for number in range(20):
            await producer.send_and_wait(f"topic-{number}", b"x")
        assert {frozenset(topics) for topics in asked} == {
            frozenset({f"topic-{number}"}) for number in range(20)
        }
        # All are still known.
        for number in range(20):
            await producer.send_and_wait(f"topic-{number}", b"y")
        assert len(asked) == 20


async def test_new_topics_of_many_tasks_share_a_request(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        asked = listen(broker)
        await asyncio.gather(
            *(producer.send_and_wait(f"topic-{number}", b"x") for number in range(100))
        )
        assert len(asked) < 10


async def test_a_stale_leader_asks_for_all(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, retry_backoff_ms=5) as producer:
        for name in ("a", "b"):
            await producer.send_and_wait(name, b"x")
        asked = listen(broker)
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
        await producer.send_and_wait("a", b"x")
        assert {"a", "b"} in asked


async def test_age_asks_for_all_and_new_topics_do_not_put_it_off(broker: EmbeddedCluster) -> None:
    async with Producer(
        broker.bootstrap_servers, metadata_max_age_ms=100, retry_backoff_ms=5
    ) as producer:
        await producer.send_and_wait("old", b"x")
        asked = listen(broker)

        async def ever_new_topics() -> None:
            number = 0
            while True:
                number += 1
                await producer.send_and_wait(f"new-{number}", b"x")

        flow = asyncio.create_task(ever_new_topics())
        await until(lambda: sum("old" in topics for topics in asked) >= 2)
        flow.cancel()
        await asyncio.wait([flow])


async def test_a_refusal_of_a_new_topic_does_not_lose_the_others_that_are_wanted(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(
        broker.bootstrap_servers, retry_backoff_ms=5, retry_backoff_max_ms=20
    ) as producer:
        broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE), times=3)
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.gather(
                *(producer.send_and_wait(f"topic-{number}", b"x") for number in range(5))
            )


async def test_a_failed_request_for_a_new_topic_is_made_again(broker: EmbeddedCluster) -> None:
    async with Producer(
        broker.bootstrap_servers,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as producer:
        await producer.send_and_wait("old", b"x")
        await broker.stop()
        waiting = asyncio.create_task(producer.send_and_wait("new", b"x"))
        await until(lambda: producer.metrics()["connection-count"] == 0)
        await broker.start()
        async with asyncio.timeout(LIMIT_SECONDS):
            await waiting
