"""Immutable snapshots of the cluster: readers never see a partial update."""

import uuid
from collections.abc import Collection, Container, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ProtocolError
from aioprod.net.brokers import BrokerAddress
from aioprod.net.refusals import UNNAMED, explain
from aioprod.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.types import TopicPartition

# Brokers may omit partitions for a moment. The producer has a queue for each number up to the
# highest, so a hostile broker must not send 2^31.
_MAX_OMITTED = 10_000
# How long a broker may respond with outdated metadata. In a KRaft cluster, that is milliseconds.
# The limit is for the case that outdated metadata was received first, and taken for the newer one.
_LATE_S = 10.0


class PartitionInfo(NamedTuple):
    """A partition.

    Attributes:
        partition: the number.
        leader: the node id of the leader; -1 if there is none.
        leader_epoch: the epoch of the leader; -1 if unknown.
        error: the broker's error code for the partition.
    """

    partition: int
    leader: int
    leader_epoch: int
    error: ErrorCode = ErrorCode.NONE


class TopicInfo(NamedTuple):
    """A topic.

    Attributes:
        name: the name.
        topic_id: the id (KIP-516); zero if unknown.
        partitions: in the order of their numbers; some numbers may be missing.
        error: the broker's error code for the topic.
    """

    name: str
    topic_id: uuid.UUID = ZERO_UUID
    partitions: tuple[PartitionInfo, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    def find(self, partition: int) -> PartitionInfo | None:
        """Return the partition with this number, or None."""
        if (
            0 <= partition < len(self.partitions)
            and self.partitions[partition].partition == partition
        ):
            return self.partitions[partition]
        return next((info for info in self.partitions if info.partition == partition), None)


class ClusterSnapshot(NamedTuple):
    """Brokers and topics, as described by the latest metadata.

    Attributes:
        version: increases with each change; 0 before the first.
        nodes: the brokers by node id.
        topics: the topics by name.
        controller_id: the node id of the controller; -1 if unknown.
        cluster_id: the id of the cluster, if known.
        principal: the client's principal, for errors.
    """

    version: int = 0
    nodes: Mapping[int, BrokerAddress] = MappingProxyType({})
    topics: Mapping[str, TopicInfo] = MappingProxyType({})
    controller_id: int = -1
    cluster_id: str | None = None
    principal: str = UNNAMED

    def topic_error(self, name: str) -> BrokerError | None:
        """Return the error of a topic in the latest metadata that contained it, or None."""
        topic = self.topics.get(name)
        if topic is None or not topic.error:
            return None
        return explain(BrokerError(topic.error, f"topic {name!r}"), "Metadata", self.principal)

    def problem_of(self, name: str) -> BrokerError | None:
        """Return the error of a topic, or of its first partition without a leader, or None."""
        error = self.topic_error(name)
        topic = self.topics.get(name)
        if error is None and topic is not None:
            for info in topic.partitions:
                if info.leader < 0:
                    found = self.find_leader(TopicPartition(name, info.partition))
                    return found if isinstance(found, BrokerError) else None
        return error

    def topic_id(self, name: str) -> uuid.UUID:
        """Return a topic's id; zero if it is unknown, or the topic does not exist."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def has_other_topic(self, name: str, topic_id: uuid.UUID) -> bool:
        """Return True if a topic has another id: it was deleted and created again."""
        present = self.topic_id(name)
        if present is topic_id:  # as nearly always; UUID's comparison is Python
            return False
        return bool(present.int and topic_id.int) and present != topic_id

    def topic_ids(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """Return the ids of topics; empty if one is unknown, since a request contains either the
        ids or the names of all its topics.
        """
        found = {name: self.topics[name].topic_id for name in names if name in self.topics}
        return found if all(name in found and found[name].int for name in names) else {}

    def find_leader(self, tp: TopicPartition) -> PartitionInfo | BrokerError | None:
        """Return the partition if it has a leader, an error if it has none, or None if the topic is
        unknown.
        """
        topic = self.topics.get(tp.topic)
        if topic is None:
            return None
        if error := self.topic_error(tp.topic):
            return error
        info = topic.find(tp.partition)
        if info is None:
            return BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{tp.topic}-{tp.partition} "
                f"(the topic has {counted(len(topic.partitions), 'partition')})",
            )
        return (
            info
            if info.leader >= 0
            else BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition}")
        )

    def updated(
        self, reply: MetadataResponse, keep: Iterable[str], late_ids: Container[uuid.UUID] = ()
    ) -> "ClusterSnapshot":
        """Return the next snapshot: the topics of a response, and those of ``keep`` that it does
        not contain.

        Args:
            late_ids: ids that only a broker with outdated metadata returns: these topics do not
                change.
        """
        kept = set(keep)
        topics = {name: info for name, info in self.topics.items() if name in kept}
        for topic in reply.topics:
            if topic.name is None:
                continue
            known = self.topics.get(topic.name)
            if topic.topic_id not in late_ids:
                topics[topic.name] = _topic_info(topic, known)
            elif known is not None:
                topics[topic.name] = known
        nodes = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port)
            for broker in reply.brokers
        }
        return ClusterSnapshot(
            self.version + 1,
            nodes,
            topics,
            reply.controller_id,
            reply.cluster_id,
            self.principal,
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[BrokerAddress]
    ) -> "ClusterSnapshot":
        """Return the next snapshot, with the given leaders (node id, epoch) if their epoch is newer
        (KIP-951).

        A leader that is neither known nor in ``nodes`` is ignored.
        """
        known = {**self.nodes, **{node.node_id: node for node in nodes}}
        topics = dict(self.topics)
        for tp, (leader, epoch) in leaders.items():
            info = topics.get(tp.topic)
            if info is None or leader not in known:
                continue
            partitions = list(info.partitions)
            for index, old in enumerate(partitions):
                if old.partition == tp.partition and old.leader_epoch < epoch:
                    partitions[index] = old._replace(
                        leader=leader, leader_epoch=epoch, error=ErrorCode.NONE
                    )
                    topics[tp.topic] = info._replace(partitions=tuple(partitions))
        if all(topics[name] is info for name, info in self.topics.items()):
            return self
        return self._replace(version=self.version + 1, nodes=known, topics=topics)


def _topic_info(topic: MetadataResponseTopic, old: TopicInfo | None) -> TopicInfo:
    assert topic.name is not None
    topic_id = topic.topic_id
    if old is not None and not topic_id.int and not topic.error_code:
        topic_id = old.topic_id  # brokers of different versions: some have no ids
    # A topic that is deleted and created again has a new id, and its leader epochs begin again.
    known = (
        {p.partition: p for p in old.partitions}
        if old is not None and old.topic_id == topic_id
        else {}
    )
    partitions = []
    by_number = {answer.partition_index: answer for answer in topic.partitions}
    if by_number and not 0 <= min(by_number) <= max(by_number) < len(by_number) + _MAX_OMITTED:
        raise ProtocolError(
            f"metadata of topic {topic.name!r}: {counted(len(by_number), 'partition')}, numbered "
            f"from {min(by_number)} to {max(by_number)}"
        )
    for _, answer in sorted(by_number.items()):
        info = PartitionInfo(
            answer.partition_index,
            answer.leader_id,
            answer.leader_epoch,
            ErrorCode.of(answer.error_code),
        )
        before = known.get(info.partition)
        # A lagging broker may respond with a former leader (KIP-320).
        stale = before is not None and 0 <= info.leader_epoch < before.leader_epoch
        partitions.append(before if stale and before is not None else info)
    return TopicInfo(topic.name, topic_id, tuple(partitions), ErrorCode.of(topic.error_code))


class FormerTopicIds:
    """The ids of topics that were deleted and created again. An id is never used again, so metadata
    with a former id is outdated.
    """

    def __init__(self) -> None:
        self._present: dict[str, uuid.UUID] = {}
        self._former: dict[uuid.UUID, float] = {}  # loop time until which a broker may return it

    def late(self, now: float) -> frozenset[uuid.UUID]:
        """Return the ids that only outdated metadata contains."""
        if not self._former:
            return frozenset()
        self._former = {known: until for known, until in self._former.items() if now < until}
        return frozenset(self._former)

    def last_known(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """Return the ids of topics; of a deleted topic, its last id. Empty if one is unknown."""
        found = {name: self._present[name] for name in names if name in self._present}
        return found if len(found) == len(names) else {}

    def note(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Record the ids of a snapshot. A deleted topic has no id there; its last id is kept until
        it is created again.
        """
        present = self._present
        self._present = {}
        for name, info in snapshot.topics.items():
            known = present.get(name)
            topic_id = info.topic_id if info.topic_id.int else known
            if topic_id is None:
                continue
            self._present[name] = topic_id
            if known is not None and known != topic_id:
                self._former[known] = now + _LATE_S
                self._former.pop(topic_id, None)
