"""The partitions that a share consumer reads, and who leads them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.consumer.share.acknowledgements import PartitionKey, SharePartition
from aioprod.consumer.share.read_errors import FoundLeader, ReadErrors
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import Leader
from aioprod.types import TopicPartition


class ShareAssignment:
    """The partitions that the coordinator has assigned, of the subscribed topics.

    Args:
        metadata: says who leads a partition, and has the names of topics.
        errors: hears of the leaders, and of partitions without one.
        reporter: hears of the partitions.

    Attributes:
        partitions: those whose topics are known.
    """

    def __init__(self, metadata: Metadata, errors: ReadErrors, reporter: ShareReporter) -> None:
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._metadata = metadata
        self._errors = errors
        self._reporter = reporter
        self._names: dict[uuid.UUID, str] = {}
        self._topics: frozenset[str] = frozenset()
        self._assigned: Collection[PartitionKey] = ()

    def __bool__(self) -> bool:
        """Whether the coordinator has assigned any partition."""
        return bool(self._assigned)

    def subscribe(self, topics: frozenset[str]) -> None:
        """Read only these topics; the coordinator learns of it with the next heartbeat."""
        self._topics = topics

    def assign(self, assigned: Collection[PartitionKey]) -> None:
        """Adopt what the coordinator has assigned."""
        self._assigned = assigned

    def find_leaders(self) -> dict[int, frozenset[SharePartition]]:
        """Return the partitions that have a leader, by its node id."""
        snapshot = self._metadata.snapshot
        self._names.update(
            {info.topic_id: name for name, info in snapshot.topics.items() if info.topic_id.int}
        )
        found: dict[SharePartition, FoundLeader] = {}
        by_leader: defaultdict[int, set[SharePartition]] = defaultdict(set)
        for topic_id, number in self._assigned:
            name = self._names.get(topic_id)
            if name is None:
                self._metadata.request_update()
            elif name in self._topics:
                partition = SharePartition(topic_id, name, number)
                leader = found[partition] = snapshot.find_leader(partition.tp)
                if isinstance(leader, PartitionInfo):
                    by_leader[leader.leader].add(partition)
                else:
                    self._metadata.request_update()
        self._errors.leaders_found(found)
        before, self.partitions = self.partitions, frozenset(each.tp for each in found)
        self._reporter.assignment_changed(before, self.partitions)
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
