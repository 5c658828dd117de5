"""A node that is cut off from the others still reaches its clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aioprod import Producer
from aioprod.config.client import ClientConfig
from aioprod.net.handshake import connect
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.anomalies.control import CampaignControl
from tests.anomalies.node_network import NodeNetwork, internal_ports, rewired, sender
from tests.faults.harness.cluster_control import controlled_cluster
from tests.waiting import until

SETTINGS = """\
node.id=2
controller.quorum.voters=1@127.0.0.1:101,2@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},PROXY0://127.0.0.1:203,CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},PROXY0://127.0.0.1:303
"""


def test_nodes_find_each_other_at_the_ports_of_the_proxies() -> None:
    text = SETTINGS.format(plain=201, controller=102)
    assert internal_ports(text) == [201, 102]
    assert rewired(text, {101: 901, 102: 902, 201: 911}) == (
        "node.id=2\n"
        "controller.quorum.voters=1@127.0.0.1:901,2@127.0.0.1:902\n"
        "listeners=PLAINTEXT://127.0.0.1:201,PROXY0://127.0.0.1:203,CONTROLLER://127.0.0.1:102\n"
        "advertised.listeners=PLAINTEXT://127.0.0.1:911,PROXY0://127.0.0.1:303,"
        "CONTROLLER://127.0.0.1:902\n"
    )


class OneNode:
    """Stands for a cluster of which node 2 listens."""

    node_ids = (2,)

    def __init__(self, directory: Path, settings: str) -> None:
        self.settings: list[str] = []
        self._directory = directory
        (directory / "server.properties").write_text(settings)

    def _node_directory(self, node: int) -> Path:
        return self._directory

    def restart(self, *nodes: int) -> None:
        assert nodes == self.node_ids
        self.settings.append((self._directory / "server.properties").read_text())


@asynccontextmanager
async def proxied(
    directory: Path,
) -> AsyncIterator[tuple[NodeNetwork, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Run proxies before a node that echoes, and connect to one of them."""
    echoing = list[asyncio.Task[None] | None]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echoing.append(asyncio.current_task())
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        plain = server.sockets[0].getsockname()[1]
        before = SETTINGS.format(plain=plain, controller=102)
        cluster = OneNode(directory, before)
        async with NodeNetwork.between(cluster) as network:  # type: ignore[arg-type]
            [changed] = cluster.settings
            advertised = changed.partition("advertised.listeners=PLAINTEXT://127.0.0.1:")[2]
            port = int(advertised.partition(",")[0])
            assert port != plain
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            yield network, reader, writer
            writer.close()
            await writer.wait_closed()
        assert cluster.settings == [changed, before]
        await asyncio.gather(*filter(None, echoing))


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(60):
        assert await reader.readexactly(len(data)) == data


def request(client_id: str) -> bytes:
    """Return the begin of a request."""
    body = b"\x00\x12\x00\x03\x00\x00\x00\x07" + len(client_id).to_bytes(2, "big")
    return (len(body) + len(client_id)).to_bytes(4, "big") + body + client_id.encode()


@pytest.mark.parametrize(
    ("client_id", "node"),
    [
        ("raft-client-3", 3),
        ("1", 1),
        ("broker-2-fetcher-0", 2),
        ("broker-1-txn-marker-sender", 1),
        ("rdkafka", None),
        ("aioprod-producer-1", None),
        ("", None),
    ],
)
def test_a_client_id_names_the_node(client_id: str, node: int | None) -> None:
    assert sender(request(client_id) + b"more") == node


def test_a_connection_without_a_request_is_not_of_a_node() -> None:
    assert sender(b"") is None
    assert sender(request("1")[:9]) is None


@pytest.mark.parametrize("isolated", [1, 2])
async def test_what_passes_between_a_node_and_the_others_is_delayed(
    tmp_path: Path, isolated: int
) -> None:
    async with proxied(tmp_path) as (network, reader, writer):
        await exchange(reader, writer, request("raft-client-1"))
        network.isolate(isolated)
        writer.write(b"late")
        await until(lambda: network.waiting == 1)
        network.join()
        async with asyncio.timeout(60):
            assert await reader.readexactly(4) == b"late"
        await exchange(reader, writer, b"after")


@pytest.mark.parametrize(("client_id", "isolated"), [("rdkafka", 2), ("raft-client-1", 3)])
async def test_clients_and_other_nodes_are_not_delayed(
    tmp_path: Path, client_id: str, isolated: int
) -> None:
    async with proxied(tmp_path) as (network, reader, writer):
        network.isolate(isolated)
        await exchange(reader, writer, request(client_id))
        assert network.waiting == 0


async def leaders(address: str, topic: str) -> Sequence[int]:
    """Return the leaders that a node knows."""
    host, _, port = address.rpartition(":")
    connection = await connect(host, int(port), ClientConfig((address,)))
    try:
        request = MetadataRequest([MetadataRequestTopic(name=topic)])
        found: MetadataResponse = await connection.request(request)
    finally:
        await connection.close()
    return [each.leader_id for each in found.topics[0].partitions]


@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_an_isolated_node_loses_its_leaderships_and_does_not_know() -> None:
    with controlled_cluster({}, 0) as cluster:
        control = CampaignControl(*cluster)
        async with NodeNetwork.between(control.cluster) as network:
            control.between_nodes = network
            topic = f"isolated-{os.getpid()}"
            control.topics.append(topic)
            await control.create_topic(topic, 3)
            alone, other = control.cluster.address(1), control.cluster.address(2)

            async def moved() -> bool:
                return 1 not in await leaders(other, topic)

            control.isolate(1)
            await until(moved, 60)
            assert 1 in await leaders(alone, topic)
            async with Producer(alone) as producer:
                for partition in range(6):
                    await producer.send_and_wait(topic, b"x", partition=partition)
            control.join()
            await control.elect_preferred_leaders()
        await control.restore()
