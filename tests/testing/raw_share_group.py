"""Members of a share group (KIP-932) for tests, one request per call. Results are plain values, so
that those of two brokers can be compared.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from aioprod.protocol.messages import share_acknowledge, share_fetch
from aioprod.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.delete_groups import DeleteGroupsRequest
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from aioprod.protocol.messages.share_fetch import ShareFetchRequest
from aioprod.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aioprod.protocol.record_reader import read_records
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_admin import configure_group
from tests.testing.raw_client import RawClient, make_batch
from tests.testing.raw_transactions import ask_until, name

Answer = tuple[Any, ...]
Run = tuple[int, int, Sequence[int]]  # first and last offset, types

# The first fetch of a group makes a real broker read the state of the partition, and perhaps create
# the topic for it. On a busy machine this takes longer than tests wait for records.
FIRST_WAIT_MS = 5_000


class ShareScene:
    """A share group and its topic at one broker.

    Attributes:
        topic_id: id of the topic.
        fetched: whether a fetch of a member has succeeded.
    """

    def __init__(self, address: str, unique: str) -> None:
        self.address = address
        self.group_id, self.topic = f"{unique}.g", f"{unique}.t"
        self.client = RawClient(address)
        self.topic_id = uuid.UUID(int=0)
        self.fetched = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.client)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    # -- topics and settings -----------------------------------------------------------------------

    async def create(self, partitions: int = 1, **configs: str) -> None:
        """Create the topic, and configure the group; ``share_x`` is ``share.x``."""
        wanted = CreatableTopic(self.topic, partitions, 1)
        self.topic_id = (await create_topics_with_leaders(self.address, wanted))[self.topic]
        coordinator = FindCoordinatorRequest(coordinator_keys=[self.group_id])
        await ask_until(
            lambda answer: not answer.coordinators[0].error_code,
            lambda: self.client.call(coordinator, 4),
        )
        await ask_until(lambda found: found[0] != "NOT_COORDINATOR", self.describe)
        settings = {"share_auto_offset_reset": "earliest", **configs}
        assert await self.configure(**settings) == "NONE"

    async def configure(self, **configs: str) -> str:
        """Set settings of the group; return the error."""
        settings = {key.replace("_", "."): text for key, text in configs.items()}
        return await configure_group(self.client, self.group_id, settings)

    async def write(self, *counts: int, partition: int = 0) -> None:
        """Write batches of that many records."""
        for count in counts:
            batch = make_batch([b"%d" % number for number in range(count)])
            answer = await self.client.produce(self.topic, batch, partition=partition)
            assert not answer.error_code

    async def delete_records(self, offset: int) -> None:
        """Move the start of the first partition."""
        topic = DeleteRecordsTopic(self.topic, [DeleteRecordsPartition(0, offset)])
        await self.client.call(DeleteRecordsRequest([topic], 10_000), 2)

    # -- the group ---------------------------------------------------------------------------------

    async def member(self, short: str) -> ShareMemberClient:
        """Make a member with a connection of its own, which has not joined yet."""
        client = await self._stack.enter_async_context(RawClient(self.address))
        return ShareMemberClient(self, short, client)

    async def describe(self) -> Answer:
        """Send ShareGroupDescribe; return the group and its members."""
        (found,) = (await self.client.call(ShareGroupDescribeRequest([self.group_id]), 1)).groups
        members = [
            (
                each.member_id,
                each.rack_id,
                each.client_id,
                each.client_host,
                len(each.subscribed_topic_names),
                self.plain(each.assignment.topic_partitions),
            )
            for each in found.members
        ]
        return (
            name(found.error_code),
            found.group_state,
            found.assignor_name,
            sorted(members, key=repr),
        )

    def plain(self, partitions: Sequence[Any]) -> list[int]:
        """Return the numbers of partitions of the topic."""
        assert {topic.topic_id for topic in partitions} <= {self.topic_id}
        return sorted(number for topic in partitions for number in topic.partitions)

    async def listed(self) -> list[Answer]:
        """Send ListGroups; return this group."""
        answer = await self.client.call(ListGroupsRequest([], ["share"]), 5)
        return [
            (each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id == self.group_id
        ]

    async def delete(self) -> str:
        """Send DeleteGroups; return the error."""
        answer = await self.client.call(DeleteGroupsRequest([self.group_id]), 2)
        return name(answer.results[0].error_code)

    # -- offsets -----------------------------------------------------------------------------------

    async def offsets(self, *numbers: int, topic: str | None = None) -> Answer:
        """Send DescribeShareGroupOffsets, for all partitions or for these."""
        wanted = DescribeShareGroupOffsetsRequestTopic(topic or self.topic, list(numbers))
        group = DescribeShareGroupOffsetsRequestGroup(self.group_id, [wanted] if numbers else None)
        answer = await self.client.call(DescribeShareGroupOffsetsRequest([group]), 1)
        (found,) = answer.groups
        partitions = [
            (each.partition_index, each.start_offset, each.lag, name(each.error_code))
            for topic_ in found.topics
            for each in topic_.partitions
        ]
        return name(found.error_code), sorted(partitions)

    async def alter(self, offsets: dict[int, int], topic: str | None = None) -> Answer:
        """Send AlterShareGroupOffsets."""
        asked = AlterShareGroupOffsetsRequestTopic(
            topic or self.topic,
            [AlterShareGroupOffsetsRequestPartition(*each) for each in offsets.items()],
        )
        answer = await self.client.call(AlterShareGroupOffsetsRequest(self.group_id, [asked]), 0)
        partitions = [
            (each.partition_index, name(each.error_code))
            for reported in answer.responses
            for each in reported.partitions
        ]
        return name(answer.error_code), sorted(partitions)

    async def forget(self, *topics: str) -> Answer:
        """Send DeleteShareGroupOffsets."""
        asked = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics or [self.topic]]
        answer = await self.client.call(DeleteShareGroupOffsetsRequest(self.group_id, asked), 0)
        return name(answer.error_code), [name(each.error_code) for each in answer.responses]


class ShareMemberClient:
    """A member whose requests are sent by hand. Both epochs follow the responses."""

    def __init__(self, scene: ShareScene, short: str, client: RawClient) -> None:
        self.scene = scene
        self.client = client
        self.member_id = short
        self.epoch = 0
        self.session = 0

    async def beat(self, *, topics: Sequence[str] | None = None, **fields: Any) -> Answer:
        """Send a heartbeat; return error and partitions."""
        request = ShareGroupHeartbeatRequest(
            self.scene.group_id,
            self.member_id,
            self.epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        for field, value in fields.items():
            setattr(request, field, value)
        answer = await self.scene.client.call(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        assigned = answer.assignment
        return (
            name(answer.error_code),
            answer.member_id == request.member_id,
            None if assigned is None else self.scene.plain(assigned.topic_partitions),
        )

    async def join(self, count: int = 1) -> None:
        """Join, and wait until this member has that many partitions."""
        self.epoch = 0
        answer = await self.beat(topics=[self.scene.topic])
        await ask_until(
            lambda found: found[2] is not None and len(found[2]) == count,
            lambda: self.beat(topics=[self.scene.topic]),
        )
        assert answer[0] == "NONE"

    async def leave(self) -> Answer:
        """Leave the group."""
        self.epoch = -1
        return await self.beat()

    async def fetch(
        self,
        *runs: Run,
        places: Sequence[int] = (0,),
        max_records: int = 500,
        batch_size: int = 500,
        wait_ms: int = 500,
        topic_id: uuid.UUID | None = None,
        **fields: Any,
    ) -> Answer:
        """Send a ShareFetch; return its error, and of each partition the errors and the acquired
        records with their delivery counts.
        """
        request = ShareFetchRequest(
            self.scene.group_id,
            self.member_id,
            self.session,
            max_wait_ms=wait_ms if self.scene.fetched else FIRST_WAIT_MS,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=max_records,
            batch_size=batch_size,
        )
        partitions = [
            share_fetch.FetchPartition(
                number,
                [share_fetch.AcknowledgementBatch(a, b, list(types)) for a, b, types in runs],
            )
            for number in places
        ]
        request.topics = [share_fetch.FetchTopic(topic_id or self.scene.topic_id, partitions)]
        for field, value in fields.items():
            setattr(request, field, value)
        answer = await self.client.call(request, 2)
        self._note(request.share_session_epoch, answer.error_code)
        self.scene.fetched |= not answer.error_code
        parts = [
            (each.partition_index, *self._plain(each))
            for topic in answer.responses
            for each in topic.partitions
        ]
        return name(answer.error_code), sorted(parts, key=repr)

    async def fetch_all(self, count: int) -> dict[int, int]:
        """Fetch until that many records were acquired; return their delivery counts."""
        found: dict[int, int] = {}

        async def fetch() -> int:
            for _, *_, acquired, _ in (await self.fetch(wait_ms=200))[1]:
                found.update(acquired)
            return len(found)

        await ask_until(lambda total: total >= count, fetch)
        return found

    def _plain(self, data: share_fetch.PartitionData) -> Answer:
        acquired = {
            offset: run.delivery_count
            for run in data.acquired_records
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        present = {record.offset for record in read_records(data.records or b"")}
        return (
            name(data.error_code),
            name(data.acknowledge_error_code),
            sorted(acquired.items()),
            sorted(acquired.keys() - present),  # without records: markers
        )

    async def acknowledge(
        self, *runs: Run, place: int = 0, topic_id: uuid.UUID | None = None, **fields: Any
    ) -> Answer:
        """Send a ShareAcknowledge; return its error, and that of the partition."""
        batches = [
            share_acknowledge.AcknowledgementBatch(a, b, list(types)) for a, b, types in runs
        ]
        partition = share_acknowledge.AcknowledgePartition(place, batches)
        request = ShareAcknowledgeRequest(
            self.scene.group_id,
            self.member_id,
            self.session,
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id or self.scene.topic_id, [partition])
            ]
            if runs
            else [],
        )
        for field, value in fields.items():
            setattr(request, field, value)
        answer = await self.client.call(request, 2)
        self._note(request.share_session_epoch, answer.error_code)
        return name(answer.error_code), [
            name(each.error_code) for topic in answer.responses for each in topic.partitions
        ]

    def _note(self, epoch: int, error: int) -> None:
        if not error:
            self.session = 0 if epoch < 0 else epoch + 1

    async def end(self) -> Answer:
        """End the share session."""
        return await self.acknowledge(share_session_epoch=-1)

    async def cut(self) -> None:
        """Cut the connection of this member, and make another."""
        self.client.writer.close()
        self.client = await self.scene._stack.enter_async_context(RawClient(self.scene.address))
        self.session = 0
        await asyncio.sleep(0)
