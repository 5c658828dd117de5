"""Fetch sessions, leader epochs, special offsets and repeated partitions, compared with a real
Apache Kafka broker.

The comparison leaves out the number of a session and the order of partitions with errors.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aioprod.testing import EmbeddedCluster
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient, fetch_request, make_batch

Exchange = Callable[[RawClient, "Names"], Coroutine[Any, Any, list[object]]]
ZERO = uuid.UUID(int=0)


def name(code: int) -> str:
    return ErrorCode.of(code).name


class Names:
    """Two topics of two partitions on one broker, and an id that none of them has."""

    def __init__(self, ids: list[uuid.UUID], names: list[str]) -> None:
        self.ids = ids
        self.names = names
        self.unknown = uuid.uuid4()

    def asked(self, topic: int, version: int, *offsets: int | None) -> FetchTopic:
        """Return requests for partitions 0, 1, ... of a topic from these offsets on; None skips a
        partition.
        """
        wanted = [(index, offset) for index, offset in enumerate(offsets) if offset is not None]
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in wanted
        ]
        by_id = version >= 13
        return FetchTopic(
            topic="" if by_id else self.names[topic],
            topic_id=self.ids[topic] if by_id else ZERO,
            partitions=partitions,
        )

    def label(self, topic: str, topic_id: uuid.UUID) -> str:
        """Return the name of a topic in comparisons."""
        if topic_id.int:
            return f"topic {self.ids.index(topic_id)}" if topic_id in self.ids else "unknown"
        return f"topic {self.names.index(topic)}" if topic in self.names else topic


class Session:
    """The consumer's side of a fetch session."""

    def __init__(self, client: RawClient, names: Names, version: int) -> None:
        self.client, self.names, self.version = client, names, version
        self.session_id, self.epoch = 0, 0
        self.said: list[object] = []

    async def fetch(
        self,
        *topics: FetchTopic,
        forget: dict[int, list[int]] | None = None,
        epoch: int | None = None,
        version: int | None = None,
    ) -> FetchResponse:
        """Fetch, record the response, and advance to the next epoch."""
        version = self.version if version is None else version
        forgotten = [
            ForgottenTopic(
                "" if version >= 13 else self.names.names[topic],
                self.names.ids[topic] if version >= 13 else ZERO,
                partitions,
            )
            for topic, partitions in (forget or {}).items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=list(topics),
            forgotten_topics_data=forgotten,
        )
        answer = await self.client.call(request, version)
        self.said.append(self.describe(answer))
        if not answer.error_code and epoch is None:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer

    def describe(self, answer: FetchResponse) -> object:
        """Describe the response without the session's number."""
        partitions = [
            (
                self.names.label(topic.topic, topic.topic_id),
                each.partition_index,
                name(each.error_code),
                (each.high_watermark, each.last_stable_offset, each.log_start_offset)
                if not each.error_code
                else each.high_watermark,
                (each.diverging_epoch.epoch, each.diverging_epoch.end_offset),
                each.records or b"",
            )
            for topic in answer.responses
            for each in topic.partitions
        ]
        partitions.sort(key=lambda each: each[2] if each[2] != "NONE" else "")
        session = (
            "none"
            if not answer.session_id
            else "same"
            if answer.session_id == self.session_id
            else "new"
        )
        return name(answer.error_code), session, partitions


def sessions(version: int) -> Exchange:
    async def exchange(client: RawClient, names: Names) -> list[object]:
        session = Session(client, names, version)
        await client.produce(names.names[0], make_batch([b"a", b"b"]))
        # A full fetch returns everything.
        await session.fetch(names.asked(0, version, 0, 0), names.asked(1, version, 0))
        # From the same offsets: the records again, but not the other partitions.
        await session.fetch()
        await session.fetch(names.asked(0, version, 2))
        await session.fetch()
        await client.produce(names.names[1], make_batch([b"c"]))
        await client.produce(names.names[0], make_batch([b"d"]), partition=1)
        await session.fetch()
        await session.fetch(names.asked(0, version, None, 1), names.asked(1, version, 1))
        await session.fetch(names.asked(1, version, None, 0))  # one more partition
        # An error is returned every time, and its end too.
        await session.fetch(names.asked(0, version, 99))
        await session.fetch()
        await session.fetch(names.asked(0, version, 2))
        await session.fetch()
        await session.fetch(epoch=1)  # errors do not end a session
        await session.fetch(epoch=session.epoch + 1)
        await session.fetch(forget={0: [0], 1: [0, 1, 5]})
        await client.produce(names.names[0], make_batch([b"e"]), partition=1)
        await client.produce(names.names[0], make_batch([b"f"]))
        await session.fetch()
        await session.fetch(version=12 if version >= 13 else 13)
        await session.fetch(forget={0: [1]})  # the last one: the session ends
        session.session_id = 0
        await session.fetch(names.asked(0, version, 3), epoch=0)
        session.session_id, session.epoch = 12345, 1
        await session.fetch()
        # Ends a session that is not there.
        await session.fetch(names.asked(0, version, 3), epoch=-1)
        return session.said

    exchange.__name__ = f"sessions_version_{version}"
    return exchange


