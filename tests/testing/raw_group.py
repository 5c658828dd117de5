"""Members of a consumer group for tests, one request per call. Results are plain values, so that
those of two brokers can be compared.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.protocol.messages.delete_groups import DeleteGroupsRequest
from aioprod.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aioprod.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aioprod.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aioprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from aioprod.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.testing.raw_client import LIMIT_SECONDS, RawClient
from tests.testing.raw_transactions import ask_until, name

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")
Protocols = Sequence[tuple[str, bytes]]
_RANDOM_PART = len("-") + 36  # the random part of a member id
_UNREADY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def subscription(*topics: str) -> bytes:
    """Encode a subscription to these topics."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """Encode an assignment of these partitions."""
    return (
        struct.pack(">hih", 0, 1, len(topic))
        + topic.encode()
        + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)
    )


def group_requests(version: int) -> dict[ApiKey, Request[Any]]:
    """Return a request of each group API, for a group that does not exist yet."""
    one, leaving = (
        JoinGroupRequestProtocol("range", b""),
        MemberIdentity("m", "i" if version >= 3 else None),
    )
    return {
        ApiKey.JOIN_GROUP: JoinGroupRequest(
            "g", 10_000, 10_000 if version else -1, "", None, "consumer", [one]
        ),
        ApiKey.SYNC_GROUP: SyncGroupRequest(
            "g", 1, "m", None, *(("consumer", "range") if version >= 5 else (None, None))
        ),
        ApiKey.HEARTBEAT: HeartbeatRequest("g", 1, "m"),
        ApiKey.LEAVE_GROUP: LeaveGroupRequest("g", members=[leaving])
        if version >= 3
        else LeaveGroupRequest("g", "m"),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatRequest(
            "g",
            "m",
            0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest(["g"]),
        ApiKey.SHARE_GROUP_HEARTBEAT: ShareGroupHeartbeatRequest(
            "s", "m", 0, subscribed_topic_names=["t"]
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: ShareGroupDescribeRequest(["unknown"]),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: DescribeShareGroupOffsetsRequest(
            [
                DescribeShareGroupOffsetsRequestGroup(
                    "s", [DescribeShareGroupOffsetsRequestTopic("t", [0])]
                )
            ]
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsRequest(
            "s2",
            [
                AlterShareGroupOffsetsRequestTopic(
                    "t", [AlterShareGroupOffsetsRequestPartition(0, 0)]
                )
            ],
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsRequest(
            "s2", [DeleteShareGroupOffsetsRequestTopic("t")]
        ),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest(["g"], version >= 3),
        ApiKey.LIST_GROUPS: ListGroupsRequest(
            ["Stable"] if version >= 4 else [], ["classic"] if version >= 5 else []
        ),
        ApiKey.DELETE_GROUPS: DeleteGroupsRequest(["g"]),
        ApiKey.OFFSET_DELETE: OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        ),
    }


class Scene:
    """A group at a broker at ``address``, and its clients.

    Labels replace member ids: what Kafka puts before the random part (group.instance.id or
    client.id), and a number in the order in which ids with this beginning appear.
    """

    def __init__(self, address: str, group_id: str, topic: str, stack: AsyncExitStack) -> None:
        self.address = address
        self.group_id = group_id
        self.topic = topic
        self._stack = stack
        self._labels: dict[str, str] = {"": ""}
        self.client: RawClient

    async def member(self, **settings: Any) -> RawMember:
        """Make a client with its own connection, which has not joined yet."""
        return RawMember(
            self, await self._stack.enter_async_context(RawClient(self.address)), **settings
        )

    def label(self, member_id: str) -> str:
        """Return a name for a member id that is the same in each run."""
        if member_id not in self._labels:
            beginning = member_id[:-_RANDOM_PART]
            count = sum(known[:-_RANDOM_PART] == beginning for known in self._labels)
            self._labels[member_id] = f"{beginning}#{count}"
        return self._labels[member_id]

    @property
    def shares(self) -> dict[str, bytes]:
        """Return an assignment for each member so far that contains its label."""
        return {
            member_id: f"for {label}".encode()
            for member_id, label in self._labels.items()
            if member_id
        }

    async def ready(self) -> None:
        """Wait for the coordinator: a real broker creates its internal topics first."""
        asked = FindCoordinatorRequest(key=self.group_id)
        await ask_until(
            lambda answer: answer.error_code not in _UNREADY, lambda: self.client.call(asked, 2)
        )
        await ask_until(
            lambda answer: answer[0][0] not in ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
            self.describe,
        )

    async def stable(self, *members: RawMember) -> None:
        """Let members join at the same time, and let the leader assign ``assignment {n}`` to the
        n-th.
        """
        await asyncio.gather(*(member.join_twice() for member in members))
        await self.synced(*members)

    async def synced(self, *members: RawMember) -> None:
        """Give members that have joined their assignments."""
        shares = {
            member.member_id: b"assignment %d" % number for number, member in enumerate(members)
        }
        answers = await asyncio.gather(
            *(member.sync(shares if member.is_leader else {}) for member in members)
        )
        assert {answer[0] for answer in answers} == {"NONE"}, answers

    # -- from outside ------------------------------------------------------------------------------

    async def describe(
        self, *, version: int = 6, group_id: str | None = None, operations: bool = False
    ) -> list[tuple[object, ...]]:
        """Send DescribeGroups; return everything, and each member."""
        asked = DescribeGroupsRequest([self.group_id if group_id is None else group_id], operations)
        return self._described((await self.client.call(asked, version)).groups[0])

    def _described(self, found: DescribedGroup) -> list[tuple[object, ...]]:
        message = (
            None
            if found.error_message is None
            else found.error_message.replace(self.group_id, "GROUP")
        )
        members = [
            (
                self.label(each.member_id),
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.member_metadata,
                each.member_assignment,
            )
            for each in found.members
        ]
        first = (
            name(found.error_code),
            message,
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            found.authorized_operations,
        )
        return [first, *sorted(members, key=repr)]

    async def state(self) -> tuple[object, int]:
        """Send DescribeGroups; return the state and the number of members."""
        found = await self.describe()
        return found[0][2], len(found) - 1

    async def until(self, state: str, member_count: int) -> None:
        """Wait for a state."""
        await ask_until(lambda found: found == (state, member_count), self.state)

    async def listed(
        self, *, version: int = 5, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[tuple[str, ...]]:
        """Send ListGroups; return the entry of this group."""
        answer = await self.client.call(ListGroupsRequest(list(states), list(types)), version)
        assert not answer.error_code
        return [
            (each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id == self.group_id
        ]

    async def delete(self, *group_ids: str, version: int = 2) -> list[str]:
        """Send DeleteGroups for this group or others."""
        wanted = list(group_ids) or [self.group_id]
        answer = await self.client.call(DeleteGroupsRequest(wanted), version)
        found = {each.group_id: name(each.error_code) for each in answer.results}
        return [found[group_id] for group_id in wanted]  # the order is arbitrary

    async def delete_offsets(
        self, *places: tuple[str, int], group_id: str | None = None
    ) -> list[str]:
        """Send OffsetDelete; return the error of the request and of each partition."""
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index)])
            for topic, index in places
        ]
        answer = await self.client.call(
            OffsetDeleteRequest(self.group_id if group_id is None else group_id, topics), 0
        )
        found = {
            (topic.name, each.partition_index): name(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }
        # Failed ones are first.
        return [
            name(answer.error_code),
            *(found.get(place, "nothing") for place in places),
        ]

    async def offsets(self) -> list[tuple[int, int]]:
        """Send OffsetFetch; return all partitions and their offsets."""
        found = (
            await self.client.call(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group_id)]), 8
            )
        ).groups[0]
        assert not found.error_code, name(found.error_code)
        return sorted(
            (each.partition_index, each.committed_offset)
            for topic in found.topics
            for each in topic.partitions
        )

    async def remove(
        self,
        *members: tuple[str, str | None],
        version: int = 5,
        group_id: str | None = None,
        client: RawClient | None = None,
    ) -> list[object]:
        """Send LeaveGroup for member ids and instances; return the error of the request, and each
        member.
        """
        identities = [MemberIdentity(*each) for each in members]
        group_id = self.group_id if group_id is None else group_id
        asked = (
            LeaveGroupRequest(group_id, members=identities)
            if version >= 3
            else LeaveGroupRequest(group_id, identities[0].member_id)
        )
        answer = await (client or self.client).call(asked, version)
        return [
            name(answer.error_code),
            *(
                (self.label(each.member_id), each.group_instance_id, name(each.error_code))
                for each in answer.members
            ),
        ]


class RawMember:
    """A member whose requests are sent by hand. ``member_id``, ``generation_id`` and ``is_leader``
    follow the responses, but can be set.
    """

    def __init__(
        self,
        scene: Scene,
        client: RawClient,
        *,
        instance_id: str | None = None,
        protocols: Protocols | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        self.scene = scene
        self.client = client
        self.instance_id = instance_id
        self.protocols = (
            protocols if protocols is not None else [("range", subscription(scene.topic))]
        )
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation_id = -1
        self.is_leader = False

    @property
    def label(self) -> str:
        """See :meth:`Scene.label`."""
        return self.scene.label(self.member_id)

    async def _call(self, request: Request[ResponseT], version: int) -> ResponseT:
        return await self.client.call(request, version)

    async def join(self, *, version: int = 9) -> tuple[object, ...]:
        """Send JoinGroup; return error, generation, protocol type and name, leader, whether to skip
        the assignment, own id, members.
        """
        asked = JoinGroupRequest(
            self.scene.group_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms if version >= 1 else -1,
            self.member_id,
            self.instance_id if version >= 5 else None,
            self.protocol_type,
            [JoinGroupRequestProtocol(*each) for each in self.protocols],
        )
        answer = await self._call(asked, version)
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
            self.is_leader = answer.leader == answer.member_id
        label = self.scene.label
        own = label(answer.member_id)
        members = sorted(
            (label(each.member_id), each.group_instance_id, each.metadata)
            for each in answer.members
        )
        about = (
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            label(answer.leader),
            answer.skip_assignment,
        )
        return name(answer.error_code), *about, own, members

    async def join_twice(self) -> tuple[object, ...]:
        """Send JoinGroup, and again with the id from the first response."""
        answer = await self.join()
        return await self.join() if answer[0] == "MEMBER_ID_REQUIRED" else answer

    async def sync(
        self,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        protocol: tuple[str | None, str | None] | None = None,
    ) -> tuple[object, ...]:
        """Send SyncGroup; return error, protocol type and name, assignment."""
        names = protocol or (
            (self.protocol_type, self.protocols[0][0]) if version >= 5 else (None, None)
        )
        shares = [SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()]
        instance_id = self.instance_id if version >= 3 else None
        asked = SyncGroupRequest(
            self.scene.group_id, self.generation_id, self.member_id, instance_id, *names, shares
        )
        answer = await self._call(asked, version)
        return (
            name(answer.error_code),
            answer.protocol_type,
            answer.protocol_name,
            answer.assignment,
        )

    async def heartbeat(self, *, version: int = 4) -> str:
        """Send Heartbeat."""
        instance_id = self.instance_id if version >= 3 else None
        asked = HeartbeatRequest(
            self.scene.group_id, self.generation_id, self.member_id, instance_id
        )
        return name((await self._call(asked, version)).error_code)

    async def until_rebalance(self) -> str:
        """Send Heartbeat until the group rebalances."""
        return await ask_until(lambda found: found != "NONE", self.heartbeat)

    async def leave(self, *, version: int = 5) -> list[object]:
        """Send LeaveGroup."""
        identity = (self.member_id, self.instance_id if version >= 3 else None)
        return await self.scene.remove(identity, version=version, client=self.client)

    async def commit(self, offset: int, *, version: int = 9, partition: int = 0) -> str:
        """Send OffsetCommit for one partition."""
        topics = [
            OffsetCommitRequestTopic(
                self.scene.topic, partitions=[OffsetCommitRequestPartition(partition, offset)]
            )
        ]
        instance_id = self.instance_id if version >= 7 else None
        asked = OffsetCommitRequest(
            self.scene.group_id, self.generation_id, self.member_id, instance_id, topics=topics
        )
        return name((await self._call(asked, version)).topics[0].partitions[0].error_code)

    async def again(self, call: Callable[[], Coroutine[Any, Any, T]], **changed: object) -> T:
        """Send a request with other values than the member's, and restore them."""
        before = {key: getattr(self, key) for key in changed}
        for key, value in changed.items():
            setattr(self, key, value)
        try:
            return await call()
        finally:
            for key, value in before.items():
                setattr(self, key, value)


@asynccontextmanager
async def open_scene(address: str, group_id: str, topic: str) -> AsyncIterator[Scene]:
    """Open a group at a broker, and close its connections at the end."""
    async with asyncio.timeout(2 * LIMIT_SECONDS), AsyncExitStack() as stack:
        scene = Scene(address, group_id, topic, stack)
        scene.client = await stack.enter_async_context(RawClient(address))
        await scene.ready()
        yield scene
