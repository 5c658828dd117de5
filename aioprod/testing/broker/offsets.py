"""The offsets of consumer groups: committed, or pending until a transaction ends (KIP-98, 447)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.types import TopicPartition

_MAX_METADATA_BYTES = 4096  # broker setting offset.metadata.max.bytes


class CommittedOffset(NamedTuple):
    """The offset of the next record to read, the leader epoch of the last record read (-1 if
    unknown), and the client's metadata.
    """

    offset: int
    leader_epoch: int
    metadata: str
    # The later of two commits wins, even if the transaction of the earlier one ends after it.
    order: int


class Committer(NamedTuple):
    """The sender of a commit: a member in a generation of the group, or (-1, "", None) for a client
    that is not a member.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """True if the request names a member."""
        return self.generation_id >= 0 or self.member_id != "" or self.group_instance_id is not None


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one consumer group.

    Attributes:
        committed: the committed offsets.
        pending: the offsets of open transactions, by producer id.
    """

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction may still change the offset of a partition."""
        return any(partition in offsets for offsets in self.pending.values())


class OffsetStore:
    """The offsets of all groups."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupOffsets] = {}
        self._commits = 0

    def commit(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
    ) -> None:
        """Commit an offset; raise RequestError if the metadata is too long."""
        self._group(group_id).committed[partition] = self._committed(offset, leader_epoch, metadata)

    def commit_in_transaction(
        self,
        group_id: str,
        producer_id: int,
        partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
    ) -> None:
        """Keep an offset until the producer's transaction ends; raise RequestError if the metadata
        is too long.
        """
        committed = self._committed(offset, leader_epoch, metadata)
        self._group(group_id).pending.setdefault(producer_id, {})[partition] = committed

    def end(self, group_id: str, producer_id: int, commit: bool) -> None:
        """Commit or drop the pending offsets of a producer's transaction."""
        group = self._group(group_id)
        for partition, waiting in group.pending.pop(producer_id, {}).items():
            present = group.committed.get(partition)
            if commit and (present is None or present.order < waiting.order):
                group.committed[partition] = waiting

    def delete(self, group_id: str) -> None:
        """Drop all offsets of a group, including pending ones."""
        self.groups.pop(group_id, None)

    def delete_one(self, group_id: str, partition: TopicPartition) -> None:
        """Drop a group's offset of a partition, if there is one."""
        group = self._group(group_id)
        for offsets in (group.committed, *group.pending.values()):
            offsets.pop(partition, None)

    def forget_topic(self, name: str) -> None:
        """Drop the offsets of a deleted topic."""
        for group in self.groups.values():
            for offsets in (group.committed, *group.pending.values()):
                for partition in [each for each in offsets if each.topic == name]:
                    del offsets[partition]

    def _group(self, group_id: str) -> GroupOffsets:
        return self.groups.setdefault(group_id, GroupOffsets())

    def _committed(self, offset: int, leader_epoch: int, metadata: str | None) -> CommittedOffset:
        if len((metadata or "").encode()) > _MAX_METADATA_BYTES:
            raise RequestError(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"the metadata is longer than {_MAX_METADATA_BYTES} bytes",
            )
        self._commits += 1
        return CommittedOffset(offset, leader_epoch, metadata or "", self._commits)
