"""AlterPartitionReassignments (KIP-455): move partitions to other nodes. They move immediately, so
no reassignment is ever in progress.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(AlterPartitionReassignmentsRequest)
async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Move the valid partitions."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    if code := context.failure():
        response.error_code, response.error_message = code, code.description
        response.responses = [
            ReassignableTopicResponse(
                topic.name,
                [
                    ReassignablePartitionResponse(asked.partition_index, code, code.description)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return response
    response.responses = [
        ReassignableTopicResponse(
            topic.name,
            [
                _result(topic.name, asked, request.allow_replication_factor_change, context)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return response


def _result(
    name: str, asked: ReassignablePartition, may_change_factor: bool, context: RequestContext
) -> ReassignablePartitionResponse:
    try:
        _reassign(name, asked, may_change_factor, context)
    except RequestError as error:
        return ReassignablePartitionResponse(asked.partition_index, error.code, error.text)
    return ReassignablePartitionResponse(asked.partition_index, error_message=None)


def _reassign(
    name: str, asked: ReassignablePartition, may_change_factor: bool, context: RequestContext
) -> None:
    if code := context.failure(name, asked.partition_index):
        raise RequestError(code, code.description)
    store = context.store
    partition = store.get_partition(name, asked.partition_index)
    if asked.replicas is None:
        raise RequestError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "no reassignment is in progress: partitions move at once",
        )
    replicas = store.check_assignment([asked.replicas])[0]
    if not may_change_factor and len(replicas) != len(partition.leadership.replicas):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(partition.leadership.replicas)} replicas",
        )
    store.reassign(partition, replicas)
