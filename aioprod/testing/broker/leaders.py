"""Who leads and keeps a partition. Who asks a node that does not lead it is refused, and told who
does (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.cluster import NOBODY, NodeAddress
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Topic


class PartitionDescription(TypedDict):
    """Who keeps a partition: the fields by which both Metadata and DescribeTopicPartitions
    say it.
    """

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]


def describe_partition(topic: Topic, index: int, context: RequestContext) -> PartitionDescription:
    """Say who keeps a partition, with the error that a test wants there, or LEADER_NOT_AVAILABLE
    where nobody leads.
    """
    partition = topic.partitions[index]
    leadership = partition.leadership
    nobody = ErrorCode.LEADER_NOT_AVAILABLE if leadership.leader == NOBODY else ErrorCode.NONE
    return PartitionDescription(
        error_code=context.failure(topic.name, index) or nobody,
        partition_index=index,
        leader_id=leadership.leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=list(leadership.replicas),
        isr_nodes=list(leadership.in_sync),
        offline_replicas=context.store.cluster.find_offline(leadership),
    )


class NotLeaderError(RequestError):
    """The node that was asked does not lead the partition.

    Attributes:
        leader: the node that does, or -1.
        epoch: the present leader epoch.
    """

    def __init__(self, partition: Partition) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is node {partition.leadership.leader}"
        )
        self.leader = partition.leadership.leader
        self.epoch = partition.log.leader_epoch


def check_leader(partition: Partition, context: RequestContext) -> None:
    """Raise NotLeaderError unless the node that was asked leads the partition."""
    if partition.leadership.leader != context.node.node_id:
        raise NotLeaderError(partition)


def leader_error(partition: Partition, known_epoch: int, context: RequestContext) -> ErrorCode:
    """Say what is wrong with asking this node under a leader epoch that the client knows (-1: none;
    KIP-320), else NONE.
    """
    epoch = partition.log.leader_epoch
    if 0 <= known_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if known_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return (
        ErrorCode.NONE
        if partition.leadership.leader == context.node.node_id
        else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def leader_addresses(leader_ids: Iterable[int], context: RequestContext) -> list[NodeAddress]:
    """Where the leaders that an answer names listen, each once; -1 and nodes that are down are left
    out.
    """
    found = (context.store.cluster.find_address(node_id) for node_id in sorted(set(leader_ids)))
    return [address for address in found if address is not None]
