"""The session of a KIP-848 member with its coordinator. Each heartbeat has only the fields that
have changed since the last answered one.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from aioprod.config.consumer import ConsumerConfig
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # of a static member that will return

TopicIdPartition = tuple[uuid.UUID, int]


class Wishes(NamedTuple):
    """The subscription of a member: topics, or a regular expression that the broker resolves."""

    topics: frozenset[str]
    regex: str | None


class MemberEpochs:
    """The state that a member and its coordinator have confirmed to each other.

    Attributes:
        member_id: made by the member, for the lifetime of the process.
        epoch: the member's epoch; 0 before it is in the group.
        first_epoch: the epoch in which this session began; 0 before it is in the group.
        target: the partitions that the coordinator assigns to this member; None before the first.
    """

    first_epoch: int
    epoch: int

    def __init__(self, config: ConsumerConfig, member_id: str) -> None:
        self.member_id: str = member_id
        self.epoch = self.first_epoch = JOIN_EPOCH
        self.target: frozenset[TopicIdPartition] | None = None
        self._config = config
        self._confirmed: Wishes | None = None
        self._confirmed_owned: frozenset[TopicIdPartition] | None = None
        self._sent: tuple[Wishes, frozenset[TopicIdPartition]] | None = None

    def begin(self) -> None:
        """Join, as a member without partitions."""
        self.epoch = self.first_epoch = JOIN_EPOCH
        self.target = None
        self.unanswered()

    def request(
        self, group_id: str, wishes: Wishes, owned: Collection[TopicIdPartition]
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat."""
        config = self._config
        have = frozenset(owned)
        self._sent = wishes, have
        request = ConsumerGroupHeartbeatRequest(
            group_id, self.member_id, self.epoch, config.group_instance_id
        )
        everything = self._confirmed is None or self.epoch == JOIN_EPOCH
        if everything:
            request.rack_id = config.client_rack or None
            request.rebalance_timeout_ms = int(config.max_poll_interval_ms)
            request.server_assignor = config.group_remote_assignor
        if everything or self._confirmed != wishes:
            # An empty expression removes the previous one.
            had_regex = self._confirmed is not None and self._confirmed.regex is not None
            request.subscribed_topic_regex = (
                wishes.regex if wishes.regex is not None or not had_regex else ""
            )
            request.subscribed_topic_names = sorted(wishes.topics)
        if everything or self._confirmed_owned != have:
            request.topic_partitions = [
                TopicPartitions(topic_id, numbers) for topic_id, numbers in _by_topic(have).items()
            ]
        return request

    def answered(self, reply: ConsumerGroupHeartbeatResponse) -> bool:
        """Handle the response to the last heartbeat; return whether it has an assignment."""
        assert self._sent is not None
        self._confirmed, self._confirmed_owned = self._sent
        if self.epoch == JOIN_EPOCH:
            self.first_epoch = reply.member_epoch
        self.epoch = reply.member_epoch
        self.member_id = reply.member_id or self.member_id
        if reply.assignment is None:
            return False
        self.target = frozenset(
            (each.topic_id, number)
            for each in reply.assignment.topic_partitions
            for number in each.partitions
        )
        return True

    def unanswered(self) -> None:
        """Send all fields in the next heartbeat: the coordinator may have missed the last one."""
        self._confirmed = self._confirmed_owned = None

    def leave(self, group_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group."""
        epoch = LEAVE_EPOCH if self._config.group_instance_id is None else LEAVE_FOR_A_WHILE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id, self.member_id, epoch, self._config.group_instance_id
        )


class TopicIds:
    """The known topics: names by id, and ids by name."""

    def __init__(self) -> None:
        self._names: dict[uuid.UUID, str] = {}
        self._ids: dict[str, uuid.UUID] = {}

    def learn(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Add names and ids. A topic that is deleted and created again has another id."""
        for name, topic_id in ids.items():
            if topic_id.int:
                self._names[topic_id] = name
                self._ids[name] = topic_id

    def name(self, topic_id: uuid.UUID) -> str | None:
        """Return a topic's name, None if it is unknown."""
        return self._names.get(topic_id)

    def with_ids(self, partitions: Iterable[tuple[str, int]]) -> frozenset[TopicIdPartition]:
        """Return partitions with the ids of their topics; those of unknown topics are left out."""
        return frozenset(
            (self._ids[topic], number) for topic, number in partitions if topic in self._ids
        )


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[uuid.UUID, list[int]]:
    topics: dict[uuid.UUID, list[int]] = defaultdict(list)
    for topic_id, number in sorted(partitions):
        topics[topic_id].append(number)
    return topics
