"""The topics and partitions that a share consumer reads, who leads them, and why some of them can't
be read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.consumer.problems import Problems
from aioprod.consumer.share.acknowledgements import PartitionKey, SharePartition
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import Leader
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.types import TopicPartition


class ShareAssignment:
    """The partitions that the coordinator has assigned, of the subscribed topics.

    Args:
        metadata: has the names of topics, and the leaders of partitions.
        problems: keeps the errors of topics, partitions and brokers.
        reporter: called when other topics are subscribed, or other partitions are read.

    Attributes:
        topics: the subscribed topics.
        partitions: the assigned partitions whose topics are known.
    """

    def __init__(self, metadata: Metadata, problems: Problems, reporter: ShareReporter) -> None:
        self.topics: frozenset[str] = frozenset()
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._metadata = metadata
        self._problems = problems
        self._reporter = reporter
        self._names: dict[uuid.UUID, str] = {}
        self._assigned: Collection[PartitionKey] = ()
        self._leaders: dict[SharePartition, int | None] = {}  # None if there is none

    def __bool__(self) -> bool:
        """True if the coordinator has assigned a partition."""
        return bool(self._assigned)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read only these topics; the next heartbeat reports them to the coordinator."""
        self.topics = topics
        self._reporter.subscribed(topics)
        self._problems.keep(lambda what: not isinstance(what, str) or what in topics)

    def assign(self, assigned: Collection[PartitionKey]) -> None:
        """Adopt what the coordinator has assigned."""
        self._assigned = assigned

    # -- leaders -----------------------------------------------------------------------------------

    def find_leaders(self) -> dict[int, frozenset[SharePartition]]:
        """Return the partitions to read by the broker that leads them. Request metadata if a name
        or a leader is missing.
        """
        snapshot = self._metadata.snapshot
        self._names.update(
            {topic.topic_id: name for name, topic in snapshot.topics.items() if topic.topic_id.int}
        )
        before, self._leaders = self._leaders, {}
        by_leader: defaultdict[int, set[SharePartition]] = defaultdict(set)
        for topic_id, number in self._assigned:
            name = self._names.get(topic_id)
            if name is None:
                self._metadata.request_update()
            elif name in self.topics:
                partition = SharePartition(topic_id, name, number)
                leader = snapshot.find_leader(partition.tp)
                if isinstance(leader, PartitionInfo):
                    by_leader[leader.leader].add(partition)
                    self._leaders[partition] = leader.leader
                    self._problems.over(_leader_of(partition))
                else:
                    self._metadata.request_update()
                    self._leaders[partition] = None
                    error = leader or _unknown(partition)
                    self._problems.note(_leader_of(partition), error, _now())
        self._forget_errors(before)
        present = frozenset(each.tp for each in self._leaders)
        self._reporter.assignment_changed(self.partitions, present)
        self.partitions = present
        return {node_id: frozenset(led) for node_id, led in by_leader.items()}

    def leaders_moved(self, leaders: Iterable[Leader]) -> None:
        """Adopt leaders that a broker names, and refresh the metadata."""
        named = [leader for leader in leaders if leader.key[0] in self._names]
        self._metadata.take_leaders(
            {
                TopicPartition(self._names[topic_id], number): (node.node_id, epoch)
                for (topic_id, number), epoch, node in named
            },
            [leader.node for leader in named],
        )
        self._metadata.request_update()

    def has_moved(self, tp: TopicPartition, node_id: int) -> bool:
        """Return True if the metadata has another leader of a partition than this broker."""
        leader = self._metadata.snapshot.find_leader(tp)
        return isinstance(leader, PartitionInfo) and leader.leader != node_id

    # -- errors ------------------------------------------------------------------------------------

    def check_topics(self, snapshot: ClusterSnapshot) -> None:
        """Keep the subscribed topics in the metadata, and note those that can't be read."""
        for topic in self.topics:
            self._metadata.touch(topic)
            error = snapshot.topic_error(topic)
            if error is None:
                self._problems.over(topic)
            else:
                self._problems.add(topic, error, _now())
                self._metadata.request_topic(topic)

    def failed(self, what: SharePartition | int, error: KafkaError | None) -> None:
        """Note the error of a partition or broker, or None if it is solved.

        Nothing is noted of what is not read any more: no later request would end the error.
        """
        if isinstance(what, SharePartition):
            key: Hashable = what
            is_read = what in self._leaders
        else:
            key = _broker(what)
            is_read = what in self._leaders.values()
        if error is not None and is_read:
            self._problems.add(key, error, _now())
        else:
            self._problems.over(key)

    def errors(self) -> Iterator[tuple[TopicPartition, KafkaError, float]]:
        """Yield the partitions that can't be read now, the error, and the time of the first."""
        for partition, node_id in self._leaders.items():
            for what in (_leader_of(partition), partition, _broker(node_id)):
                error, since = self._problems.of(what), self._problems.since(what)
                if error is not None and since is not None:
                    yield partition.tp, error, since
                    break

    def _forget_errors(self, before: dict[SharePartition, int | None]) -> None:
        """Forget errors of partitions and brokers that are not read any more."""
        for gone in before.keys() - self._leaders.keys():
            self._problems.over(gone)
            self._problems.over(_leader_of(gone))
        for node_id in set(before.values()) - set(self._leaders.values()):
            self._problems.over(_broker(node_id))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _broker(node_id: int | None) -> Hashable:
    """Return the key of a broker's errors."""
    return "broker", node_id


def _leader_of(partition: SharePartition) -> Hashable:
    """Return the key of the error of a partition without a leader."""
    return "leader", partition


def _unknown(partition: SharePartition) -> BrokerError:
    return BrokerError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{partition.topic}-{partition.partition} is not in the metadata",
    )
