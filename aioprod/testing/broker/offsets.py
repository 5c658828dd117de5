"""What consumer groups have committed: offsets, and those that wait for the end of a transaction (KIP-98, KIP-447). Synchronous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.store_error import StoreError
from aioprod.types import TopicPartition

_MAX_METADATA_BYTES = 4096  # broker setting offset.metadata.max.bytes


class CommittedOffset(NamedTuple):
    """A committed position: the offset of the next record to read, the leader epoch of the last one read (-1: unknown), and a note."""

    offset: int
    leader_epoch: int
    metadata: str
    order: int  # of two commits the later one counts, also where it was made before the other's transaction ended


class Committer(NamedTuple):
    """Who commits: a member of the group in a generation, or (-1, "", None) somebody outside."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether it says that it is a member."""
        return self.generation_id >= 0 or self.member_id != "" or self.group_instance_id is not None


@dataclass(slots=True)
class Group:
    """One consumer group.

    Attributes:
        generation_id: of its members, who are ``members``: member id to group.instance.id or None.
        offsets: what is committed.
        pending: what open transactions want to commit, by producer id.
    """

    generation_id: int = 0
    members: dict[str, str | None] = field(default_factory=dict)
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        return any(partition in offsets for offsets in self.pending.values())

    def check(self, committer: Committer, *, in_transaction: bool) -> None:
        """Raise StoreError unless this member may commit offsets; whoever is none may while the group is empty, or in a transaction."""
        if committer.generation_id < 0 and not self.members:
            return
        if not committer.is_member:
            if not in_transaction:
                raise StoreError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and this is none")
            return
        instance = committer.group_instance_id
        if instance is not None and instance in self.members.values() and self.members.get(committer.member_id) != instance:
            raise StoreError(ErrorCode.FENCED_INSTANCE_ID, f"{instance} is another member by now")
        if committer.member_id not in self.members or (instance is not None and instance not in self.members.values()):
            raise StoreError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {committer.member_id!r}")
        if committer.generation_id != self.generation_id:
            raise StoreError(ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation_id}, not {committer.generation_id}")


class OffsetStore:
    """The offsets of all groups."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._commits = 0

    def check(self, group_id: str, committer: Committer, *, in_transaction: bool) -> None:
        """Raise StoreError where this member may not commit."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check(committer, in_transaction=in_transaction)
        elif committer.generation_id >= 0:
            raise StoreError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}, so none in generation {committer.generation_id}")

    def commit(self, group_id: str, partition: TopicPartition, offset: int, leader_epoch: int, metadata: str | None) -> None:
        """Commit at once; raise StoreError where the note is too long."""
        self._group(group_id).offsets[partition] = self._committed(offset, leader_epoch, metadata)

    def commit_in_transaction(
        self, group_id: str, producer_id: int, partition: TopicPartition, offset: int, leader_epoch: int, metadata: str | None
    ) -> None:
        """Keep for the end of the producer's transaction; raise StoreError where the note is too long."""
        committed = self._committed(offset, leader_epoch, metadata)
        self._group(group_id).pending.setdefault(producer_id, {})[partition] = committed

    def end(self, group_id: str, producer_id: int, commit: bool) -> None:
        """Commit or drop what waits for the end of a producer's transaction."""
        group = self._group(group_id)
        for partition, waiting in group.pending.pop(producer_id, {}).items():
            present = group.offsets.get(partition)
            if commit and (present is None or present.order < waiting.order):
                group.offsets[partition] = waiting

    def set_members(self, group_id: str, generation_id: int, members: Mapping[str, str | None]) -> None:
        """Give a group members: member id to group.instance.id or None."""
        group = self._group(group_id)
        group.generation_id, group.members = generation_id, dict(members)

    def forget_topic(self, name: str) -> None:
        """Drop the offsets of a topic that was deleted."""
        for group in self.groups.values():
            for offsets in (group.offsets, *group.pending.values()):
                for partition in [each for each in offsets if each.topic == name]:
                    del offsets[partition]

    def _group(self, group_id: str) -> Group:
        return self.groups.setdefault(group_id, Group())

    def _committed(self, offset: int, leader_epoch: int, metadata: str | None) -> CommittedOffset:
        if len((metadata or "").encode()) > _MAX_METADATA_BYTES:
            raise StoreError(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"the note is longer than {_MAX_METADATA_BYTES} bytes")
        self._commits += 1
        return CommittedOffset(offset, leader_epoch, metadata or "", self._commits)
