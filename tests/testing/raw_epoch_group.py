"""Members of a group of the consumer protocol (KIP-848) for tests, one request per call. Results
are plain values, so that those of two brokers can be compared.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from aioprod.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_admin import configure_group
from tests.testing.raw_group import Scene
from tests.testing.raw_transactions import ask_until, name

Place = tuple[str, int]  # a topic, without the unique part of its name, and a partition
Answer = tuple[Any, ...]


class EpochScene:
    """A group of the consumer protocol at one broker.

    Attributes:
        ids: of topics, by their names without the unique part.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.client = scene.client
        self.group_id = scene.group_id
        self.ids: dict[str, uuid.UUID] = {}

    def topic(self, short: str) -> str:
        """Return the name of a topic."""
        return f"{self.group_id}.{short}"

    async def configure(self, settings: dict[str, str]) -> str:
        """Set settings of the group; return the error."""
        return await configure_group(self.client, self.group_id, settings)

    async def create(self, short: str, count: int) -> None:
        """Create a topic, and wait until its brokers know it."""
        wanted = CreatableTopic(self.topic(short), count, 1)
        ids = await create_topics_with_leaders(self.client.address, wanted)
        self.ids[short] = ids[wanted.name]
        # The coordinator of a real broker learns of it later.
        probe = EpochMemberClient(self, "probe")
        group_id = f"{self.group_id}.probe"
        await ask_until(
            lambda answer: len(answer[3]) == count, lambda: probe.join(short, group_id=group_id)
        )

    def member(self, short: str, **settings: Any) -> EpochMemberClient:
        """Make a member, which has not joined yet."""
        return EpochMemberClient(self, short, **settings)

    def plain(self, partitions: Sequence[Any]) -> list[Place]:
        """Return partitions that a response names by id."""
        shorts = {topic_id: short for short, topic_id in self.ids.items()}
        return sorted(
            (shorts[topic.topic_id], number) for topic in partitions for number in topic.partitions
        )

    async def describe(self, *, group_id: str | None = None) -> list[Answer]:
        """Send ConsumerGroupDescribe; return the group, and each member."""
        asked = ConsumerGroupDescribeRequest([self.group_id if group_id is None else group_id])
        (found,) = (await self.client.call(asked, 1)).groups
        members = [
            (
                each.member_id,
                each.instance_id,
                each.rack_id,
                each.member_epoch,
                each.client_id,
                each.client_host,
                sorted(topic.removeprefix(self.group_id) for topic in each.subscribed_topic_names),
                each.subscribed_topic_regex,
                self.plain(each.assignment.topic_partitions),
                self.plain(each.target_assignment.topic_partitions),
                each.member_type,
            )
            for each in found.members
        ]
        group = (
            name(found.error_code),
            found.group_state,
            found.group_epoch,
            found.assignment_epoch,
            found.assignor_name,
        )
        return [group, *sorted(members, key=repr)]


class EpochMemberClient:
    """A member whose heartbeats are sent by hand. ``epoch`` and ``interval_ms`` follow the
    responses.
    """

    def __init__(
        self, scene: EpochScene, short: str, *, instance_id: str | None = None, version: int = 1
    ) -> None:
        self.scene = scene
        self.member_id = short
        self.instance_id = instance_id
        self.version = version
        self.epoch = 0
        self.interval_ms = 0

    async def beat(
        self,
        *topics: str,
        owned: Sequence[Place] | None = None,
        timeout_ms: int = -1,
        **fields: Any,
    ) -> Answer:
        """Send a heartbeat; return error, epoch and assignment."""
        scene = self.scene
        request = ConsumerGroupHeartbeatRequest(
            scene.group_id, self.member_id, self.epoch, self.instance_id
        )
        request.rebalance_timeout_ms = timeout_ms
        if topics:
            request.subscribed_topic_names = [scene.topic(topic) for topic in topics]
        if owned is not None:
            request.topic_partitions = [
                TopicPartitions(topic_id, [number for topic, number in owned if topic == short])
                for short, topic_id in scene.ids.items()
                if any(topic == short for topic, _ in owned)
            ]
        for field, value in fields.items():
            setattr(request, field, value)
        answer = await scene.client.call(request, self.version)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            self.interval_ms = answer.heartbeat_interval_ms
        assigned = answer.assignment
        return (
            name(answer.error_code),
            answer.member_id if answer.member_id == self.member_id else answer.member_id is None,
            answer.member_epoch,
            None if assigned is None else scene.plain(assigned.topic_partitions),
        )

    async def join(self, *topics: str, timeout_ms: int = 60_000, **fields: Any) -> Answer:
        """Join, as a member without partitions."""
        self.epoch = 0
        return await self.beat(*topics, owned=[], timeout_ms=timeout_ms, **fields)

    async def leave(self, epoch: int = -1) -> Answer:
        """Leave the group, or for a while."""
        self.epoch = epoch
        return await self.beat()

    async def commit(self, offset: int, *, epoch: int | None = None) -> str:
        """Commit an offset of a topic's first partition."""
        place = OffsetCommitRequestPartition(0, offset)
        topic = OffsetCommitRequestTopic(self.scene.topic("t"), partitions=[place])
        request = OffsetCommitRequest(
            self.scene.group_id,
            self.epoch if epoch is None else epoch,
            self.member_id,
            self.instance_id,
            topics=[topic],
        )
        answer = await self.scene.client.call(request, 9)
        return name(answer.topics[0].partitions[0].error_code)

    async def fetch(self, *, epoch: int | None = None) -> str:
        """Ask for the committed offsets as this member; return the error."""
        wanted = OffsetFetchRequestGroup(
            self.scene.group_id, self.member_id, self.epoch if epoch is None else epoch, None
        )
        answer = await self.scene.client.call(OffsetFetchRequest(groups=[wanted]), 9)
        return name(answer.groups[0].error_code)
