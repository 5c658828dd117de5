"""DeleteRecords (KIP-107): advance the start offset of partitions, and free the memory."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leaders import check_leader
from aioprod.testing.broker.request_context import RequestContext

_TO_THE_END = -1  # all readable records


@handles(DeleteRecordsRequest)
async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Delete records; each partition has a separate result."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_result(topic.name, asked, context) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _result(
    name: str, asked: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    try:
        return DeleteRecordsPartitionResult(asked.partition_index, _delete(name, asked, context))
    except RequestError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)


def _delete(name: str, asked: DeleteRecordsPartition, context: RequestContext) -> int:
    """Delete records and return the new start offset."""
    if code := context.failure(name, asked.partition_index):
        raise RequestError(code, code.description)
    partition = context.store.get_partition(name, asked.partition_index)
    check_leader(partition, context)
    if not partition.config.is_deletable:
        raise RequestError(ErrorCode.POLICY_VIOLATION, "cleanup.policy does not include delete")
    end = partition.high_watermark
    offset = end if asked.offset == _TO_THE_END else asked.offset
    if not 0 <= offset <= end:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}: must be 0 to {end}")
    context.store.delete_records(partition, offset)
    return partition.log.start_offset