async def full_requests_end_a_session(client: RawClient, names: Names) -> list[object]:
    session = Session(client, names, 13)
    await session.fetch(names.asked(0, 13, 0))
    first = session.session_id
    for epoch in (0, -1):
        await session.fetch(names.asked(0, 13, 0), epoch=epoch)
        await session.fetch(epoch=1)
    assert first
    session.session_id, session.epoch = 0, 0
    await session.fetch()  # a session of nothing
    await session.fetch()
    return session.said


async def unknown_topics_in_a_session(client: RawClient, names: Names) -> list[object]:
    session = Session(client, names, 13)
    unknown = FetchTopic(
        topic_id=names.unknown,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
    )
    await session.fetch(names.asked(0, 13, 0, None, 0), unknown)
    await session.fetch()
    await session.fetch()
    return session.said


async def an_epoch_that_ends_before_the_reader(client: RawClient, names: Names) -> list[object]:
    answers: list[object] = []
    session = Session(client, names, 12)
    await client.produce(names.names[0], make_batch([b"a", b"b"]))
    for offset in (0, 2, 3, -1):
        for epoch in (-1, 0, 1, 5):
            asked = names.asked(0, 12, offset)
            asked.partitions[0].last_fetched_epoch = epoch
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, topics=[asked]
            )
            answers.append((offset, epoch, session.describe(await client.call(request, 12))))
    return answers


async def offsets_for_leader_epochs(client: RawClient, names: Names) -> list[object]:
    answers: list[object] = []
    for batch in (None, make_batch([b"a", b"b"])):
        if batch is not None:
            await client.produce(names.names[0], batch)
        for version in (2, 3, 4):
            for known in (-1, 0, 1):
                for wanted in (-1, 0, 1, 2**31 - 1):
                    asked = OffsetForLeaderTopic(
                        names.names[0], [OffsetForLeaderPartition(0, known, wanted)]
                    )
                    found = (
                        (
                            await client.call(
                                OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), version
                            )
                        )
                        .topics[0]
                        .partitions[0]
                    )
                    answers.append(
                        (
                            version,
                            known,
                            wanted,
                            name(found.error_code),
                            found.partition,
                            found.leader_epoch,
                            found.end_offset,
                        )
                    )
    places = [(names.names[0], 9), ("unknown-" + names.names[0], 0)]
    for topic, partition in places:
        asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(partition, -1, 0)])
        found = (
            (await client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), 4))
            .topics[0]
            .partitions[0]
        )
        answers.append((name(found.error_code), found.leader_epoch, found.end_offset))
    return answers


async def offsets_after_records_were_deleted(client: RawClient, names: Names) -> list[object]:
    answers: list[object] = []
    topic = names.names[0]
    for times in ([100, 200], [300, 250], [50, 60]):
        await client.produce(topic, make_batch([b"x"] * len(times), timestamps=times))
    for start in (0, 3, 6):
        delete = DeleteRecordsRequest(
            [DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, start)])], 10_000
        )
        deleted = (await client.call(delete, 2)).topics[0].partitions[0]
        answers.append((start, name(deleted.error_code), deleted.low_watermark))
        for timestamp in (-1, -2, -4, 260) if start < 6 else (-1, -2, -4):
            asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])
            found = (
                (await client.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 8))
                .topics[0]
                .partitions[0]
            )
            answers.append(
                (
                    timestamp,
                    name(found.error_code),
                    found.offset,
                    found.timestamp,
                    found.leader_epoch,
                )
            )
        session = Session(client, names, 12)
        for offset in (0, 2, 3, 6):
            answers.append(session.describe(await client.call(fetch_request(topic, offset), 12)))
        asked_epoch = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, 0)])
        found_epoch = (
            (await client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked_epoch]), 4))
            .topics[0]
            .partitions[0]
        )
        answers.append(
            (name(found_epoch.error_code), found_epoch.leader_epoch, found_epoch.end_offset)
        )
        produced = await client.produce(topic, make_batch([b"y"]), partition=1)
        answers.append((produced.base_offset, produced.log_start_offset))
    return answers


async def partitions_named_twice(client: RawClient, names: Names) -> list[object]:
    asked = [ListOffsetsPartition(index, -1, -1) for index in (0, 1, 0)]
    listed = await client.call(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(names.names[0], asked)]), 7
    )
    return [
        sorted(
            {
                (each.partition_index, name(each.error_code), each.offset)
                for topic in listed.topics
                for each in topic.partitions
            }
        )
    ]


EXCHANGES: list[Exchange] = [
    sessions(7),
    sessions(12),
    sessions(13),
    sessions(17),
    full_requests_end_a_session,
    unknown_topics_in_a_session,
    an_epoch_that_ends_before_the_reader,
    offsets_for_leader_epochs,
    offsets_after_records_were_deleted,
    partitions_named_twice,
]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
async def test_both_brokers_say_the_same(kafka: str, exchange: Exchange) -> None:
    names = [f"reading-{uuid.uuid4().hex}" for _ in range(2)]
    answers: list[list[object]] = []
    async with EmbeddedCluster() as embedded:
        for address in (kafka, embedded.bootstrap_servers):
            async with RawClient(address) as client:
                ids = await create_topics_with_leaders(
                    address, *(CreatableTopic(each, 2, 1) for each in names)
                )
                answers.append(await exchange(client, Names([ids[each] for each in names], names)))
    real, own = answers
    assert own == real
