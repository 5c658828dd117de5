"""Each quirk is real: the request of a naive client has another outcome than on a plain cluster.

A naive client sends the newest version that both sides know, trusts what responses say, and has one
connection for everything. In virtual time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Request
from aioprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from aioprod.testing.broker.quirks import QUIRKS, SERVICES, find
from tests.testing.raw_client import RawClient, make_batch

pytestmark = pytest.mark.virtual_time
TOPIC = "orders"
ENDED = "the connection has ended"


async def outcome(attempt: Callable[[], Awaitable[object]]) -> object:
    try:
        return await attempt()
    except (ConnectionError, asyncio.IncompleteReadError):
        return ENDED


def opened(cluster: EmbeddedCluster, node_id: int = 1) -> RawClient:
    return RawClient(cluster.address(node_id))


async def ask(
    cluster: EmbeddedCluster, request: Request[Any], version: int, node_id: int = 1
) -> object:
    async with opened(cluster, node_id) as client:
        await client.call(request, version)
    return "answered"


async def announced(cluster: EmbeddedCluster, node_id: int = 1) -> dict[int, tuple[int, int]]:
    async with opened(cluster, node_id) as client:
        reply: ApiVersionsResponse = await client.call(ApiVersionsRequest(), 0)
    return {each.api_key: (each.min_version, each.max_version) for each in reply.api_keys}


async def newest(cluster: EmbeddedCluster, api_key: ApiKey, node_id: int = 1) -> int:
    return (await announced(cluster, node_id)).get(api_key, (0, -1))[1]


async def metadata(
    cluster: EmbeddedCluster, topic: str = TOPIC, node_id: int = 1
) -> MetadataResponse:
    version = await newest(cluster, ApiKey.METADATA, node_id)
    async with opened(cluster, node_id) as client:
        return await client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), version)


async def fetch(cluster: EmbeddedCluster) -> object:
    """Fetch in the newest version, with the id and epoch that the metadata has."""
    (topic,) = (await metadata(cluster)).topics
    part = FetchPartition(
        partition=0,
        current_leader_epoch=topic.partitions[0].leader_epoch,
        fetch_offset=0,
        partition_max_bytes=1_000,
    )
    request = FetchRequest(
        max_wait_ms=1,
        min_bytes=0,
        max_bytes=1_000,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic=TOPIC, topic_id=topic.topic_id, partitions=[part])],
    )
    async with opened(cluster) as client:
        reply = await client.call(request, await newest(cluster, ApiKey.FETCH))
    code = reply.error_code or reply.responses[0].partitions[0].error_code
    return ErrorCode.of(code).name, reply.session_id > 0, reply.throttle_time_ms


async def produce(cluster: EmbeddedCluster, batch: bytes, topic: str = TOPIC) -> object:
    loop = asyncio.get_running_loop()
    async with opened(cluster) as client:
        begun = loop.time()
        reply = await client.produce(topic, batch)
        return ErrorCode.of(reply.error_code).name, loop.time() - begun > 0.2


def compressed(batch: bytes) -> bytes:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 1, 0, -1, -1, -1, 10_000)
    builder.append(0, 0, None, batch, [])
    return bytes(builder.build())


async def after_a_pause(cluster: EmbeddedCluster, pause_s: float) -> object:
    async with opened(cluster) as client:
        await client.call(ApiVersionsRequest(), 0)
        await asyncio.sleep(pause_s)
        await client.call(ApiVersionsRequest(), 0)
    return "answered"


async def five_connections(cluster: EmbeddedCluster) -> object:
    async with opened(cluster), opened(cluster), opened(cluster), opened(cluster):
        return await ask(cluster, ApiVersionsRequest(), 0)


async def leader_at_the_bootstrap_address(cluster: EmbeddedCluster) -> object:
    host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
    (topic,) = (await metadata(cluster)).topics
    return (host, int(port)) in {
        (node.host, node.port)
        for node in (await metadata(cluster)).brokers
        if node.node_id == topic.partitions[0].leader_id
    }


async def second_leader(cluster: EmbeddedCluster) -> object:
    """Return the leader of the partition, by the metadata of the other node."""
    return (await metadata(cluster, node_id=2)).topics[0].partitions[0].leader_id


async def versions_of_the_nodes(cluster: EmbeddedCluster) -> object:
    return await announced(cluster, 1) == await announced(cluster, 2)


async def has(cluster: EmbeddedCluster, api_key: ApiKey) -> object:
    return api_key in await announced(cluster)


async def new_topic(cluster: EmbeddedCluster) -> object:
    await metadata(cluster, "new")
    return len((await metadata(cluster, "new")).topics[0].partitions)


async def lifetime_of_a_login(cluster: EmbeddedCluster) -> object:
    return await newest(cluster, ApiKey.SASL_AUTHENTICATE) >= 1


ROUTE = ApiVersionsRequest(
    client_software_name="naive",
    client_software_version="1",
    cluster_id="aioprod-embedded-broker",
    node_id=1,
)
NAMED = ApiVersionsRequest(client_software_name="naive", client_software_version="1")
BATCH = make_batch([b"x"])
LARGE = make_batch([b"x" * 1_047_000])
#: What to do on a cluster, what comes of it on a plain one, and with the quirk.
BITES: dict[str, tuple[Callable[[EmbeddedCluster], Awaitable[object]], object, object]] = {
    "resets-api-versions-4": (lambda it: ask(it, NAMED, 4), "answered", ENDED),
    "resets-api-versions-1": (lambda it: ask(it, NAMED, 1), "answered", ENDED),
    "closes-on-route": (lambda it: ask(it, ROUTE, 5), "answered", ENDED),
    "old-metadata": (fetch, ("NONE", True, 0), ("UNKNOWN_TOPIC_ID", True, 0)),
    "zero-topic-ids": (fetch, ("NONE", True, 0), ("UNKNOWN_TOPIC_ID", True, 0)),
    "event-hubs-versions": (lambda it: newest(it, ApiKey.FETCH), 18, 6),
    "rolling-upgrade": (versions_of_the_nodes, True, False),
    "no-leader-epochs": (
        lambda it: has(it, ApiKey.OFFSET_FOR_LEADER_EPOCH),
        True,
        False,
    ),
    "wrong-leader-epochs": (fetch, ("NONE", True, 0), ("UNKNOWN_LEADER_EPOCH", True, 0)),
    "no-fetch-sessions": (fetch, ("NONE", True, 0), ("NONE", False, 0)),
    "any-node-serves": (second_leader, 1, 2),
    "no-controller": (lambda it: _controller(it), 1, -1),
    "no-idempotence": (lambda it: has(it, ApiKey.INIT_PRODUCER_ID), True, False),
    "no-transactions": (lambda it: has(it, ApiKey.END_TXN), True, False),
    "classic-groups-only": (lambda it: has(it, ApiKey.CONSUMER_GROUP_HEARTBEAT), True, False),
    "throttles": (fetch, ("NONE", True, 0), ("NONE", True, 100)),
    "few-connections": (five_connections, "answered", ENDED),
    "drops-idle-connections": (lambda it: after_a_pause(it, 250), "answered", ENDED),
    "recycles-connections": (lambda it: after_a_pause(it, 25), "answered", ENDED),
    "login-ends": (lambda it: lifetime_of_a_login(it), True, False),
    "slow-acknowledgments": (lambda it: produce(it, BATCH), ("NONE", False), ("NONE", True)),
    "slow-topics": (new_topic, 1, 0),
    "no-compression": (
        lambda it: produce(it, compressed(b"x" * 500)),
        ("NONE", False),
        ("UNSUPPORTED_COMPRESSION_TYPE", False),
    ),
    "small-requests": (lambda it: produce(it, LARGE), ("NONE", False), ENDED),
    "hidden-nodes": (leader_at_the_bootstrap_address, True, False),
}


async def _controller(cluster: EmbeddedCluster) -> object:
    return (await metadata(cluster)).controller_id


@pytest.mark.parametrize("name", QUIRKS)
async def test_a_naive_client_meets_the_quirk(name: str) -> None:
    do, usual, different = BITES[name]
    for imitate, expected in (((), usual), ((name,), different)):
        async with EmbeddedCluster(nodes=2, imitate=imitate) as cluster:
            cluster._cluster.cluster_id = "aioprod-embedded-broker"
            cluster.create_topic(TOPIC)
            assert await outcome(lambda cluster=cluster: do(cluster)) == expected  # type: ignore[misc]


async def test_a_login_ends_with_its_connection() -> None:
    security = BrokerSecurity(users={"a": "b"}, mechanisms=("PLAIN",))
    async with EmbeddedCluster(imitate="login-ends", security=security) as cluster:
        assert await newest(cluster, ApiKey.SASL_AUTHENTICATE) == 0
        assert await outcome(lambda: ask(cluster, SaslAuthenticateRequest(b""), 1)) == ENDED
        assert await outcome(lambda: after_a_pause(cluster, 31)) == ENDED


@pytest.mark.parametrize("name", QUIRKS)
def test_a_quirk_says_what_it_is_and_where_that_is_known(name: str) -> None:
    quirk = QUIRKS[name]
    assert re.match(r"[a-z]+s\b", quirk.what), "a verb in the third person"
    issue = r"[\w.-]+/[\w.-]+#\d+|(KAFKA|KIP)-\d+|grepplabs/kafka-proxy"
    page = r"[a-z.-]+\.(com|cloud|io): [A-Z]|crates\.io"
    assert re.search(f"{issue}|{page}", quirk.source)


@pytest.mark.parametrize("name", QUIRKS)
def test_the_page_has_the_quirk(name: str) -> None:
    quirk = QUIRKS[name]
    page = (Path(__file__).parents[2] / "docs" / "embedded-broker.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {quirk.what} | {quirk.source} |\n" in page
    for service, quirks in SERVICES.items():
        listed = ", ".join(f"`{each}`" for each in quirks)
        assert f"| `{service}` | {listed} |\n" in page


def test_names_are_services_or_quirks() -> None:
    assert len(QUIRKS) >= 15
    for service in SERVICES:
        assert [quirk.name for quirk in find(service)] == list(SERVICES[service])
    assert {quirk.name for quirk in find(["tansu", "throttles", "tansu"])} == {
        *SERVICES["tansu"],
        "throttles",
    }
    with pytest.raises(ConfigError, match="imitate='nowhere': must be a service"):
        EmbeddedCluster(imitate="nowhere")
