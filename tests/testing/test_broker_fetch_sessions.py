"""Fetch sessions (KIP-227): what a node remembers, for how many consumers, and when it forgets.
test_broker_reading_differential.py compares the responses with a real Kafka's.
"""

from __future__ import annotations

import random

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.fetch_sessions import FetchSessions, RequestedPartition
from tests.testing.raw_client import RawClient, fetch_request, make_batch
from tests.waiting import until

VERSION = 12


def request(*partitions: int, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index) for index in partitions]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
    )


def answers(*partitions: int, records: bytes = b"") -> dict[RequestedPartition, PartitionData]:
    return {
        place(index): PartitionData(
            partition_index=index, high_watermark=5, log_start_offset=0, records=records
        )
        for index in partitions
    }


def place(index: int) -> RequestedPartition:
    return RequestedPartition("t", FetchTopic().topic_id, index)


def open_session(sessions: FetchSessions, *partitions: int, now: float = 0.0) -> int:
    return sessions.begin(request(*partitions), VERSION, now).finish(answers(*partitions), now)[0]


def is_known(sessions: FetchSessions, session_id: int) -> bool:
    return session_id in sessions._sessions


class TestSessions:
    def test_who_got_records_waits_for_the_others(self) -> None:
        sessions = FetchSessions(random.Random(1))
        session_id = open_session(sessions, 0, 1, 2)
        context = sessions.begin(request(session_id=session_id, epoch=1), VERSION, 1.0)
        assert list(context.asked) == [place(0), place(1), place(2)]
        context.finish({**answers(0, records=b"x"), **answers(1, 2)}, 1.0)
        assert list(
            sessions.begin(request(session_id=session_id, epoch=2), VERSION, 1.0).asked
        ) == [place(1), place(2), place(0)]

    def test_a_copy_of_a_request_ends_the_first_one(self) -> None:
        """The first request is still waiting for records when the second arrives."""
        sessions = FetchSessions(random.Random(1))
        session_id = open_session(sessions, 0)
        first = sessions.begin(request(session_id=session_id, epoch=1), VERSION, 0.0)
        second = sessions.begin(request(session_id=session_id, epoch=2), VERSION, 0.0)
        with pytest.raises(RequestError) as caught:
            first.finish(answers(0), 0.0)
        assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert second.finish(answers(0), 0.0) == (session_id, {})

    def test_after_the_highest_epoch_comes_1(self) -> None:
        sessions = FetchSessions(random.Random(1))
        session_id = open_session(sessions, 0)
        sessions._sessions[session_id].epoch = 2**31 - 1
        sessions.begin(request(session_id=session_id, epoch=2**31 - 1), VERSION, 0.0)
        sessions.begin(request(session_id=session_id, epoch=1), VERSION, 0.0)


class TestRoom:
    def test_a_full_node_makes_no_session_for_as_little(self) -> None:
        sessions = FetchSessions(random.Random(1), limit=2)
        first = [open_session(sessions, 0, 1), open_session(sessions, 0, 1)]
        assert open_session(sessions, 0, 1, 2, now=60.0) == 0  # recent sessions are kept
        for session_id in first:
            sessions.begin(request(session_id=session_id, epoch=1), VERSION, 100.0)
        assert open_session(sessions, 0, 1, now=130.0) == 0
        assert len(sessions) == 2

    def test_who_reads_more_takes_the_place_of_who_reads_least(self) -> None:
        sessions = FetchSessions(random.Random(1), limit=2)
        large, small = open_session(sessions, 0, 1), open_session(sessions, 0)
        for session_id in (large, small):
            sessions.begin(request(session_id=session_id, epoch=1), VERSION, 100.0)
        new = open_session(sessions, 0, 1, now=130.0)
        assert new
        assert [is_known(sessions, each) for each in (large, small, new)] == [True, False, True]

    def test_who_is_idle_makes_room_for_anybody(self) -> None:
        sessions = FetchSessions(random.Random(1), limit=2)
        idle, busy = open_session(sessions, 0, 1, 2), open_session(sessions, 0)
        sessions.begin(request(session_id=busy, epoch=1), VERSION, 100.0)
        new = open_session(sessions, 0, now=130.0)
        assert [is_known(sessions, each) for each in (idle, busy, new)] == [False, True, True]


class TestNodes:
    async def test_a_waiting_fetch_of_a_session_answers_only_what_is_new(
        self, broker: EmbeddedCluster
    ) -> None:
        broker.create_topic("t", 2)
        async with (
            RawClient(broker.bootstrap_servers) as reader,
            RawClient(broker.bootstrap_servers) as writer,
        ):
            asked = fetch_request("t", 0, 0)
            asked.session_epoch = 0
            session_id = (await reader.call(asked, VERSION)).session_id
            reader.send(
                FetchRequest(
                    max_wait_ms=60_000, min_bytes=1, session_id=session_id, session_epoch=1
                ),
                VERSION,
            )
            await until(lambda: len(broker.requests) == 2)
            await writer.produce("t", make_batch([b"x"]), partition=1)
            _, answer = await reader.receive(FetchRequest, VERSION)
        assert [
            (each.partition_index, each.high_watermark) for each in answer.responses[0].partitions
        ] == [(1, 1)]
        assert answer.session_id == session_id

    async def test_sessions_belong_to_a_node_and_end_with_it(self) -> None:
        async with EmbeddedCluster(nodes=2) as two:
            two.create_topic("t", 2)
            asked = fetch_request("t", 0)
            asked.session_epoch = 0

            async def go_on(node_id: int, epoch: int) -> int:
                async with RawClient(two.address(node_id)) as client:
                    return (
                        await client.call(
                            FetchRequest(session_id=session_id, session_epoch=epoch), VERSION
                        )
                    ).error_code

            async with RawClient(two.address(1)) as client:
                session_id = (await client.call(asked, VERSION)).session_id
            assert session_id
            assert await go_on(1, 1) == 0  # it outlives its connection
            assert await go_on(2, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            await two.stop_node(1)
            await two.start_node(1)
            assert await go_on(1, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    async def test_the_same_seed_gives_the_same_sessions(self) -> None:
        found = []
        for _ in range(2):
            async with EmbeddedCluster(random_source=random.Random(5)) as broker:
                broker.create_topic("t")
                asked = fetch_request("t", 0)
                asked.session_epoch = 0
                async with RawClient(broker.bootstrap_servers) as client:
                    found.append((await client.call(asked, VERSION)).session_id)
        assert found[0] == found[1]
