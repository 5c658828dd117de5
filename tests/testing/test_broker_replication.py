"""Replicas of the embedded broker: what acknowledgments wait for, what consumers see, and what is
lost when a leader is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError
from aioprod.protocol.messages.fetch import FetchRequest, PartitionData
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from aioprod.protocol.record_reader import read_records
from aioprod.testing import EmbeddedCluster
from tests.testing.raw_client import RawClient, fetch_request, make_batch, produce_request
from tests.testing.raw_transactions import V1, V2, TransactionalClient
from tests.waiting import until

BATCH = make_batch([b"x"])
NO_NODE = -1


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t")
        yield broker


def send(client: RawClient, batch: bytes = BATCH, *, timeout_ms: int = 60_000) -> None:
    request = produce_request("t", batch)
    request.timeout_ms = timeout_ms
    client.send(request, 12)


async def answered(client: RawClient) -> tuple[ErrorCode, int]:
    answer: ProduceResponse = (await client.receive(ProduceRequest, 12))[1]
    part = answer.responses[0].partition_responses[0]
    return ErrorCode.of(part.error_code), part.base_offset


async def read(client: RawClient, offset: int = 0, *, committed: bool = False) -> PartitionData:
    request = fetch_request("t", offset)
    request.isolation_level = int(committed)
    return (await client.call(request, 12)).responses[0].partitions[0]


def values(answer: PartitionData) -> list[bytes | None]:
    return [record.value for record in read_records(answer.records or b"")]


async def latest(client: RawClient, version: int = 7) -> tuple[ErrorCode, int]:
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]
    )
    found = (await client.call(request, version)).topics[0].partitions[0]
    return ErrorCode.of(found.error_code), found.offset


class TestHighWatermark:
    async def test_acks_all_waits_for_a_follower_and_acks_1_does_not(
        self, three: EmbeddedCluster
    ) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as waiting, RawClient(three.address(1)) as client:
            send(waiting, make_batch([b"all"]))
            assert (await client.produce("t", make_batch([b"one"]), acks=1)).base_offset == 1
            assert three.end_offsets("t", 0) == {1: 2, 2: 0, 3: 2}
            assert three.high_watermark("t", 0) == 0
            assert three.in_sync_replicas("t", 0) == (1, 2, 3)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await waiting.receive_frame()
            three.resume_replication(2)
            assert await answered(waiting) == (ErrorCode.NONE, 0)
            assert three.high_watermark("t", 0) == 2

    async def test_consumers_see_only_what_all_replicas_in_sync_have(
        self, three: EmbeddedCluster
    ) -> None:
        async with RawClient(three.address(1)) as client, RawClient(three.address(1)) as reader:
            await client.produce("t", make_batch([b"seen"]))
            three.pause_replication(3)
            await client.produce("t", make_batch([b"hidden"]), acks=1)
            answer = await read(client)
            assert (values(answer), answer.high_watermark, answer.last_stable_offset) == (
                [b"seen"],
                1,
                1,
            )
            # The leader has it, so an offset above the high watermark is not an error.
            assert (await read(client, 2)).error_code == 0
            assert (await read(client, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await latest(client) == (ErrorCode.NONE, 1)
            before = len(three.requests)
            reader.send(fetch_request("t", 1, max_wait_ms=60_000), 12)
            await until(lambda: len(three.requests) > before)
            three.resume_replication(3)
            _, response = await reader.receive(FetchRequest, 12)
            assert values(response.responses[0].partitions[0]) == [b"hidden"]
        assert [record.value for record in three.records("t")] == [b"seen", b"hidden"]

    async def test_the_answer_comes_when_the_request_times_out_and_the_record_stays(
        self, three: EmbeddedCluster
    ) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            batch = make_batch([b"x"], producer=(7, 0, 0))
            send(client, batch, timeout_ms=30)
            assert await answered(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert len(three.records("t")) == 1
            send(client, batch, timeout_ms=30)  # a duplicate waits as well
            assert await answered(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            three.resume_replication(2)
            send(client, batch)
            assert await answered(client) == (ErrorCode.NONE, 0)
        assert len(three.records("t")) == 1

    async def test_a_follower_that_lags_for_too_long_is_no_longer_waited_for(self) -> None:
        async with EmbeddedCluster(nodes=3, replica_lag_time_max_ms=40) as three:
            three.create_topic("t")
            three.pause_replication(2)
            loop = asyncio.get_running_loop()
            async with RawClient(three.address(1)) as client:
                started = loop.time()
                send(client)
                assert await answered(client) == (ErrorCode.NONE, 0)
                assert loop.time() - started >= 0.035
                assert (three.in_sync_replicas("t", 0), three.high_watermark("t", 0)) == ((1, 3), 1)
                three.resume_replication(2)
                assert three.in_sync_replicas("t", 0) == (1, 2, 3)

    async def test_a_follower_without_anything_to_get_stays_in_sync(self) -> None:
        async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=1) as two:
            two.create_topic("t")
            two.pause_replication(2)
            async with RawClient(two.address(1)) as client:
                await client.produce("t", BATCH, acks=1)
                two.resume_replication(2)
                two.pause_replication(2)
                await asyncio.sleep(0.01)
            assert two.in_sync_replicas("t", 0) == (1, 2)

    async def test_nothing_is_visible_while_too_few_are_in_sync(self) -> None:
        """KIP-966: the high watermark does not advance below min.insync.replicas, so records with
        acks=1 are not visible either.
        """
        async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=20) as two:
            two.create_topic("t", configs={"min.insync.replicas": "2"})
            two.pause_replication(2)
            async with RawClient(two.address(1)) as client:
                send(client, timeout_ms=60)
                assert await answered(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)
                assert two.in_sync_replicas("t", 0) == (1,)
                assert (
                    await client.produce("t", BATCH)
                ).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
                assert (await client.produce("t", BATCH, acks=1)).base_offset == 1
                assert values(await read(client)) == []
                two.resume_replication(2)
                assert len(values(await read(client))) == 2

    async def test_a_new_topic_counts_a_paused_node_as_in_sync(
        self, three: EmbeddedCluster
    ) -> None:
        three.pause_replication(2)
        three.create_topic("new")
        async with RawClient(three.address(1)) as client:
            await client.produce("new", BATCH, acks=1)
        assert (three.high_watermark("new", 0), three.end_offsets("new", 0)) == (
            0,
            {1: 1, 2: 0, 3: 1},
        )

    async def test_stopping_the_broker_leaves_no_timer(self) -> None:
        async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=60_000) as two:
            two.create_topic("t")
            two.pause_replication(2)
            async with RawClient(two.address(1)) as client:
                await client.produce("t", BATCH, acks=1)
            watch = two._store.lag_watch
            assert watch._timers
            await two.stop_all()
            assert not watch._timers
            await two.start()
            assert watch._timers
            two.delete_topic("t")
            assert not watch._timers


class TestKilledLeader:
    async def test_what_only_the_leader_has_is_lost(self, three: EmbeddedCluster) -> None:
        async with RawClient(three.address(1)) as client:
            await client.produce("t", make_batch([b"kept"], producer=(7, 0, 0)))
            three.pause_replication(2)
            three.pause_replication(3)
            assert (
                await client.produce("t", make_batch([b"lost"], producer=(7, 0, 1)), acks=1)
            ).base_offset == 1
            await three.kill_node(1)
        assert (three.leader("t", 0), three.in_sync_replicas("t", 0)) == (2, (2, 3))
        assert [record.value for record in three.records("t")] == [b"kept"]
        async with RawClient(three.address(2)) as client:
            again = await client.produce("t", make_batch([b"lost"], producer=(7, 0, 1)), acks=1)
            # The sequence is free again, because its batch is lost.
            assert (again.error_code, again.base_offset) == (
                0,
                1,
            )
            assert (
                await client.produce("t", make_batch([b"kept"], producer=(7, 0, 0)), acks=1)
            ).base_offset == 0  # a duplicate

    async def test_what_a_follower_has_is_kept(self, three: EmbeddedCluster) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            await client.produce("t", BATCH, acks=1)
            three.move_leader("t", 0, 3)
            await three.kill_node(1)
        assert (three.leader("t", 0), three.end_offsets("t", 0)) == (3, {1: 1, 2: 0, 3: 1})
        await three.start_node(1)
        assert three.in_sync_replicas("t", 0) == (1, 2, 3)

    async def test_a_waiting_producer_learns_of_the_new_leader(
        self, three: EmbeddedCluster
    ) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            send(client)
            await until(lambda: three.end_offsets("t", 0)[1] == 1)
            three.move_leader("t", 0, 2)
            answer: ProduceResponse = (await client.receive(ProduceRequest, 12))[1]
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 1)
        assert [node.node_id for node in answer.node_endpoints] == [2]
        assert not three.records("t")

    async def test_deleting_the_topic_ends_the_wait(self, three: EmbeddedCluster) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            send(client)
            await until(lambda: three.end_offsets("t", 0)[1] == 1)
            three.delete_topic("t")
            assert (await answered(client))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_a_proper_stop_replicates_first(self, three: EmbeddedCluster) -> None:
        three.pause_replication(2)
        three.pause_replication(3)
        async with RawClient(three.address(1)) as client:
            await client.produce("t", BATCH, acks=1)
        await three.stop_node(1)
        assert (three.leader("t", 0), three.high_watermark("t", 0), len(three.records("t"))) == (
            2,
            1,
            1,
        )

    async def test_a_follower_that_is_not_in_sync_does_not_lead(self) -> None:
        async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=1) as two:
            two.create_topic("t")
            two.pause_replication(2)
            async with RawClient(two.address(1)) as client:
                await client.produce("t", make_batch([b"kept"]))
                with pytest.raises(
                    ConfigError,
                    match=r"node_id=2: must be one of the in-sync replicas of t-0: \[1\]",
                ):
                    two.move_leader("t", 0, 2)
            await two.kill_node(1)
            assert (two.leader("t", 0), two.in_sync_replicas("t", 0)) == (NO_NODE, (1,))
            two.resume_replication(2)
            assert two.leader("t", 0) == NO_NODE
            await two.start_node(1)
            assert (two.leader("t", 0), two.in_sync_replicas("t", 0)) == (1, (1, 2))
            assert [record.value for record in two.records("t")] == [b"kept"]

    async def test_unclean_election_loses_acknowledged_records(self) -> None:
        async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=1) as two:
            two.create_topic("t", configs={"unclean.leader.election.enable": "true"})
            two.pause_replication(2)
            async with RawClient(two.address(1)) as client:
                await client.produce("t", BATCH)
                assert await latest(client) == (ErrorCode.NONE, 1)
            await two.kill_node(1)
            assert (
                two.leader("t", 0),
                two.in_sync_replicas("t", 0),
                two.high_watermark("t", 0),
            ) == (2, (2,), 0)
            async with RawClient(two.address(2)) as client:
                assert (await read(client, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert (await client.produce("t", make_batch([b"new"]))).base_offset == 0

    async def test_a_new_leader_does_not_name_the_end_before_others_have_it(
        self, three: EmbeddedCluster
    ) -> None:
        """KIP-207."""
        three.pause_replication(3)
        async with RawClient(three.address(1)) as client:
            await client.produce("t", BATCH, acks=1)
        await three.kill_node(1)
        async with RawClient(three.address(2)) as client:
            assert await latest(client) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
            assert await latest(client, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            three.resume_replication(3)
            assert await latest(client) == (ErrorCode.NONE, 1)

    async def test_memory_of_lost_records_is_free(self, three: EmbeddedCluster) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            await client.produce("t", BATCH, acks=1)
            assert three._store.memory.size > 0
            three.move_leader("t", 0, 2)
        assert three._store.memory.size == 0

    async def test_after_a_total_outage_a_lagging_replica_leads_with_what_it_has(
        self, three: EmbeddedCluster
    ) -> None:
        three.pause_replication(2)
        async with RawClient(three.address(1)) as client:
            await client.produce("t", BATCH, acks=1)
        await three.stop_all()
        await three.start_node(2)
        assert (three.leader("t", 0), three.in_sync_replicas("t", 0), len(three.records("t"))) == (
            2,
            (2,),
            0,
        )


class TestTransactions:
    async def test_a_marker_counts_when_all_replicas_have_it(self, three: EmbeddedCluster) -> None:
        three.move_coordinator("transaction", "tx", 1)
        async with RawClient(three.address(1)) as raw:
            client = TransactionalClient(raw, "tx", "t", V2)
            await client.init()
            await client.produce(b"a")
            three.pause_replication(2)
            await client.end(commit=True)
            answer = await read(raw, committed=True)
            assert (values(answer), answer.last_stable_offset) == ([], 0)
            three.resume_replication(2)
            answer = await read(raw, committed=True)
            assert answer.last_stable_offset == 2
            assert [record.value for record in three.records("t", committed_only=True)] == [b"a"]

    async def test_a_marker_that_was_lost_is_written_again(self, three: EmbeddedCluster) -> None:
        three.move_coordinator("transaction", "tx", 1)
        async with RawClient(three.address(1)) as raw:
            client = TransactionalClient(raw, "tx", "t", V2)
            await client.init()
            await client.produce(b"a")
            three.pause_replication(2)
            three.pause_replication(3)
            await client.end(commit=True)
            assert three.end_offsets("t", 0) == {1: 2, 2: 1, 3: 1}
        await three.kill_node(1)
        three.resume_replication(3)
        assert (three.leader("t", 0), three.end_offsets("t", 0)) == (2, {1: 1, 2: 2, 3: 2})
        assert [record.value for record in three.records("t", committed_only=True)] == [b"a"]
        async with RawClient(three.address(2)) as reader:
            assert (await read(reader, committed=True)).last_stable_offset == 2

    async def test_without_a_leader_markers_wait_for_one(self) -> None:
        async with EmbeddedCluster(nodes=2) as two:
            two.create_topic("t", replication_factor=1)
            two.move_coordinator("transaction", "tx", 2)
            async with (
                RawClient(two.address(1)) as leader,
                RawClient(two.address(2)) as coordinator,
            ):
                client = TransactionalClient(coordinator, "tx", "t", V1)
                await client.init()
                await client.add(0)
                client.client = leader
                await client.produce(b"a")
                client.client = coordinator
                await two.kill_node(1)
                await client.end(commit=False)
            assert two.high_watermark("t", 0) == 1
            await two.start_node(1)
            assert two.high_watermark("t", 0) == 2
            assert two.records("t", committed_only=True) == []


def test_the_threaded_broker_has_all_calls() -> None:
    with EmbeddedCluster.in_thread(nodes=2) as broker:
        broker.create_topic("t")
        broker.pause_replication(2)
        broker.resume_replication(2)
        assert (
            broker.high_watermark("t", 0),
            broker.end_offsets("t", 0),
            broker.in_sync_replicas("t", 0),
        ) == (0, {1: 0, 2: 0}, (1, 2))
        broker.kill_node(2)
        assert broker.in_sync_replicas("t", 0) == (1,)
        with pytest.raises(BrokerError, match="t has partitions 0 to 0, not 1"):
            broker.high_watermark("t", 1)


async def test_mistakes() -> None:
    broker = EmbeddedCluster(nodes=2)
    broker.create_topic("t")
    for call in (broker.pause_replication, broker.resume_replication):
        with pytest.raises(ConfigError, match="node_id=3: must be 1 to 2"):
            call(3)
    broker.pause_replication(2)  # also before the start
    assert broker.leader("t", 0) == 1
    with pytest.raises(ConfigError, match="replica_lag_time_max_ms=0: must be at least 1"):
        EmbeddedCluster(replica_lag_time_max_ms=0)
