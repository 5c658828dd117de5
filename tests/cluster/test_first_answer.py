"""`start` of every client asks again, within its limit and on all bootstrap servers, if its first
requests have no usable answer; it fails at once only where no server can be reached.

In virtual time.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer, ShareConsumer
from aioprod.cluster.client import ClusterClient
from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aioprod.compat.aiokafka.admin import AIOKafkaAdminClient
from aioprod.compat.aiokafka.errors import KafkaConnectionError
from aioprod.errors import BrokerConnectionError, KafkaError, KafkaTimeoutError, ProtocolError
from aioprod.net.versions import STEPS
from aioprod.processing import Processor, ShareProcessor
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing import (
    Action,
    ApiKey,
    EmbeddedCluster,
    change_answer,
    cut_answer,
    drop_after,
    drop_before,
    hold,
)
from aioprod.testing.broker.cluster import NodeAddress

pytestmark = pytest.mark.virtual_time
LIMIT_MS = 60_000  # max_block_ms and default_api_timeout_ms


async def ignore(record: object) -> None:
    pass


CLIENTS: dict[str, Callable[[str], Any]] = {
    "Producer": lambda servers: Producer(servers),
    "transactional Producer": lambda servers: Producer(servers, transactional_id="x"),
    "Consumer": lambda servers: Consumer("t", bootstrap_servers=servers),
    "Consumer in a group": lambda servers: Consumer("t", bootstrap_servers=servers, group_id="g"),
    "Consumer of KIP-848": lambda servers: Consumer(
        "t", bootstrap_servers=servers, group_id="h", group_protocol="consumer"
    ),
    "ShareConsumer": lambda servers: ShareConsumer(servers, group_id="s", topics=["t"]),
    "Admin": lambda servers: Admin(servers),
    "ClusterClient": lambda servers: ClusterClient(servers),
    "Processor": lambda servers: Processor(ignore, "t", bootstrap_servers=servers, group_id="p"),
    "exactly-once Processor": lambda servers: Processor(
        ignore, "t", bootstrap_servers=servers, group_id="e", guarantee="exactly_once"
    ),
    "ShareProcessor": lambda servers: ShareProcessor(
        ignore, "t", bootstrap_servers=servers, group_id="q", reject_failed=True
    ),
    "AIOKafkaProducer": lambda servers: AIOKafkaProducer(bootstrap_servers=servers),
    "AIOKafkaConsumer": lambda servers: AIOKafkaConsumer("t", bootstrap_servers=servers),
    "AIOKafkaAdminClient": lambda servers: AIOKafkaAdminClient(bootstrap_servers=servers),
}
FAULTS: dict[str, Action] = {
    "ends before": drop_before(),
    "ends after": drop_after(),
    "ends within": cut_answer(9),
    "names no broker": change_answer(lambda reply: reply.brokers.clear()),
}


async def started_and_closed(client: Any) -> float:
    """Return the seconds that the start took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await client.start()
    taken = loop.time() - begun
    await (client.close if hasattr(client, "close") else client.stop)()
    return taken


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CLIENTS)
async def test_the_first_metadata_is_requested_again(name: str, fault: str) -> None:
    for times in (1, 4):
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic("t")
            rule = cluster.on(ApiKey.METADATA, FAULTS[fault], times=times)
            assert await started_and_closed(CLIENTS[name](cluster.bootstrap_servers)) < 5
            assert rule.used == times


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_healthy_second_server_is_enough(name: str) -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        cluster.create_topic("t")
        cluster.move_coordinator("transaction", "x", 2)
        rule = cluster.on_every(ApiKey.METADATA, drop_before(), node=1)
        for _ in range(4):
            assert await started_and_closed(CLIENTS[name](cluster.bootstrap_servers)) < 5
        assert rule.used


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin", "ShareConsumer"])
@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
async def test_the_whole_limit_is_used_and_no_more(name: str, api_key: ApiKey) -> None:
    async with EmbeddedCluster() as cluster:
        rule = cluster.on_every(api_key, drop_before())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        client = CLIENTS[name](cluster.bootstrap_servers)
        with pytest.raises(KafkaError, match="connection closed by the broker"):
            await client.start()
        assert LIMIT_MS / 1000 - 2 <= loop.time() - begun <= LIMIT_MS / 1000 + 1
        # With the backoffs of retries and of connections, which grow to a second.
        assert rule.used <= 75 * len(STEPS)
        await client.close()


async def test_a_broker_that_restarts_during_the_start() -> None:
    async with EmbeddedCluster() as cluster:
        rule = cluster.on(ApiKey.METADATA, hold())
        producer = Producer(cluster.bootstrap_servers)
        start = asyncio.ensure_future(producer.start())
        await rule.wait()
        await cluster.stop_all()
        await asyncio.sleep(20)
        assert not start.done()
        await cluster.start()
        await start
        await producer.close()


async def test_metadata_that_do_not_come_have_the_whole_limit() -> None:
    async with EmbeddedCluster() as cluster:
        rule = cluster.on_every(ApiKey.METADATA, hold())
        producer = Producer(cluster.bootstrap_servers)
        start = asyncio.ensure_future(producer.start())
        await asyncio.sleep(LIMIT_MS / 1000 - 5)
        rule.release()
        await start
        await producer.close()


@pytest.mark.parametrize("name", CLIENTS)
async def test_servers_that_cannot_be_reached_fail_at_once(name: str) -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        servers = cluster.bootstrap_servers
    client = CLIENTS[name](servers)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(Exception, match="refused") as caught:
        await client.start()
    assert isinstance(caught.value, BrokerConnectionError | KafkaConnectionError)
    assert asyncio.get_running_loop().time() - begun < 1
    if isinstance(client, AIOKafkaProducer | AIOKafkaConsumer):
        await client.stop()


def garble(cluster: EmbeddedCluster, node_id: int) -> None:
    """Answer Metadata of a node with bytes that are no message."""
    dispatcher: Any = cluster._dispatcher
    well = dispatcher.answer

    async def answer(frame: bytes, disconnected: object, node: NodeAddress, *more: Any) -> Any:
        header = decode_request_header(frame)
        if header.api_key == ApiKey.METADATA and node.node_id == node_id:
            return struct.pack(">ii", 44, header.correlation_id) + b"\xff" * 40
        return await well(frame, disconnected, node, *more)

    dispatcher.answer = answer


async def test_a_server_that_is_not_kafka_does_not_keep_the_client_waiting() -> None:
    async with EmbeddedCluster() as cluster:
        garble(cluster, 1)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ProtocolError):
            await Admin(cluster.bootstrap_servers).start()
        assert asyncio.get_running_loop().time() - begun < 1


async def test_one_garbling_server_next_to_a_healthy_one() -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        garble(cluster, 1)
        for _ in range(4):
            assert await started_and_closed(Admin(cluster.bootstrap_servers)) < 1


async def test_a_close_ends_a_start_that_asks_again() -> None:
    async with EmbeddedCluster() as cluster:
        rule = cluster.on_every(ApiKey.METADATA, drop_before())
        producer = Producer(cluster.bootstrap_servers)
        start = asyncio.ensure_future(producer.start())
        await rule.wait(5)
        await producer.close()
        with pytest.raises(KafkaError):
            await start
        assert not isinstance(start.exception(), KafkaTimeoutError)
        assert cluster.connection_count(1) == 0
