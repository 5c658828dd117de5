"""Fetch: whole batches from an offset on, waiting (without polling) until there are enough. read_committed ends at the last stable offset.

Every fetch is a full one: the answer's session id 0 tells the client that no session was made (KIP-227).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from aioprod.protocol.record_batch import read_header
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.leaders import judge_leader, leader_addresses
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.store import Partition

_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 16  # KIP-951
_READ_COMMITTED = 1


@dataclass(slots=True)
class _Wanted:
    """A partition of the request, looked up."""

    asked: FetchPartition
    code: ErrorCode = ErrorCode.NONE
    partition: Partition = field(default_factory=Partition)
    leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # for a client that has to ask another node

    def end(self, isolation_level: int) -> int | None:
        """The offset where the reader has to stop, None for none."""
        return self.partition.last_stable_offset if isolation_level == _READ_COMMITTED else None


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
            hints = leader_addresses((wanted.leader.leader_id for wanted in every), exchange)
            endpoints = [NodeEndpoint(node.node_id, node.host, node.port) for node in hints]
            return FetchResponse(responses=_read_all(topics, request), node_endpoints=endpoints)
        await wait_for_append([wanted.partition.log for wanted in every], left, exchange.disconnected)


def _look_up(topic_asked: FetchTopic, asked: FetchPartition, exchange: Exchange) -> _Wanted:
    topic = exchange.store.find_topic(topic_asked.topic, topic_asked.topic_id)
    code = exchange.failure(topic_asked.topic if topic is None else topic.name, asked.partition)
    partition = topic.partition(asked.partition) if topic is not None else None
    if code or partition is None:
        by_id = topic is None and exchange.api_version >= _TOPIC_IDS_FROM
        return _Wanted(asked, code or (ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    log = partition.log
    code = judge_leader(partition, asked.current_leader_epoch, exchange)
    if code and code is not ErrorCode.UNKNOWN_LEADER_EPOCH and exchange.api_version >= _LEADERS_FROM:
        return _Wanted(asked, code, partition, LeaderIdAndEpoch(partition.leadership.leader, log.leader_epoch))
    if not code and not log.start_offset <= asked.fetch_offset <= log.end_offset:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
    return _Wanted(asked, code, partition)


def _is_enough(every: list[_Wanted], request: FetchRequest) -> bool:
    missing = request.min_bytes
    for wanted in every:
        if wanted.code:
            return True
        if missing > 0:
            available = wanted.partition.log.available_bytes(wanted.asked.fetch_offset, missing, wanted.end(request.isolation_level))
            missing -= min(available, max(wanted.asked.partition_max_bytes, 1))
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
                end = wanted.end(request.isolation_level)
                batches = wanted.partition.log.read(wanted.asked.fetch_offset, limit, at_least_one=nothing_yet, end=end)
            records = batches[0] if len(batches) == 1 else b"".join(batches)
            left -= len(records)
            nothing_yet = nothing_yet and not records
            aborted = _aborted(wanted, batches) if request.isolation_level == _READ_COMMITTED else None
            answers.append(_answer(wanted, records, aborted))
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
    return responses


def _aborted(wanted: _Wanted, batches: list[bytes]) -> list[AbortedTransaction]:
    """What a reader has to drop of these batches."""
    if not batches:
        return []
    end = read_header(batches[-1]).last_offset + 1
    found = wanted.partition.transactions.aborted_between(wanted.asked.fetch_offset, end)
    return [AbortedTransaction(each.producer_id, each.first_offset) for each in found]


def _answer(wanted: _Wanted, records: bytes, aborted: list[AbortedTransaction] | None) -> PartitionData:
    if wanted.code:
        return PartitionData(
            partition_index=wanted.asked.partition,
            error_code=wanted.code,
            high_watermark=-1,
            current_leader=wanted.leader,
            aborted_transactions=None,
            records=b"",
        )
    return PartitionData(
        partition_index=wanted.asked.partition,
        high_watermark=wanted.partition.log.end_offset,
        last_stable_offset=wanted.partition.last_stable_offset,
        log_start_offset=wanted.partition.log.start_offset,
        aborted_transactions=aborted,
        records=records,
    )
