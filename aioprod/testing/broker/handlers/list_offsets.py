"""ListOffsets: the earliest and latest offsets, and offsets by timestamp, up to the high watermark
or the last stable offset.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leaders import leader_error
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext

_LEADER_EPOCH_FROM = 4
_NOT_AVAILABLE_FROM = 5  # KIP-207
_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3  # KIP-734
_EARLIEST_LOCAL = -4  # KIP-405: without tiered storage the same as earliest
_LATEST_TIERED = -5  # KIP-1005
_EARLIEST_PENDING_UPLOAD = -6  # KIP-1023
_READ_COMMITTED = 1
_SPECIAL_FROM = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}


class _Found(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


@handles(ListOffsetsRequest)
async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look up each partition."""
    counts = Counter(
        (topic.name, asked.partition_index)
        for topic in request.topics
        for asked in topic.partitions
    )
    twice = {place for place, count in counts.items() if count > 1}
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                _answer(topic.name, asked, request, twice, context) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _answer(
    name: str,
    asked: ListOffsetsPartition,
    request: ListOffsetsRequest,
    twice: set[tuple[str, int]],
    context: RequestContext,
) -> ListOffsetsPartitionResponse:
    try:
        if (name, asked.partition_index) in twice:
            raise _refusal(ErrorCode.INVALID_REQUEST)
        offset, timestamp, epoch = _look_up(name, asked, request.isolation_level, context)
    except RequestError as error:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=error.code
        )
    epoch = epoch if context.api_version >= _LEADER_EPOCH_FROM else -1
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _look_up(
    name: str, asked: ListOffsetsPartition, isolation_level: int, context: RequestContext
) -> _Found:
    """Look up one partition; raise RequestError if the offset can't be returned."""
    if code := context.failure(name, asked.partition_index):
        raise _refusal(code)
    partition = context.store.get_partition(name, asked.partition_index)
    if code := leader_error(partition, asked.current_leader_epoch, context):
        raise _refusal(code)
    if not _is_known(asked.timestamp, context.api_version):
        raise _refusal(ErrorCode.UNSUPPORTED_VERSION)
    if asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return _Found(
            partition.log.start_offset, -1, partition.log.epochs.find(partition.log.start_offset)
        )
    end = (
        partition.last_stable_offset
        if isolation_level == _READ_COMMITTED
        else partition.high_watermark
    )
    found = _find(partition, asked.timestamp, end)
    if found.offset < 0 or asked.timestamp == _LATEST:
        _check_new_leader(partition, context)
    return found


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= _SPECIAL_FROM.get(timestamp, version + 1)


def _find(partition: Partition, timestamp: int, end: int) -> _Found:
    """Find the offset among those before ``end``."""
    log = partition.log
    if timestamp == _LATEST:
        return _Found(end, -1, log.leader_epoch)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):  # no tiered storage
        return _Found()
    record = log.find_newest() if timestamp == _MAX_TIMESTAMP else log.find_by_timestamp(timestamp)
    if record is None or record.offset >= end:
        return _Found()
    return _Found(record.offset, record.timestamp, log.epochs.find(record.offset))


def _check_new_leader(partition: Partition, context: RequestContext) -> None:
    """Refuse to return the end while the high watermark is below the first offset of the leader's
    epoch, because it might decrease (KIP-207).
    """
    if partition.high_watermark < partition.log.epochs.latest_start:
        raise _refusal(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if context.api_version >= _NOT_AVAILABLE_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )


def _refusal(code: ErrorCode) -> RequestError:
    return RequestError(code, code.description)
