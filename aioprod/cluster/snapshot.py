"""The cluster at one moment. Never changed, only replaced: a reader can't see half an update."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ProtocolError
from aioprod.net.brokers import Node
from aioprod.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from aioprod.types import TopicPartition

_NO_ID = uuid.UUID(int=0)
# A broker may leave out partitions for a moment. What keeps something for each number up to the
# last must not be made to keep it for 2^31.
_MOST_LEFT_OUT = 10_000


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its number, its leader's node id (-1: none now) and the leader's epoch (-1:
    not told).
    """

    partition: int
    leader: int
    leader_epoch: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: partitions in order of their number, which may leave out some, and the broker's
    error code for it.
    """

    name: str
    topic_id: uuid.UUID = _NO_ID
    partitions: tuple[PartitionInfo, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    def find(self, partition: int) -> PartitionInfo | None:
        """The partition of this number, None where there is none."""
        if (
            0 <= partition < len(self.partitions)
            and self.partitions[partition].partition == partition
        ):
            return self.partitions[partition]
        return next((info for info in self.partitions if info.partition == partition), None)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Brokers and topics as last told.

    Attributes:
        version: grows by one with each successful refresh; 0 before the first.
    """

    version: int = 0
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None

    def find_leader(self, tp: TopicPartition) -> PartitionInfo | BrokerError | None:
        """The partition, where it has a leader now; else why not, or None where nothing was told of
        the topic yet.
        """
        topic = self.topics.get(tp.topic)
        if topic is None:
            return None
        if topic.error:
            return BrokerError(topic.error, f"topic {tp.topic}")
        info = topic.find(tp.partition)
        if info is None:
            return BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{tp.topic}-{tp.partition} (the topic has {len(topic.partitions)} partitions)",
            )
        return (
            info
            if info.leader >= 0
            else BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition}")
        )

    def updated(self, reply: MetadataResponse, keep: Iterable[str]) -> ClusterSnapshot:
        """The next snapshot: topics of the reply replace older ones, of the others those in
        ``keep`` stay.
        """
        kept = set(keep)
        topics = {name: info for name, info in self.topics.items() if name in kept}
        for topic in reply.topics:
            if topic.name is not None:
                topics[topic.name] = _topic_info(topic, self.topics.get(topic.name))
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in reply.brokers
        }
        return ClusterSnapshot(
            self.version + 1, nodes, topics, reply.controller_id, reply.cluster_id
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[Node]
    ) -> ClusterSnapshot:
        """The next snapshot: partitions have these leaders (node id, epoch) where the epoch is
        newer than the one known (KIP-951).

        A leader that is neither known nor among ``nodes`` is left out.
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
                    partitions[index] = replace(
                        old, leader=leader, leader_epoch=epoch, error=ErrorCode.NONE
                    )
                    topics[tp.topic] = replace(info, partitions=tuple(partitions))
        if all(topics[name] is info for name, info in self.topics.items()):
            return self
        return replace(self, version=self.version + 1, nodes=known, topics=topics)


def _topic_info(topic: MetadataResponseTopic, old: TopicInfo | None) -> TopicInfo:
    assert topic.name is not None
    # A topic that was deleted and made again starts its leader epochs anew, so only the same topic
    # id is compared.
    known = (
        {p.partition: p for p in old.partitions}
        if old is not None and old.topic_id == topic.topic_id
        else {}
    )
    partitions = []
    by_number = {told.partition_index: told for told in topic.partitions}
    if by_number and not 0 <= min(by_number) <= max(by_number) < len(by_number) + _MOST_LEFT_OUT:
        raise ProtocolError(
            f"metadata of topic {topic.name!r}: {len(by_number)} partitions, numbered from "
            f"{min(by_number)} to {max(by_number)}"
        )
    for _, told in sorted(by_number.items()):
        info = PartitionInfo(
            told.partition_index, told.leader_id, told.leader_epoch, ErrorCode.of(told.error_code)
        )
        before = known.get(info.partition)
        # A lagging broker may answer with the leader before last (KIP-320).
        stale = before is not None and 0 <= info.leader_epoch < before.leader_epoch
        partitions.append(before if stale and before is not None else info)
    return TopicInfo(topic.name, topic.topic_id, tuple(partitions), ErrorCode.of(topic.error_code))
