"""The leader and the replicas of a partition. A request to another node is refused, and the
response names the leader (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import NO_NODE, NodeAddress
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Topic


class PartitionDescription(TypedDict):
    """The fields that describe a partition in Metadata and DescribeTopicPartitions."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]


def describe_partition(topic: Topic, index: int, context: RequestContext) -> PartitionDescription:
    """Describe a partition, with the error that a test requested, or with LEADER_NOT_AVAILABLE if
    it has no leader.
    """
    partition = topic.partitions[index]
    leadership = partition.leadership
    no_leader = ErrorCode.LEADER_NOT_AVAILABLE if leadership.leader == NO_NODE else ErrorCode.NONE
    return PartitionDescription(
        error_code=context.failure(topic.name, index) or no_leader,
        partition_index=index,
        leader_id=leadership.leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=list(leadership.replicas),
        isr_nodes=list(leadership.in_sync),
        offline_replicas=context.store.cluster.find_offline(leadership),
    )


class NotLeaderError(RequestError):
    """The node that received the request does not lead the partition.

    Attributes:
        leader: the node that leads it, or -1.
        epoch: the current leader epoch.
    """

    def __init__(self, partition: Partition) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is node {partition.leadership.leader}"
        )
        self.leader: int = partition.leadership.leader
        self.epoch: int = partition.log.leader_epoch


def check_leader(partition: Partition, context: RequestContext) -> None:
    """Raise NotLeaderError unless the node that received the request leads the partition."""
    if not _serves(partition, context):
        raise NotLeaderError(partition)


def leader_error(partition: Partition, known_epoch: int, context: RequestContext) -> ErrorCode:
    """Return why this node can't serve a client that knows ``known_epoch`` (-1 for none; KIP-320),
    or NONE if it can.
    """
    epoch = partition.log.leader_epoch
    if 0 <= known_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if known_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if _serves(partition, context) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _serves(partition: Partition, context: RequestContext) -> bool:
    return (
        partition.leadership.leader == context.node.node_id
        or context.store.cluster.imitation.any_node_serves
    )


def leader_addresses(leader_ids: Iterable[int], context: RequestContext) -> list[NodeAddress]:
    """Return the address of each leader in a response, without -1 and stopped nodes."""
    found = (context.store.cluster.find_address(node_id) for node_id in sorted(set(leader_ids)))
    return [address for address in found if address is not None]
