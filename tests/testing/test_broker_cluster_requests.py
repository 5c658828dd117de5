"""Requests to a cluster of several nodes: the wrong node, coordinators, and rules for one node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from aioprod.testing import EmbeddedCluster, change_answer, fail
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.waiting import until

BATCH = make_batch([b"x"])
NO_NODE = -1


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


class TestWrongNode:
    @pytest.mark.parametrize(
        "version", range(ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION)
    )
    async def test_produce_names_the_leader_from_version_10(
        self, three: EmbeddedCluster, version: int
    ) -> None:
        three.move_leader("t", 0, 2)
        async with RawClient(three.address(1)) as client:
            answer = await client.call(produce_request("t", BATCH), version)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not three.records("t")
        hint = (part.current_leader.leader_id, part.current_leader.leader_epoch)
        endpoints = [(node.node_id, f"{node.host}:{node.port}") for node in answer.node_endpoints]
        assert (hint, endpoints) == (
            ((2, 1), [(2, three.address(2))]) if version >= 10 else ((-1, -1), [])
        )

    async def test_produce_to_a_partition_without_a_leader_names_no_leader(
        self, three: EmbeddedCluster
    ) -> None:
        three.create_topic("single", 2, replication_factor=1)
        await three.stop_node(2)
        async with RawClient(three.address(1)) as client:
            answer = await client.call(produce_request("single", BATCH, partition=1), 12)
        part = answer.responses[0].partition_responses[0]
        assert (
            part.error_code,
            part.current_leader.leader_id,
            part.current_leader.leader_epoch,
        ) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_NODE, 1)
        assert answer.node_endpoints == []

    async def test_without_acks_the_connection_is_closed(self, three: EmbeddedCluster) -> None:
        async with RawClient(three.address(2)) as client:
            client.send(produce_request("t", BATCH, acks=0), 9)
            assert await client.is_closed()

    @pytest.mark.parametrize("version", [11, 12, 15, 16, 17])
    @pytest.mark.parametrize(
        ("known_epoch", "code"),
        [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.FENCED_LEADER_EPOCH)],
    )
    async def test_fetch_names_the_leader_from_version_16(
        self, three: EmbeddedCluster, version: int, known_epoch: int, code: ErrorCode
    ) -> None:
        three.move_leader("t", 0, 3)
        request = fetch_request("t", 0)
        request.topics[0].partitions[0].current_leader_epoch = known_epoch
        request.topics[0].topic_id = three.topics["t"].topic_id
        if version >= 13:
            request.topics[0].topic = ""
        async with RawClient(three.address(1)) as client:
            answer = await client.call(request, version)
        part = answer.responses[0].partitions[0]
        assert part.error_code == code
        hint = (part.current_leader.leader_id, part.current_leader.leader_epoch)
        endpoints = [(node.node_id, f"{node.host}:{node.port}") for node in answer.node_endpoints]
        assert (hint, endpoints) == (
            ((3, 1), [(3, three.address(3))]) if version >= 16 else ((-1, -1), [])
        )

    async def test_list_offsets_is_refused(self, three: EmbeddedCluster) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic("t", [ListOffsetsPartition(partition_index=1, timestamp=-1)])],
        )
        async with RawClient(three.address(1)) as client:
            assert (await client.call(request, 7)).topics[0].partitions[
                0
            ].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_a_waiting_fetch_learns_of_the_new_leader_at_once(
        self, three: EmbeddedCluster
    ) -> None:
        async with RawClient(three.address(1)) as client:
            client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
            await until(lambda: len(three.requests) == 1)
            three.move_leader("t", 0, 2)
            _, answer = await client.receive(FetchRequest, 12)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestCoordinators:
    @pytest.mark.parametrize(("kind", "number"), [("group", 0), ("transaction", 1)])
    async def test_every_node_names_the_same_one_until_it_moves(
        self, three: EmbeddedCluster, kind: str, number: int
    ) -> None:
        async def found_by(node_id: int) -> tuple[int, str]:
            async with RawClient(three.address(node_id)) as client:
                answer = (
                    await client.call(
                        FindCoordinatorRequest(key_type=number, coordinator_keys=["me"]), 4
                    )
                ).coordinators[0]
                old = await client.call(FindCoordinatorRequest(key_type=number, key="me"), 2)
            assert (old.node_id, old.host, old.port) == (answer.node_id, answer.host, answer.port)
            return answer.node_id, f"{answer.host}:{answer.port}"

        before = await found_by(1)
        assert before[1] == three.address(before[0])
        assert [await found_by(2), await found_by(3)] == [before, before]
        other = before[0] % 3 + 1
        three.move_coordinator(kind, "me", other)  # type: ignore[arg-type]
        assert await found_by(1) == (other, three.address(other))
        assert three.coordinator("transaction" if kind == "group" else "group", "me") == before[0]
        await three.stop_node(other)
        successor = three.coordinator(kind, "me")  # type: ignore[arg-type]
        assert successor not in (other, NO_NODE)
        assert await found_by(successor) == (successor, three.address(successor))

    async def test_keys_are_spread(self, three: EmbeddedCluster) -> None:
        assert {three.coordinator("transaction", f"id {number}") for number in range(50)} == {
            1,
            2,
            3,
        }

    async def test_without_nodes_there_is_none(self, three: EmbeddedCluster) -> None:
        await three.stop_all()
        assert three.coordinator("group", "g") == NO_NODE


class TestHooks:
    async def test_a_rule_may_be_for_one_node(self, three: EmbeddedCluster) -> None:
        rule = three.on(ApiKey.PRODUCE, fail(ErrorCode.KAFKA_STORAGE_ERROR), node=2)
        async with RawClient(three.address(1)) as one, RawClient(three.address(2)) as two:
            assert (await one.produce("t", BATCH)).error_code == 0
            assert (
                await two.produce("t", BATCH, partition=1)
            ).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (
                three.connection_count(1),
                three.connection_count(2),
                three.connection_count(3),
            ) == (1, 1, 0)
        assert rule.used == 1
        assert [seen.node_id for seen in three.requests] == [1, 2]

    async def test_an_answer_may_be_changed(self, three: EmbeddedCluster) -> None:
        def lie(answer: ProduceResponse) -> None:
            answer.responses[0].partition_responses[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

        three.on(ApiKey.PRODUCE, change_answer(lie))
        async with RawClient(three.address(1)) as client:
            assert (await client.produce("t", BATCH)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await client.produce("t", BATCH)).base_offset == 1
