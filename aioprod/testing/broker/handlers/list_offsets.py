"""ListOffsets: first, next, newest and by timestamp. For read_committed readers nothing lies behind the last stable offset."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.leaders import judge_leader
from aioprod.testing.broker.log import PartitionLog

_LEADER_EPOCH_FROM = 4
_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3  # KIP-734
_EARLIEST_LOCAL = -4  # KIP-405; without tiered storage the same as the earliest
_LATEST_TIERED = -5  # KIP-1005
_READ_COMMITTED = 1
_SPECIAL_FROM = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}


async def handle(request: ListOffsetsRequest, exchange: Exchange) -> ListOffsetsResponse:
    """Answer for every partition by itself."""
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name, partitions=[_answer(topic.name, asked, request.isolation_level, exchange) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _answer(name: str, asked: ListOffsetsPartition, isolation_level: int, exchange: Exchange) -> ListOffsetsPartitionResponse:
    code = exchange.failure(name, asked.partition_index)
    topic = exchange.store.find_topic(name)
    partition = topic.partition(asked.partition_index) if topic is not None else None
    if code or partition is None:
        code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
    log = partition.log
    if code := judge_leader(partition, asked.current_leader_epoch, exchange):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
    if not _is_known(asked.timestamp, exchange.api_version):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    end = partition.last_stable_offset if isolation_level == _READ_COMMITTED else log.end_offset
    offset, timestamp = _find(log, asked.timestamp, end)
    epoch = log.leader_epoch if offset >= 0 and exchange.api_version >= _LEADER_EPOCH_FROM else -1
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch)


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= _SPECIAL_FROM.get(timestamp, version + 1)


def _find(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int]:
    """Return offset and timestamp; -1 for what there is not before the offset ``end``."""
    if timestamp == _LATEST:
        return end, -1
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return log.start_offset, -1
    if timestamp == _LATEST_TIERED:
        return -1, -1
    record: Record | None = log.find_newest() if timestamp == _MAX_TIMESTAMP else log.find_by_timestamp(timestamp)
    return (record.offset, record.timestamp) if record is not None and record.offset < end else (-1, -1)
