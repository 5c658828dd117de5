"""The embedded broker with several nodes: which one leads, and what changes when nodes stop, freeze
and restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.testing import EmbeddedCluster, fail
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.waiting import until

BATCH = make_batch([b"x"])


NO_NODE = -1


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


async def metadata(
    broker: EmbeddedCluster, node_id: int = 1, version: int = 12
) -> MetadataResponse:
    async with RawClient(broker.address(node_id)) as client:
        return await client.call(MetadataRequest(topics=None), version)


def leaders(answer: MetadataResponse) -> list[int]:
    return [partition.leader_id for partition in answer.topics[0].partitions]


class TestMetadata:
    async def test_leaders_are_spread_and_every_node_shows_the_same(
        self, three: EmbeddedCluster
    ) -> None:
        answers = [await metadata(three, node_id) for node_id in three.node_ids]
        assert answers[0] == answers[1] == answers[2]
        assert [(node.node_id, f"{node.host}:{node.port}") for node in answers[0].brokers] == [
            (n, three.address(n)) for n in (1, 2, 3)
        ]
        assert three.bootstrap_servers == ",".join(three.address(node_id) for node_id in (1, 2, 3))
        assert answers[0].controller_id == 1
        assert [
            (p.leader_id, p.replica_nodes, p.isr_nodes, p.leader_epoch)
            for p in answers[0].topics[0].partitions
        ] == [
            (1, [1, 2, 3], [1, 2, 3], 0),
            (2, [2, 3, 1], [2, 3, 1], 0),
            (3, [3, 1, 2], [3, 1, 2], 0),
        ]

    async def test_a_stopped_node_leaves_metadata_and_hands_its_partitions_on(
        self, three: EmbeddedCluster
    ) -> None:
        await three.stop_node(1)
        answer = await metadata(three, 2)
        assert [node.node_id for node in answer.brokers] == [2, 3]
        assert answer.controller_id == 2
        first = answer.topics[0].partitions[0]
        assert (
            first.leader_id,
            first.leader_epoch,
            first.replica_nodes,
            first.isr_nodes,
            first.offline_replicas,
        ) == (2, 1, [1, 2, 3], [2, 3], [1])
        assert leaders(answer) == [2, 2, 3]
        await three.start_node(1)
        answer = await metadata(three, 1)
        assert leaders(answer) == [2, 2, 3]  # it leads again only when asked to
        assert answer.topics[0].partitions[0].isr_nodes == [1, 2, 3]

    async def test_without_a_live_replica_there_is_no_leader(self, three: EmbeddedCluster) -> None:
        three.create_topic("single", 3, replication_factor=1)
        await three.stop_node(2)
        answer = next(topic for topic in (await metadata(three)).topics if topic.name == "single")
        lost = answer.partitions[1]
        assert (lost.error_code, lost.leader_id, lost.leader_epoch) == (
            ErrorCode.LEADER_NOT_AVAILABLE,
            NO_NODE,
            1,
        )
        assert (lost.replica_nodes, lost.isr_nodes, lost.offline_replicas) == ([2], [2], [2])
        assert [partition.error_code for partition in answer.partitions] == [
            0,
            ErrorCode.LEADER_NOT_AVAILABLE,
            0,
        ]
        await three.start_node(2)
        assert three.leader("single", 1) == 2
        assert three.topics["single"].partitions[1].log.leader_epoch == 2

    async def test_a_topic_made_while_a_node_is_down_is_led_by_the_others(
        self, three: EmbeddedCluster
    ) -> None:
        await three.stop_node(1)
        made = three.create_topic("made", 3)
        assert [three.leader("made", index) for index in range(3)] == [2, 2, 3]
        assert {partition.log.leader_epoch for partition in made.partitions} == {0}


class TestReplicas:
    @pytest.mark.parametrize(
        ("nodes", "given", "factor"),
        [(1, None, 1), (2, None, 2), (5, None, 3), (5, 5, 5), (3, 1, 1)],
    )
    async def test_the_default_number(self, nodes: int, given: int | None, factor: int) -> None:
        broker = EmbeddedCluster(nodes=nodes, replication_factor=given)
        assert {
            len(partition.leadership.replicas)
            for partition in broker.create_topic("t", 5).partitions
        } == {factor}

    async def test_create_topics_asks_for_a_number_or_for_nodes(
        self, three: EmbeddedCluster
    ) -> None:
        async with RawClient(three.address(3)) as client:
            two = CreatableTopic("two", 2, 2)
            placed = CreatableTopic(
                "placed",
                -1,
                -1,
                [CreatableReplicaAssignment(1, [3, 1]), CreatableReplicaAssignment(0, [2, 3])],
            )
            answer = await client.call(CreateTopicsRequest(topics=[two, placed]), 7)
            assert [
                (topic.error_code, topic.num_partitions, topic.replication_factor)
                for topic in answer.topics
            ] == [(0, 2, 2), (0, 2, 2)]
            assert [
                partition.leadership.replicas for partition in three.topics["two"].partitions
            ] == [(1, 2), (2, 3)]
            assert [
                partition.leadership.replicas for partition in three.topics["placed"].partitions
            ] == [(2, 3), (3, 1)]

    @pytest.mark.parametrize("brokers", [[4], [1, 1], [], [1, 2]])
    async def test_impossible_replicas_are_refused(
        self, three: EmbeddedCluster, brokers: list[int]
    ) -> None:
        async with RawClient(three.address(1)) as client:
            wanted = CreatableTopic(
                "n",
                -1,
                -1,
                [CreatableReplicaAssignment(0, [3]), CreatableReplicaAssignment(1, brokers)],
            )
            answer = await client.call(
                CreateTopicsRequest(topics=[wanted, CreatableTopic("m", 1, 4)]), 7
            )
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ]
        assert "1 to 3" in (answer.topics[1].error_message or "")
        assert list(three.topics) == ["t"]

    async def test_acks_all_needs_min_insync_replicas(self, three: EmbeddedCluster) -> None:
        three.create_topic("safe", 1, {"min.insync.replicas": "2"})
        await three.stop_node(3)
        async with RawClient(three.address(1)) as client:
            assert (await client.produce("safe", BATCH)).error_code == 0
            await three.stop_node(2)
            refused = await client.produce("safe", BATCH)
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert "min.insync.replicas=2" in (refused.error_message or "")
            assert (await client.produce("safe", BATCH, acks=1)).error_code == 0
            await three.start_node(2)
            assert (await client.produce("safe", BATCH)).base_offset == 2


class TestNodes:
    async def test_records_outlive_their_leader_and_carry_the_epoch_they_were_written_under(
        self, three: EmbeddedCluster
    ) -> None:
        async with RawClient(three.address(1)) as client:
            await client.produce("t", make_batch([b"old"]))
        await three.stop_node(1)
        async with RawClient(three.address(2)) as client:
            assert (await client.produce("t", make_batch([b"new"]))).base_offset == 1
            answer = await client.call(fetch_request("t", 0), 12)
        assert [(record.value, record.offset) for record in three.records("t", 0)] == [
            (b"old", 0),
            (b"new", 1),
        ]
        stored = answer.responses[0].partitions[0].records or b""
        size = int.from_bytes(stored[8:12], "big") + 12
        assert [int.from_bytes(stored[at + 12 : at + 16], "big") for at in (0, size)] == [0, 1]

    async def test_a_sequence_goes_on_over_a_moved_leader(self, three: EmbeddedCluster) -> None:
        first, second = (
            make_batch([b"a"], producer=(7, 0, 0)),
            make_batch([b"b"], producer=(7, 0, 1)),
        )
        async with RawClient(three.address(1)) as old, RawClient(three.address(2)) as new:
            await old.produce("t", first)
            three.move_leader("t", 0, 2)
            assert (await new.produce("t", first)).base_offset == 0  # a duplicate
            assert (
                await new.produce("t", make_batch([b"c"], producer=(7, 0, 2)))
            ).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await new.produce("t", second)).base_offset == 1

    async def test_a_stopped_node_refuses_connections_and_gets_its_port_again(
        self, three: EmbeddedCluster
    ) -> None:
        address = three.address(2)
        async with RawClient(address) as client, RawClient(three.address(1)) as other:
            await client.call(MetadataRequest(topics=None), 9)
            await three.stop_node(2)
            assert await client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                async with RawClient(address):
                    pass
            assert (await other.produce("t", BATCH)).error_code == 0  # the others are not affected
        await three.stop_node(2)  # again does nothing
        await three.start_node(2)
        assert three.address(2) == address
        async with RawClient(address) as client:
            await client.call(MetadataRequest(topics=None), 9)

    async def test_a_node_may_come_back_on_another_port(self, three: EmbeddedCluster) -> None:
        address = three.address(2)
        await three.stop_node(2)
        await three.start_node(2, new_port=True)
        assert three.address(2) != address
        assert three.bootstrap_servers.split(",")[1] == three.address(2)
        node = (await metadata(three)).brokers[1]
        assert f"{node.host}:{node.port}" == three.address(2)

    async def test_stopping_a_node_ends_what_waits_there(self, three: EmbeddedCluster) -> None:
        before = asyncio.all_tasks()
        async with RawClient(three.address(1)) as client:
            client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
            await until(lambda: len(three.requests) == 1)
            started = time.monotonic()
            await three.stop_node(1)
            assert time.monotonic() - started < 2
            assert await client.is_closed()
        assert asyncio.all_tasks() == before

    async def test_a_total_outage_and_its_end(self, three: EmbeddedCluster) -> None:
        addresses = three.bootstrap_servers
        async with RawClient(three.address(3)) as client:
            await client.produce("t", BATCH, partition=2)
            await three.stop_all()
            assert await client.is_closed()
        assert three.bootstrap_servers == addresses  # where they will be again
        for node_id in three.node_ids:
            with pytest.raises(ConnectionRefusedError):
                async with RawClient(three.address(node_id)):
                    pass
        await three.start()
        assert three.bootstrap_servers == addresses
        assert leaders(await metadata(three)) == [1, 2, 3]
        assert len(three.records("t")) == 1

    async def test_after_a_total_outage_those_who_come_back_lead(
        self, three: EmbeddedCluster
    ) -> None:
        await three.stop_all()
        await three.start_node(2, new_port=True)
        answer = await metadata(three, 2)
        assert (leaders(answer), [node.node_id for node in answer.brokers]) == ([2, 2, 2], [2])
        await three.start_node(3)
        assert leaders(await metadata(three, 3)) == [2, 2, 2]

    async def test_a_frozen_node_takes_everything_and_answers_nothing(
        self, three: EmbeddedCluster
    ) -> None:
        three.freeze_node(1)
        async with RawClient(three.address(1)) as frozen, RawClient(three.address(2)) as awake:
            frozen.send(produce_request("t", BATCH), 9)
            assert (await awake.produce("t", BATCH, partition=1)).error_code == 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await frozen.receive(ProduceRequest, 9)
            assert not three.records("t", 0)
            assert leaders(await metadata(three, 2)) == [1, 2, 3]  # the cluster has not noticed
            three.unfreeze_node(1)
            _, answer = await frozen.receive(ProduceRequest, 9)
        assert answer.responses[0].partition_responses[0].base_offset == 0

    async def test_freezing_keeps_back_a_response_in_flight(self, three: EmbeddedCluster) -> None:
        async with RawClient(three.address(1)) as client, RawClient(three.address(1)) as other:
            client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
            await until(lambda: len(three.requests) == 1)
            three.freeze_node(1)
            other.send(produce_request("t", BATCH), 9)
            three.move_leader("t", 0, 2)  # wakes the fetch
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.receive_frame()
            three.unfreeze_node(1)
            assert (await client.receive(FetchRequest, 12))[1].responses[0].partitions[
                0
            ].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            answer = (await other.receive(ProduceRequest, 9))[1].responses[0].partition_responses[0]
            # It is still an old leader.
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_a_frozen_node_can_be_stopped_and_starts_awake(
        self, three: EmbeddedCluster
    ) -> None:
        three.freeze_node(1)
        async with RawClient(three.address(1)) as client:
            client.send(produce_request("t", BATCH), 9)
            await three.stop_node(1)
            assert await client.is_closed()
        await three.start_node(1)
        await metadata(three, 1)

    @pytest.mark.virtual_time
    async def test_one_node_starts_quickly(self) -> None:
        """It waits for nothing, and has little to do."""
        loop = asyncio.get_running_loop()
        waited, worked = list[float](), list[float]()
        for _ in range(5):
            begun, used = loop.time(), time.process_time()
            async with EmbeddedCluster():
                waited.append(loop.time() - begun)
                worked.append(time.process_time() - used)
        assert max(waited) < 0.001 and min(worked) < 0.02


class TestMistakes:
    @pytest.mark.parametrize("nodes", [0, 101])
    def test_the_number_of_nodes(self, nodes: int) -> None:
        with pytest.raises(ConfigError, match=f"nodes={nodes}: must be 1 to 100"):
            EmbeddedCluster(nodes=nodes)

    @pytest.mark.parametrize("factor", [0, 4])
    def test_the_replication_factor(self, factor: int) -> None:
        with pytest.raises(ConfigError, match=f"replication_factor={factor}: must be 1 to 3"):
            EmbeddedCluster(nodes=3, replication_factor=factor)
        with pytest.raises(BrokerError, match=f"replication factor {factor}: must be 1 to 3"):
            EmbeddedCluster(nodes=3).create_topic("t", replication_factor=factor)

    async def test_unknown_nodes_are_named_with_the_limits(self, three: EmbeddedCluster) -> None:
        wrong = "node_id=4: must be 1 to 3"
        with pytest.raises(ConfigError, match=wrong):
            three.address(4)
        with pytest.raises(ConfigError, match=wrong):
            await three.stop_node(4)
        with pytest.raises(ConfigError, match=wrong):
            await three.start_node(4)
        with pytest.raises(ConfigError, match=wrong):
            three.freeze_node(4)
        with pytest.raises(ConfigError, match=wrong):
            three.move_leader("t", 0, 4)
        with pytest.raises(ConfigError, match=wrong):
            three.move_coordinator("group", "g", 4)
        with pytest.raises(ConfigError, match=wrong):
            three.on(ApiKey.PRODUCE, fail(ErrorCode.REQUEST_TIMED_OUT), node=4)

    async def test_what_can_not_be_done_now(self, three: EmbeddedCluster) -> None:
        with pytest.raises(ConfigError, match="node_id=2: this node is already running"):
            await three.start_node(2)
        with pytest.raises(ConfigError, match="already running"):
            await three.start()
        await three.stop_node(2)
        with pytest.raises(ConfigError, match="node_id=2: this node is stopped"):
            three.move_leader("t", 0, 2)
        with pytest.raises(ConfigError, match="node_id=2: this node is stopped"):
            three.freeze_node(2)
        three.create_topic("single", replication_factor=1)
        with pytest.raises(
            ConfigError, match=r"node_id=3: must be one of the replicas of single-0: \[1\]"
        ):
            three.move_leader("single", 0, 3)
        with pytest.raises(BrokerError, match="partitions 0 to 2, not 3"):
            three.move_leader("t", 3, 1)
        with pytest.raises(ConfigError, match="kind='groups'"):
            three.coordinator("groups", "g")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="node_id=1: this node has no port yet"):
            EmbeddedCluster().address(1)


async def test_ports_follow_the_first_one_and_a_failed_start_leaves_nothing_open(
    three: EmbeddedCluster,
) -> None:
    taken = int(three.address(2).rpartition(":")[2])
    broker = EmbeddedCluster(nodes=2, port=taken - 1)
    if taken - 1 != int(three.address(1).rpartition(":")[2]):
        with pytest.raises(OSError, match="address already in use"):
            await broker.start()
        with pytest.raises(ConnectionRefusedError):
            async with RawClient(f"127.0.0.1:{taken - 1}"):
                pass


def test_the_threaded_broker_has_all_calls() -> None:
    with EmbeddedCluster.in_thread(nodes=2) as broker:
        broker.create_topic("t", 2, replication_factor=2)
        assert broker.node_ids == (1, 2)
        broker.move_leader("t", 0, 2)
        assert broker.leader("t", 0) == 2
        broker.move_coordinator("group", "g", 2)
        assert broker.coordinator("group", "g") == 2
        broker.freeze_node(2)
        broker.unfreeze_node(2)
        address = broker.address(2)
        broker.stop_node(2)
        assert broker.bootstrap_servers == broker.address(1)
        broker.start_node(2, new_port=True)
        assert broker.connection_count(2) == 0
        assert broker.address(2) != address
        broker.stop_all()
        broker.start()
        assert len(broker.bootstrap_servers.split(",")) == 2
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.REQUEST_TIMED_OUT), node=1)
