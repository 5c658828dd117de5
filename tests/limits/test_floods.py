"""Requests to a broker that repeats the same response forever have pauses: in five seconds there
are dozens of them, not thousands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioprod import Consumer, ErrorCode, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from aioprod.testing import EmbeddedCluster, fail
from aioprod.testing.simulation import run
from tests.testing.bad_servers import coordinate

SECONDS = 5
# The backoff from 100 ms to 1 s allows about ten requests; pauses of retry_backoff_ms alone, which
# some retries use, allow fifty.
MAX_REQUESTS = 12 * SECONDS
E = ErrorCode


async def consume(cluster: EmbeddedCluster, **settings: Any) -> None:
    loop = asyncio.get_running_loop()
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
        **settings,
    }
    until = loop.time() + SECONDS
    with contextlib.suppress(KafkaError):
        async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **given) as consumer:
            while loop.time() < until:
                try:
                    await consumer.getmany(timeout_ms=500)
                except KafkaError:
                    await asyncio.sleep(0.1)  # like an application that continues


async def produce(cluster: EmbeddedCluster, **settings: Any) -> None:
    limits: dict[str, Any] = {
        "delivery_timeout_ms": SECONDS * 1000,
        "request_timeout_ms": 2_000,
        "max_block_ms": SECONDS * 1000,
        **settings,
    }
    with contextlib.suppress(KafkaError):
        async with Producer(cluster.bootstrap_servers, linger_ms=0, **limits) as producer:
            if "transactional_id" in settings:
                await producer.begin_transaction()
            await producer.send_and_wait("t", b"x")
            if "transactional_id" in settings:
                await producer.commit_transaction()


async def transact(cluster: EmbeddedCluster) -> None:
    await produce(cluster, transactional_id="t")


USES: dict[ApiKey, Callable[[EmbeddedCluster], Awaitable[None]]] = {
    **dict.fromkeys(
        (
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
        ),
        consume,
    ),
    **dict.fromkeys(
        (ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.LIST_OFFSETS, ApiKey.FETCH), consume
    ),
    ApiKey.PRODUCE: produce,
    **dict.fromkeys((ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN), transact),
}
CODES = (
    E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.MEMBER_ID_REQUIRED, E.REBALANCE_IN_PROGRESS,
    E.OFFSET_OUT_OF_RANGE, E.NOT_COORDINATOR,
    E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH, E.UNKNOWN_TOPIC_OR_PARTITION,
    E.CONCURRENT_TRANSACTIONS, E.UNKNOWN_SERVER_ERROR,
)  # fmt: skip


@pytest.mark.parametrize("api_key", USES, ids=lambda api_key: api_key.name)
def test_an_error_forever(api_key: ApiKey) -> None:
    async def main(code: ErrorCode) -> int:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            await produce(cluster)
            before = cluster.request_count(api_key)
            cluster.on_every(api_key, fail(code))
            await USES[api_key](cluster)
            return cluster.request_count(api_key) - before

    asked = {code.name: run(main(code), 1) for code in CODES}
    # While the last transaction ends, the first five retries are 2 to 20 ms apart (KAFKA-5482).
    assert {name: count for name, count in asked.items() if count > MAX_REQUESTS} == {}


@pytest.mark.parametrize(
    "code",
    [E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_an_error_forever_to_heartbeats_of_the_new_protocol(code: ErrorCode) -> None:
    async def main() -> int:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t")
            heartbeats = coordinate(
                cluster, lambda: ConsumerGroupHeartbeatResponse(error_code=code)
            )
            await consume(cluster, group_protocol="consumer")
            return len(heartbeats)

    assert 2 <= run(main(), 1) <= MAX_REQUESTS
