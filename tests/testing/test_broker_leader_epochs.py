"""Leader epochs of the embedded broker: where each begins and ends, and what a consumer of lost
records learns (KIP-101, KIP-320, KIP-595).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import PartitionData
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aioprod.protocol.record_reader import read_records
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.leader_epochs import LeaderEpochs
from tests.testing.raw_client import RawClient, fetch_request, make_batch

NONE = (-1, -1)


def epochs(*begun: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs()
    for epoch, offset in begun:
        found.begin(epoch, offset)
    return found


class TestEpochs:
    @pytest.mark.parametrize(
        ("asked", "end"),
        [
            (-1, NONE),
            (0, (0, 10)),
            (1, (1, 20)),
            (2, (1, 20)),
            (3, (1, 20)),
            (4, (4, 35)),
            (5, NONE),
        ],
        ids=str,
    )
    def test_an_epoch_ends_where_the_next_one_begins(
        self, asked: int, end: tuple[int, int]
    ) -> None:
        assert epochs((1, 10), (4, 20)).find_end(asked, 35) == end

    def test_an_epoch_without_records_is_forgotten(self) -> None:
        found = epochs((1, 0), (2, 5), (3, 5))
        assert [found.find_end(epoch, 9) for epoch in range(4)] == [(0, 0), (1, 5), (1, 5), (3, 9)]

    def test_the_epoch_of_a_record(self) -> None:
        found = epochs((2, 10), (5, 20))
        assert [found.find(offset) for offset in (0, 9, 10, 19, 20, 99)] == [0, 0, 2, 2, 5, 5]

    def test_truncation_forgets_what_begins_behind(self) -> None:
        found = epochs((1, 10), (2, 20))
        found.truncate(20)
        assert found.find_end(1, 20) == (1, 20)
        assert found.latest_start == 10

    def test_what_ends_before_the_start_is_forgotten(self) -> None:
        found = epochs((1, 10), (2, 20))
        found.advance_start(15)
        assert (found.find(15), found.find_end(0, 30), found.find_end(1, 30)) == (
            1,
            (0, 15),
            (1, 20),
        )
        found.advance_start(20)
        assert found.find_end(1, 30) == (1, 20)
        assert found.find_end(2, 30) == (2, 30)


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    """Epoch 0 has offsets 0 and 1, epoch 1 of node 2 offset 2, epoch 2 of node 3 offset 3."""
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t")
        for node_id, values in ((1, [b"a", b"b"]), (2, [b"c"]), (3, [b"d"])):
            broker.move_leader("t", 0, node_id)
            async with RawClient(broker.address(node_id)) as client:
                await client.produce("t", make_batch(values))
        yield broker


async def ask(client: RawClient, epoch: int, known: int = -1) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, known, epoch)])]
    )
    return (await client.call(request, 4)).topics[0].partitions[0]


async def read(client: RawClient, offset: int, last_epoch: int) -> PartitionData:
    request = fetch_request("t", offset, max_wait_ms=60_000)
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch
    return (await client.call(request, 12)).responses[0].partitions[0]


class TestRequests:
    async def test_the_end_of_each_epoch(self, three: EmbeddedCluster) -> None:
        async with RawClient(three.address(3)) as client:
            found = [await ask(client, epoch) for epoch in range(4)]
        assert [(each.leader_epoch, each.end_offset) for each in found] == [
            (0, 2),
            (1, 3),
            (2, 4),
            NONE,
        ]

    @pytest.mark.parametrize(
        ("node_id", "known", "code"),
        [
            (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (1, 1, ErrorCode.FENCED_LEADER_EPOCH),
            (3, 1, ErrorCode.FENCED_LEADER_EPOCH),
            (3, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (3, 2, ErrorCode.NONE),
        ],
    )
    async def test_who_is_asked_and_what_the_client_knows(
        self, three: EmbeddedCluster, node_id: int, known: int, code: ErrorCode
    ) -> None:
        async with RawClient(three.address(node_id)) as client:
            assert (await ask(client, 0, known)).error_code == code

    async def test_list_offsets_shows_the_epoch_of_what_it_found(
        self, three: EmbeddedCluster
    ) -> None:
        async with RawClient(three.address(3)) as client:
            found = {}
            for timestamp in (-2, 0, -1):
                request = ListOffsetsRequest(
                    topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])]
                )
                partition = (await client.call(request, 7)).topics[0].partitions[0]
                found[timestamp] = (partition.offset, partition.leader_epoch)
        assert found == {-2: (0, 0), 0: (0, 0), -1: (4, 2)}

    @pytest.mark.parametrize(
        ("offset", "last_epoch"), [(0, 0), (2, 0), (2, 1), (3, 1), (3, 2), (2, -1)]
    )
    async def test_a_reader_of_this_log_gets_records(
        self, three: EmbeddedCluster, offset: int, last_epoch: int
    ) -> None:
        async with RawClient(three.address(3)) as client:
            answer = await read(client, offset, last_epoch)
        assert (answer.error_code, answer.diverging_epoch.end_offset) == (0, -1)
        assert answer.records

    @pytest.mark.parametrize(("offset", "last_epoch", "end"), [(3, 0, (0, 2)), (4, 1, (1, 3))])
    async def test_a_reader_of_lost_records_is_reported_at_once_where_they_end(
        self, three: EmbeddedCluster, offset: int, last_epoch: int, end: tuple[int, int]
    ) -> None:
        async with RawClient(three.address(3)) as client:
            answer = await read(client, offset, last_epoch)
        assert (answer.error_code, answer.records) == (0, b"")
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == end

    async def test_an_unknown_epoch_is_out_of_range(self, three: EmbeddedCluster) -> None:
        async with RawClient(three.address(3)) as client:
            assert (await read(client, 2, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_consumer_finds_out_that_records_it_read_were_lost() -> None:
    """Read, lose the records by an unclean election, write others to the same offsets, ask for the
    end of the epoch, and continue from there.
    """
    async with EmbeddedCluster(nodes=2, replica_lag_time_max_ms=1) as two:
        two.create_topic("t", configs={"unclean.leader.election.enable": "true"})
        async with RawClient(two.address(1)) as client:
            await client.produce("t", make_batch([b"kept"]))
            two.pause_replication(2)
            # Node 2 lags for too long, so it is no longer in sync.
            await client.produce("t", make_batch([b"lost"]))
            assert [
                each.value for each in read_records((await read(client, 0, -1)).records or b"")
            ] == [b"kept", b"lost"]
        await two.kill_node(1)
        async with RawClient(two.address(2)) as client:
            await client.produce("t", make_batch([b"other", b"one more"]))
            answer = await read(client, 2, 0)
            assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
            found = await ask(client, 0, known=1)
            assert (found.leader_epoch, found.end_offset) == (0, 1)
            records = read_records((await read(client, found.end_offset, 0)).records or b"")
            assert [each.value for each in records] == [b"other", b"one more"]
