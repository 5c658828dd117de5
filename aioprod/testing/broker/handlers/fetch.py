"""Fetch: whole batches from an offset on, waiting (without polling) until there are enough.

Every fetch is a full one: the answer's session id 0 tells the client that no session was made (KIP-227).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.log import PartitionLog, wait_for_append

_TOPIC_IDS_FROM = 13
_READ_COMMITTED = 1


@dataclass(slots=True)
class _Wanted:
    """A partition of the request, looked up."""

    asked: FetchPartition
    code: ErrorCode = ErrorCode.NONE
    log: PartitionLog = field(default_factory=PartitionLog)


async def handle(request: FetchRequest, exchange: Exchange) -> FetchResponse:
    """Answer when min_bytes are there, max_wait_ms is over, a partition is in error or the client is gone."""
    if request.session_id:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(request.max_wait_ms, 0) / 1000
    while True:
        topics = [(topic, [_look_up(topic, asked, exchange) for asked in topic.partitions]) for topic in request.topics]
        every = [wanted for _, partitions in topics for wanted in partitions]
        left = deadline - loop.time()
        if left <= 0 or exchange.disconnected.done() or _is_enough(every, request):
            return FetchResponse(responses=_read_all(topics, request))
        await wait_for_append([wanted.log for wanted in every], left, exchange.disconnected)


def _look_up(topic_asked: FetchTopic, asked: FetchPartition, exchange: Exchange) -> _Wanted:
    topic = exchange.store.find_topic(topic_asked.topic, topic_asked.topic_id)
    code = exchange.failure(topic_asked.topic if topic is None else topic.name, asked.partition)
    partition = topic.partition(asked.partition) if topic is not None else None
    if code or partition is None:
        by_id = topic is None and exchange.api_version >= _TOPIC_IDS_FROM
        return _Wanted(asked, code or (ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    log = partition.log
    if asked.current_leader_epoch >= 0 and asked.current_leader_epoch != log.leader_epoch:
        older = asked.current_leader_epoch < log.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    elif not log.start_offset <= asked.fetch_offset <= log.end_offset:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
    return _Wanted(asked, code, log)


def _is_enough(every: list[_Wanted], request: FetchRequest) -> bool:
    missing = request.min_bytes
    for wanted in every:
        if wanted.code:
            return True
        if missing > 0:
            missing -= min(wanted.log.available_bytes(wanted.asked.fetch_offset, missing), max(wanted.asked.partition_max_bytes, 1))
    return missing <= 0 or not every


def _read_all(topics: list[tuple[FetchTopic, list[_Wanted]]], request: FetchRequest) -> list[FetchableTopicResponse]:
    """Read up to the limits of the request and of each partition; the very first batch comes whatever its size (KIP-74)."""
    left = request.max_bytes
    nothing_yet = True
    responses = []
    for topic, partitions in topics:
        answers = []
        for wanted in partitions:
            batches: list[bytes] = []
            if not wanted.code:
                limit = min(left, wanted.asked.partition_max_bytes)
                batches = wanted.log.read(wanted.asked.fetch_offset, limit, at_least_one=nothing_yet)
            records = batches[0] if len(batches) == 1 else b"".join(batches)
            left -= len(records)
            nothing_yet = nothing_yet and not records
            answers.append(_answer(wanted, records, request.isolation_level))
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
    return responses


def _answer(wanted: _Wanted, records: bytes, isolation_level: int) -> PartitionData:
    if wanted.code:
        return PartitionData(
            partition_index=wanted.asked.partition, error_code=wanted.code, high_watermark=-1, aborted_transactions=None, records=b""
        )
    return PartitionData(
        partition_index=wanted.asked.partition,
        high_watermark=wanted.log.end_offset,
        last_stable_offset=wanted.log.end_offset,
        log_start_offset=wanted.log.start_offset,
        aborted_transactions=[] if isolation_level == _READ_COMMITTED else None,
        records=records,
    )
