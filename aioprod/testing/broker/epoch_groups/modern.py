"""The common parts of groups whose coordinator assigns partitions: those of the consumer protocol
(KIP-848), and share groups (KIP-932). Kafka calls them modern groups.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.epoch_groups.member import NO_PARTITIONS, Partitions
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import Deadline
from aioprod.testing.broker.offsets import Committer

MemberT = TypeVar("MemberT")


class EpochGroupState(StrEnum):
    """Kafka's names for the states of a group."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the next heartbeat computes new targets
    RECONCILING = "Reconciling"  # some members are not at their targets yet
    STABLE = "Stable"


class TopicInfo(NamedTuple):
    """The data of a topic that groups use: its id and its number of partitions."""

    topic_id: uuid.UUID
    partition_count: int


Topics = Mapping[str, TopicInfo]


class Beat(NamedTuple):
    """The response to a heartbeat.

    Attributes:
        assignment: the member's partitions; None if they have not changed.
    """

    member_id: str
    epoch: int
    assignment: Partitions | None


@dataclass(slots=True)
class ModernGroup(ABC, Generic[MemberT]):
    """A group whose coordinator assigns partitions.

    Attributes:
        epoch: incremented by each change of members, subscriptions and topics.
        target_epoch: the epoch of ``targets``.
        targets: the partitions that each member is assigned.
        topics: the existing topics that members subscribe to in ``epoch``.
        members: by member id, in the order in which they joined.
        deadlines: in seconds of the event loop's clock.
    """

    group_id: str
    epoch: int = 1
    target_epoch: int = 0
    targets: dict[str, Partitions] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    members: dict[str, MemberT] = field(default_factory=dict)
    deadlines: dict[Deadline, float] = field(default_factory=dict)

    # -- for subclasses ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def state(self) -> EpochGroupState:
        """The current state."""

    @abstractmethod
    def check_commit(self, committer: Committer, *, in_transaction: bool) -> None:
        """Raise RequestError if the sender is not allowed to commit offsets."""

    @abstractmethod
    def _names_of(self, member: MemberT, topics: Topics) -> set[str]:
        """Return the existing topics that a member subscribes to."""

    @abstractmethod
    def _assign(self) -> None:
        """Compute the targets of the current epoch."""

    # -- members -----------------------------------------------------------------------------------

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members subscribe to."""
        return frozenset(self.topics)

    def target_of(self, member_id: str) -> Partitions:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, member_id: str) -> set[str]:
        """Return the existing topics that a member subscribes to."""
        return self._names_of(self.members[member_id], self.topics)

    def member(self, member_id: str) -> MemberT:
        """Return a member; raise RequestError if it does not exist."""
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def remove(self, member_id: str) -> None:
        """Remove a member. Other members get its partitions in their next heartbeats."""
        del self.members[member_id]
        self.targets.pop(member_id, None)
        self._drop_deadlines(member_id)
        self.epoch += 1
        wanted = self._wanted(self.topics)
        self.topics = {name: topic for name, topic in self.topics.items() if name in wanted}
        if not self.members:
            self._assign()

    def expire(self, now: float) -> None:
        """Remove the members whose sessions have expired."""
        for deadline, due in sorted(self.deadlines.items(), key=lambda each: each[1]):
            if due <= now and deadline.member_id in self.members:
                self.remove(deadline.member_id)

    def _drop_deadlines(self, member_id: str) -> None:
        for kind in ("session", "rebalance", "join", "sync"):
            self.deadlines.pop(Deadline(kind, member_id), None)

    # -- targets -----------------------------------------------------------------------------------

    def assign_again(self) -> None:
        """Begin a new epoch; the next heartbeat computes its targets.

        Raises:
            RequestError: if the group has no members.
        """
        if not self.members:
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no members"
            )
        self.epoch += 1

    def _refresh(self, topics: Topics, *, changed: bool) -> None:
        """Compute new targets if members, subscriptions or topics have changed."""
        present = {name: topics[name] for name in sorted(self._wanted(topics))}
        if changed or present != self.topics:
            self.topics = present
            self.epoch += 1
        if self.epoch > self.target_epoch:
            self._assign()

    def _wanted(self, topics: Topics) -> set[str]:
        return {name for each in self.members.values() for name in self._names_of(each, topics)}
