"""Why assigned partitions of a share consumer can't be read."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping

from aioprod.cluster.snapshot import PartitionInfo
from aioprod.consumer.problems import Problems
from aioprod.consumer.share.acknowledgements import SharePartition
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.types import TopicPartition

FoundLeader = PartitionInfo | BrokerError | None
"""The leader of a partition; if it has none, why; None if its topic is unknown."""


class ReadErrors:
    """The errors of partitions, of the brokers that lead them, and of partitions without a leader.

    Args:
        problems: keeps them.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._leaders: dict[SharePartition, int | None] = {}  # of the assigned partitions

    def leaders_found(self, found: Mapping[SharePartition, FoundLeader]) -> None:
        """Adopt the assigned partitions with their leaders, and forget errors of others."""
        before, self._leaders = (
            self._leaders,
            {
                partition: leader.leader if isinstance(leader, PartitionInfo) else None
                for partition, leader in found.items()
            },
        )
        for gone in before.keys() - found.keys():
            self._problems.over(gone)
            self._problems.over(_leader_of(gone))
        for node_id in set(before.values()) - set(self._leaders.values()):
            self._problems.over(_broker(node_id))
        now = asyncio.get_running_loop().time()
        for partition, leader in found.items():
            if isinstance(leader, PartitionInfo):
                self._problems.over(_leader_of(partition))
            else:
                self._problems.note(_leader_of(partition), leader or _unknown(partition), now)

    def failed(self, what: SharePartition | int, error: KafkaError | None) -> None:
        """Note the error of a partition or node, or None if it is over."""
        if isinstance(what, SharePartition):
            self._note(what, error, is_read=what in self._leaders)
        else:
            self._note(_broker(what), error, is_read=what in self._leaders.values())

    def present(self) -> Iterator[tuple[TopicPartition, KafkaError, float]]:
        """Yield the partitions that can't be read now, the error, and the time of the first."""
        for partition, node_id in self._leaders.items():
            for what in (_leader_of(partition), partition, _broker(node_id)):
                error, since = self._problems.of(what), self._problems.since(what)
                if error is not None and since is not None:
                    yield partition.tp, error, since
                    break

    def _note(self, what: Hashable, error: KafkaError | None, *, is_read: bool) -> None:
        """Note an error, unless nothing is read there any more: no request would end it."""
        if error is not None and is_read:
            self._problems.add(what, error, asyncio.get_running_loop().time())
        else:
            self._problems.over(what)


def _broker(node_id: int | None) -> Hashable:
    """What errors of a broker are noted by."""
    return "broker", node_id


def _leader_of(partition: SharePartition) -> Hashable:
    """What is noted of a partition without a leader."""
    return "leader", partition


def _unknown(partition: SharePartition) -> BrokerError:
    return BrokerError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{partition.topic}-{partition.partition} is not in the metadata",
    )
