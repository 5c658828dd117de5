"""The consumer and a real cluster of three nodes, which are killed while it reads: every record
comes once, in the order of its partition.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from aioprod import Admin, Consumer, ConsumerRecord, LogTruncationError, Producer, TopicPartition
from aioprod.admin import NewTopic
from aioprod.cluster.client import ClusterClient
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from tests.testing.fault_proxy import FaultProxy
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(240)]

NODES = (1, 2, 3)
PARTITIONS = 3
LIMIT_S = 60.0
LISTENER = "COUNTED"
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "retry_backoff_ms": 20,
    "session_timeout_ms": 20_000,
}


@pytest.fixture(scope="module")
def sockets() -> Iterator[dict[int, socket.socket]]:
    """The listening sockets of the proxies that count requests, by node."""
    found = {node: socket.socket() for node in NODES}
    for each in found.values():
        each.bind(("127.0.0.1", 0))
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(scope="module")
def running(sockets: dict[int, socket.socket]) -> Iterator[RealCluster]:
    """Three nodes, each in a rack of its own."""
    with RealCluster(
        len(NODES),
        racks=lambda node: f"rack{node}",
        listeners=lambda node: [
            Listener(name=LISTENER, advertised_port=sockets[node].getsockname()[1])
        ],
        settings={"auto.leader.rebalance.enable": "false"},
    ) as cluster:
        yield cluster


@pytest.fixture
async def cluster(running: RealCluster) -> AsyncIterator[RealCluster]:
    """The same, and at the end of a test all nodes run."""
    yield running
    for node in NODES:
        await give_back(running, node)


@pytest.fixture
async def admin(cluster: RealCluster) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as each:
        yield each


async def take_away(cluster: RealCluster, node: int, way: str) -> None:
    if way == "killed":
        await asyncio.to_thread(cluster.kill, node)
    else:
        cluster.pause(node)


async def give_back(cluster: RealCluster, node: int) -> None:
    if cluster.runs(node):
        cluster.resume(node)
    else:
        await asyncio.to_thread(cluster.restart, node)


async def make_topic(admin: Admin, assignments: Sequence[Sequence[int]], **configs: str) -> str:
    name = f"read-{uuid.uuid4().hex[:8]}"
    await admin.create_topics(
        NewTopic(
            name,
            assignments=assignments,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
    )

    async def served() -> bool:
        # Each node has to know, not only the one that is asked here.
        described = await admin.describe_topics(name)
        return all(
            each.leader is not None and len(each.isr) == len(each.replicas)
            for each in described.partitions
        )

    await until(served)
    return name


def replicas_from(node: int) -> list[int]:
    """All nodes, this one first."""
    return [*NODES[node - 1 :], *NODES[: node - 1]]


class Writing:
    """Writes numbers to all partitions in turn until it is asked to stop; each is there once."""

    def __init__(self, servers: str, topic: str, partitions: int = PARTITIONS) -> None:
        self.count = 0
        self._arguments = servers, topic, partitions
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        servers, topic, partitions = self._arguments
        async with Producer(servers, linger_ms=2) as producer:
            while not self._stopping:
                sent = [
                    await producer.send(
                        topic,
                        b"%d" % (self.count + step),
                        partition=(self.count + step) % partitions,
                    )
                    for step in range(30)
                ]
                await asyncio.gather(*sent)
                self.count += len(sent)
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stopping = True
        async with asyncio.timeout(LIMIT_S):
            await self._task


@asynccontextmanager
async def writing(cluster: RealCluster, topic: str) -> AsyncIterator[Writing]:
    writer = Writing(cluster.bootstrap_servers, topic)
    try:
        yield writer
    finally:
        await writer.stop()


async def read_on(consumer: Consumer, seen: list[ConsumerRecord], goal: int) -> None:
    """Read until there is this number."""
    async with asyncio.timeout(LIMIT_S):
        while len(seen) < goal:
            seen += await consumer.getmany(timeout_ms=100)


def check_each_once(seen: list[ConsumerRecord], count: int) -> None:
    assert Counter(int(record.value) for record in seen) == Counter(range(count))
    for partition in range(PARTITIONS):
        offsets = [record.offset for record in seen if record.partition == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize(
    ("group", "way"),
    [(None, "killed"), ("classic", "killed"), ("consumer", "killed"), ("classic", "frozen")],
)
async def test_a_leader_goes_while_it_is_read(
    cluster: RealCluster, admin: Admin, group: str | None, way: str
) -> None:
    topic = await make_topic(admin, [replicas_from(node) for node in NODES])
    in_group = {"group_id": f"g-{topic}", "group_protocol": group} if group else {}
    async with (
        Consumer(
            bootstrap_servers=cluster.bootstrap_servers, **{**SETTINGS, **in_group}
        ) as consumer,
        writing(cluster, topic) as writer,
    ):
        if group:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        seen: list[ConsumerRecord] = []
        await read_on(consumer, seen, 1_000)
        leader = (await admin.describe_topics(topic)).partitions[0].leader
        assert leader is not None
        await take_away(cluster, leader.node_id, way)
        await read_on(consumer, seen, writer.count + 1_000)  # written and read by others
        coming = asyncio.create_task(give_back(cluster, leader.node_id))
        while not coming.done():
            seen += await consumer.getmany(timeout_ms=100)
        await coming
        await writer.stop()
        await read_on(consumer, seen, writer.count)
        check_each_once(seen, writer.count)


async def coordinator_of(cluster: RealCluster, group_id: str) -> int:
    async with ClusterClient(cluster.bootstrap_servers) as client:
        reply = await client.request(FindCoordinatorRequest(coordinator_keys=[group_id]))
        assert not reply.coordinators[0].error_code
        return reply.coordinators[0].node_id


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_coordinator_is_killed_and_each_record_is_read_once(
    cluster: RealCluster, admin: Admin, protocol: str
) -> None:
    """Members continue without it, commit at the next one, and none reads again what another
    one has.
    """
    topic = await make_topic(admin, [replicas_from(node) for node in NODES])
    settings = {
        **SETTINGS,
        "group_id": f"g-{topic}",
        "group_protocol": protocol,
        "auto_commit_interval_ms": 200,
    }
    seen: list[list[ConsumerRecord]] = [[], []]

    async def read(mine: list[ConsumerRecord], stop: asyncio.Event) -> None:
        async with Consumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, **settings
        ) as consumer:
            while not stop.is_set():
                mine += await consumer.getmany(timeout_ms=100)

    async with writing(cluster, topic) as writer, AsyncExitStack() as stack:
        stop = asyncio.Event()
        readers = [asyncio.create_task(read(mine, stop)) for mine in seen]
        stack.callback(stop.set)

        async def both_read() -> bool:
            return all(seen)

        await until(both_read)
        lost = await coordinator_of(cluster, settings["group_id"])
        await asyncio.to_thread(cluster.kill, lost)
        at_kill = writer.count

        async def committed_on() -> bool:
            committed = await admin.list_consumer_group_offsets(settings["group_id"])
            return (
                sum(offset.offset for offset in committed.values() if offset is not None)
                > at_kill + 1_000
            )

        await until(committed_on)
        await asyncio.to_thread(cluster.restart, lost)
        await writer.stop()

        async def all_read() -> bool:
            return sum(map(len, seen)) >= writer.count

        await until(all_read)
        stop.set()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*readers)
        check_each_once(sorted(seen[0] + seen[1], key=lambda record: record.offset), writer.count)
        committed = await admin.list_consumer_group_offsets(settings["group_id"])
        assert (
            sum(offset.offset for offset in committed.values() if offset is not None)
            == writer.count
        )


@asynccontextmanager
async def counting(
    cluster: RealCluster, sockets: dict[int, socket.socket]
) -> AsyncIterator[dict[int, FaultProxy]]:
    """Proxies that know how many Fetches each node was sent."""
    async with AsyncExitStack() as stack:
        yield {
            node: await stack.enter_async_context(
                FaultProxy(sockets[node], cluster.address(node, LISTENER))
            )
            for node in NODES
        }


@pytest.mark.parametrize("way", ["killed", "frozen"])
async def test_records_come_from_the_replica_in_the_same_rack(
    cluster: RealCluster, sockets: dict[int, socket.socket], admin: Admin, way: str
) -> None:
    """KIP-392. Where that node is gone they come from the leader, and from the near replica again
    when it is back.
    """
    leader, follower = 1, 2
    topic = await make_topic(admin, [[leader, follower, 3]] * PARTITIONS)
    async with counting(cluster, sockets) as proxies, writing(cluster, topic) as writer:
        servers = ",".join(f"127.0.0.1:{sockets[node].getsockname()[1]}" for node in NODES)
        async with Consumer(
            bootstrap_servers=servers, **SETTINGS, client_rack=f"rack{follower}"
        ) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            seen: list[ConsumerRecord] = []

            async def fetches_during(records: int) -> list[int]:
                before = [proxies[node].passed[ApiKey.FETCH] for node in NODES]
                await read_on(consumer, seen, len(seen) + records)
                return [
                    proxies[node].passed[ApiKey.FETCH] - count
                    for node, count in zip(NODES, before, strict=True)
                ]

            async def follower_serves() -> bool:
                asked = await fetches_during(200)
                return asked[follower - 1] > 0 and asked[leader - 1] == 0

            await until(follower_serves)
            assert (await fetches_during(1_000))[leader - 1] == 0
            await take_away(cluster, follower, way)
            assert (await fetches_during(1_000))[leader - 1] > 0
            await give_back(cluster, follower)
            await until(follower_serves)
            await writer.stop()
            await read_on(consumer, seen, writer.count)
            check_each_once(seen, writer.count)


@pytest.mark.parametrize("reset", ["none", "earliest"])
async def test_what_an_unclean_election_has_cut_off_is_found_out(
    cluster: RealCluster, admin: Admin, reset: str
) -> None:
    """KIP-320. The new leader never had the last records: they are dropped, and the records that it
    writes instead are read.
    """
    first, second = (node for node in NODES if node != cluster.active_controller())
    topic = await make_topic(
        admin, [[first, second]], unclean_leader_election_enable="true", min_insync_replicas="1"
    )
    tp = TopicPartition(topic, 0)

    async def write(values: range) -> None:
        async with Producer(
            cluster.bootstrap_servers, acks=1, enable_idempotence=False
        ) as producer:
            await asyncio.gather(
                *[await producer.send(topic, b"%d" % value, partition=0) for value in values]
            )

    await write(range(10))
    async with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, **{**SETTINGS, "auto_offset_reset": reset}
    ) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        seen: list[ConsumerRecord] = []
        await read_on(consumer, seen, 10)
        await asyncio.to_thread(cluster.kill, second)
        await write(range(10, 20))
        await read_on(consumer, seen, 20)
        await asyncio.to_thread(cluster.kill, first)
        await asyncio.to_thread(cluster.restart, second)

        async def second_leads() -> bool:
            leader = (await admin.describe_topics(topic)).partitions[0].leader
            return leader is not None and leader.node_id == second

        await until(second_leads)
        await write(range(100, 120))
        if reset == "none":
            with pytest.raises(LogTruncationError) as raised:
                await read_on(consumer, seen, 21)
            assert (raised.value.offset, raised.value.divergent_offset) == (20, 10)
            consumer.seek(tp, raised.value.divergent_offset)
        await read_on(consumer, seen, 40)
        assert [int(record.value) for record in seen] == [*range(20), *range(100, 120)]
        assert [record.offset for record in seen] == [*range(20), *range(10, 30)]
