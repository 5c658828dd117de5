"""ElectLeaders (KIP-460): make preferred replicas the leaders, or any running replica if a
partition has no leader.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from aioprod.testing.broker.cluster import NO_NODE
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext

_PREFERRED = 0
_UNCLEAN = 1
_ERROR_FROM = 1


@handles(ElectLeadersRequest)
async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect a leader of each partition. For all partitions (null), return only those that
    changed.
    """
    code = context.failure()
    if not code and request.election_type not in (_PREFERRED, _UNCLEAN):
        text = f"election type {request.election_type}: must be {_PREFERRED} or {_UNCLEAN}"
        return _refuse(request, ErrorCode.INVALID_REQUEST, text)
    if code and context.api_version >= _ERROR_FROM:  # else each partition has the code
        return _refuse(request, code, code.description)
    names_all = request.topic_partitions is None
    everything = [
        TopicPartitions(topic.name, list(range(len(topic.partitions))))
        for topic in context.store.topics.values()
    ]
    results = []
    for asked in everything if request.topic_partitions is None else request.topic_partitions:
        partitions = [
            _elect(asked.topic, index, request.election_type, context) for index in asked.partitions
        ]
        if names_all:
            partitions = [
                each for each in partitions if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
        results.append(ReplicaElectionResult(asked.topic, partitions))
    return ElectLeadersResponse(replica_election_results=results)


def _refuse(request: ElectLeadersRequest, code: ErrorCode, text: str) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            asked.topic, [PartitionResult(index, code, text) for index in asked.partitions]
        )
        for asked in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _elect(name: str, index: int, kind: int, context: RequestContext) -> PartitionResult:
    try:
        if code := context.failure(name, index):
            raise RequestError(code, code.description)
        partition = context.store.get_partition(name, index)
        context.store.move_leader(partition, _choose(partition, kind, context))
    except RequestError as error:
        return PartitionResult(index, error.code, error.text)
    return PartitionResult(index, error_message=None)


def _choose(partition: Partition, kind: int, context: RequestContext) -> int:
    """Choose the new leader."""
    leadership, cluster = partition.leadership, context.store.cluster
    preferred = leadership.replicas[0]
    if leadership.leader == preferred or (kind == _UNCLEAN and leadership.leader != NO_NODE):
        raise RequestError(
            ErrorCode.ELECTION_NOT_NEEDED, f"node {leadership.leader} is already the leader"
        )
    if kind == _PREFERRED:
        if cluster.find_address(preferred) is None or preferred not in leadership.in_sync:
            raise RequestError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"node {preferred} is stopped or not in sync",
            )
        return preferred
    running = [
        node_id for node_id in leadership.replicas if cluster.find_address(node_id) is not None
    ]
    if not running:
        raise RequestError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is running")
    return running[0]
