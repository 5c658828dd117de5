"""Fetch: returns whole batches from an offset on, and waits until there is enough data.

Consumers read up to the high watermark or, with read_committed, up to the last stable offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from aioprod.protocol.record_batch import read_header
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.fetch_sessions import RequestedPartition
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leader_epochs import EpochEnd
from aioprod.testing.broker.leaders import leader_addresses, leader_error
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext

_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 16  # KIP-951
_READ_COMMITTED = 1


@dataclass(slots=True)
class _Wanted:
    """A partition of the request.

    Attributes:
        end: the offset up to which the client reads.
        diverging: the point from which the log differs from the records that the client has read
            (KIP-595), or None.
        leader: the leader, if the client must fetch from another node.
    """

    asked: FetchPartition
    code: ErrorCode = ErrorCode.NONE
    partition: Partition | None = None
    end: int = 0
    diverging: EpochEnd | None = None
    leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


@handles(FetchRequest)
async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Respond when ``min_bytes`` are available, after ``max_wait_ms``, if a partition has an error,
    or if the client disconnects.
    """
    loop = asyncio.get_running_loop()
    now = loop.time()
    deadline = now + max(request.max_wait_ms, 0) / 1000
    try:
        fetch_context = context.store.fetch_sessions(context.node.node_id).begin(
            request, context.api_version, now
        )
    except RequestError as error:
        return FetchResponse(error_code=error.code)
    while True:
        wanted = {
            place: _look_up(place, asked, request, context)
            for place, asked in fetch_context.asked.items()
        }
        left = deadline - loop.time()
        if left <= 0 or context.disconnected.done() or _is_enough(wanted.values(), request):
            break
        await wait_for_append(
            [each.partition.log for each in wanted.values() if each.partition is not None],
            left,
            context.disconnected,
        )
    try:
        session_id, answers = fetch_context.finish(_read_all(wanted, request), loop.time())
    except RequestError as error:
        return FetchResponse(error_code=error.code, session_id=request.session_id)
    hints = leader_addresses(
        (answer.current_leader.leader_id for answer in answers.values()), context
    )
    endpoints = [NodeEndpoint(node.node_id, node.host, node.port) for node in hints]
    return FetchResponse(
        session_id=session_id, responses=_by_topic(answers), node_endpoints=endpoints
    )


def _look_up(
    place: RequestedPartition, asked: FetchPartition, request: FetchRequest, context: RequestContext
) -> _Wanted:
    topic = context.store.find_topic(place.topic, place.topic_id)
    code = context.failure(place.topic if topic is None else topic.name, place.partition)
    partition = topic.partition(place.partition) if topic is not None else None
    if code or partition is None:
        by_id = topic is None and context.api_version >= _TOPIC_IDS_FROM
        return _Wanted(
            asked,
            code or (ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )
    code = leader_error(partition, asked.current_leader_epoch, context)
    if code and code is not ErrorCode.UNKNOWN_LEADER_EPOCH and context.api_version >= _LEADERS_FROM:
        return _Wanted(
            asked,
            code,
            leader=LeaderIdAndEpoch(partition.leadership.leader, partition.log.leader_epoch),
        )
    if code:
        return _Wanted(asked, code)
    end = (
        partition.last_stable_offset
        if request.isolation_level == _READ_COMMITTED
        else partition.high_watermark
    )
    return _compare(_Wanted(asked, partition=partition, end=end), partition)


def _compare(wanted: _Wanted, partition: Partition) -> _Wanted:
    """Check that the offset exists, and that the log still has the records that the client has
    read.
    """
    asked, log = wanted.asked, partition.log
    is_known = log.start_offset <= asked.fetch_offset <= log.end_offset
    if asked.last_fetched_epoch >= 0 and asked.fetch_offset >= log.start_offset:
        found = partition.find_epoch_end(asked.last_fetched_epoch)
        if found.end_offset >= 0 and (
            found.epoch < asked.last_fetched_epoch or found.end_offset < asked.fetch_offset
        ):
            wanted.diverging = found
            return wanted
        is_known = is_known and found.end_offset >= 0
    if not is_known:
        wanted.code = ErrorCode.OFFSET_OUT_OF_RANGE
    return wanted


def _is_enough(every: Collection[_Wanted], request: FetchRequest) -> bool:
    missing = request.min_bytes
    for wanted in every:
        if wanted.partition is None or wanted.code or wanted.diverging:
            return True
        if missing > 0:
            available = wanted.partition.log.available_bytes(
                wanted.asked.fetch_offset, missing, wanted.end
            )
            missing -= min(available, max(wanted.asked.partition_max_bytes, 1))
    return missing <= 0 or not every


def _read_all(
    every: Mapping[RequestedPartition, _Wanted], request: FetchRequest
) -> dict[RequestedPartition, PartitionData]:
    """Read up to the limits of the request and of each partition. The first batch may be larger
    (KIP-74).
    """
    left = request.max_bytes
    nothing_yet = True
    answers = {}
    for place, wanted in every.items():
        if wanted.partition is None or wanted.code:
            answers[place] = _refuse(wanted)
            continue
        batches: list[bytes] = []
        if not wanted.diverging:
            limit = min(left, wanted.asked.partition_max_bytes)
            batches = wanted.partition.log.read(
                wanted.asked.fetch_offset, limit, at_least_one=nothing_yet, end=wanted.end
            )
        answer = answers[place] = _answer(
            wanted, wanted.partition, batches, request.isolation_level
        )
        left -= len(answer.records or b"")
        nothing_yet = nothing_yet and not answer.records
    return answers


def _refuse(wanted: _Wanted) -> PartitionData:
    return PartitionData(
        partition_index=wanted.asked.partition,
        error_code=wanted.code,
        high_watermark=-1,
        current_leader=wanted.leader,
        aborted_transactions=([] if wanted.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None),
        records=b"",
    )


def _answer(
    wanted: _Wanted, partition: Partition, batches: list[bytes], isolation_level: int
) -> PartitionData:
    wants_aborted = isolation_level == _READ_COMMITTED and not wanted.diverging
    answer = PartitionData(
        partition_index=wanted.asked.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        aborted_transactions=_aborted(partition, wanted.asked.fetch_offset, batches)
        if wants_aborted
        else None,
        records=batches[0] if len(batches) == 1 else b"".join(batches),
    )
    if wanted.diverging:
        answer.diverging_epoch = EpochEndOffset(*wanted.diverging)
    return answer


def _aborted(
    partition: Partition, fetch_offset: int, batches: list[bytes]
) -> list[AbortedTransaction]:
    """Return the aborted transactions in these batches."""
    if not batches:
        return []
    end = read_header(batches[-1]).last_offset + 1
    return [
        AbortedTransaction(each.producer_id, each.first_offset)
        for each in partition.transactions.aborted_between(fetch_offset, end)
    ]


def _by_topic(answers: Mapping[RequestedPartition, PartitionData]) -> list[FetchableTopicResponse]:
    return [
        FetchableTopicResponse(
            topic=topic, topic_id=topic_id, partitions=[answers[place] for place in places]
        )
        for (topic, topic_id), places in groupby(
            answers, key=lambda place: (place.topic, place.topic_id)
        )
    ]
