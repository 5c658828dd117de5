"""Produce: validate one batch per partition like Kafka, append it, and with acks=all wait for the
replicas.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

from aioprod.codecs import Codec
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import CorruptRecordError
from aioprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioprod.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    check_crc,
    read_header,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.internal_topics import is_internal
from aioprod.testing.broker.leaders import NotLeaderError, check_leader, leader_addresses
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.produced_records import check_produced
from aioprod.testing.broker.record_rules import RecordsRefusedError, check_records, check_size
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Appended, Topic
from aioprod.testing.broker.transactions.enlistment import Support, enlist_partition
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aioprod.types import TopicPartition

_MAGIC_AT = 16
_COUNT = struct.Struct(">57xi")
_OLD_FORMATS = (0, 1)  # refused since version 3; other formats count as corrupt
_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 10  # KIP-951
_ABORTABLE_FROM = 11  # KIP-890
_ADDS_FROM = 12


@dataclass(slots=True)
class _Pending:
    """A batch that some in-sync replicas lack, and its part of the response."""

    partition: Partition
    next_offset: int
    leader_epoch: int
    answer: PartitionProduceResponse

    def outcome(self) -> ErrorCode | None:
        """Return the batch's error code, or None while it is pending."""
        if self.partition.log.leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.partition.high_watermark < self.next_offset:
            return None
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            if self.partition.is_short_of_replicas
            else ErrorCode.NONE
        )


@handles(ProduceRequest)
async def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append the batches. Return None (no response) for acks=0."""
    pending: list[_Pending] = []
    responses = [
        _append_topic(topic_data, request, context, pending) for topic_data in request.topic_data
    ]
    if pending:
        await _wait_for_replicas(pending, request.timeout_ms, context)
    if request.acks:
        hints = leader_addresses(
            (
                part.current_leader.leader_id
                for topic in responses
                for part in topic.partition_responses
            ),
            context,
        )
        return ProduceResponse(
            responses=responses,
            node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port) for node in hints],
        )
    if any(partition.error_code for topic in responses for partition in topic.partition_responses):
        # The only way to report an error to a client that reads no responses.
        raise context.drop_connection()
    return None


async def _wait_for_replicas(
    pending: list[_Pending], timeout_ms: int, context: RequestContext
) -> None:
    """Wait until all batches are complete, the timeout expires, or the client disconnects."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while True:
        outcomes = [(each, each.outcome()) for each in pending]
        for each, code in outcomes:
            if code is not None:
                _complete(each, code, context)
        pending = [each for each, code in outcomes if code is None]
        left = deadline - loop.time()
        if not pending or left <= 0 or context.disconnected.done():
            break
        await wait_for_append([each.partition.log for each in pending], left, context.disconnected)
    for each in pending:
        # As in Kafka, the batch is stored and the response contains its offset.
        each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT


def _complete(pending: _Pending, code: ErrorCode, context: RequestContext) -> None:
    pending.answer.error_code = code
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        pending.answer.current_leader = _leader_hint(
            pending.partition.leadership.leader, pending.partition.log.leader_epoch, context
        )


def _leader_hint(leader: int, epoch: int, context: RequestContext) -> LeaderIdAndEpoch:
    return (
        LeaderIdAndEpoch(leader, epoch)
        if context.api_version >= _LEADERS_FROM
        else LeaderIdAndEpoch()
    )


def _append_topic(
    topic_data: TopicProduceData,
    request: ProduceRequest,
    context: RequestContext,
    pending: list[_Pending],
) -> TopicProduceResponse:
    topic = context.store.find_topic(topic_data.name, topic_data.topic_id)
    partitions = [
        _append_or_refuse(topic, topic_data, data, request, context, pending)
        for data in topic_data.partition_data
    ]
    return TopicProduceResponse(
        name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions
    )


def _append_or_refuse(
    topic: Topic | None,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    pending: list[_Pending],
) -> PartitionProduceResponse:
    code = context.failure(topic_data.name if topic is None else topic.name, data.index)
    if code:
        return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
    try:
        partition, appended = _append(topic, data, request, context)
    except NotLeaderError as error:
        leader = _leader_hint(error.leader, error.epoch, context)
        return PartitionProduceResponse(
            index=data.index,
            error_code=error.code,
            base_offset=-1,
            error_message=error.text,
            current_leader=leader,
        )
    except RecordsRefusedError as error:
        assert topic is not None, "checked only if the topic exists"
        errors = [BatchIndexAndErrorMessage(index, error.text) for index in error.indexes]
        start = topic.partitions[data.index].log.start_offset
        return PartitionProduceResponse(
            data.index,
            error.code,
            -1,
            log_start_offset=start,
            record_errors=errors,
            error_message=error.text,
        )
    except RequestError as error:
        return PartitionProduceResponse(
            index=data.index, error_code=error.code, base_offset=-1, error_message=error.text
        )
    except CorruptRecordError as error:
        return PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.CORRUPT_MESSAGE,
            base_offset=-1,
            error_message=str(error),
        )
    log = partition.log
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.start_offset,
    )
    if request.acks == -1 and partition.high_watermark < appended.next_offset:
        pending.append(_Pending(partition, appended.next_offset, log.leader_epoch, answer))
    return answer


def _append(
    topic: Topic | None,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
) -> tuple[Partition, Appended]:
    if request.acks not in (-1, 0, 1):
        raise RequestError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1"
        )
    partition = topic.partition(data.index) if topic is not None else None
    if topic is None or partition is None:
        by_id = context.api_version >= _TOPIC_IDS_FROM and topic is None
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RequestError(code, code.description)
    if is_internal(topic.name):
        text = f"Cannot append to internal topic {topic.name}"
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    check_leader(partition, context)
    if request.acks == -1:
        partition.check_in_sync()
    records = bytes(data.records or b"")
    header = _check_batch(records, topic, context)
    records = records[: header.size_in_bytes]
    if header.is_transactional:
        _enlist(topic, data.index, partition, header, request.transactional_id, context)
    begins_at_zero = header.is_transactional and context.api_version >= _ADDS_FROM
    return partition, context.store.append(
        topic, partition, header, records, begins_at_zero=begins_at_zero
    )


def _enlist(
    topic: Topic,
    index: int,
    partition: Partition,
    header: BatchHeader,
    name: str | None,
    context: RequestContext,
) -> None:
    """Add the partition to the producer's transaction or verify it, unless it is already part of
    the transaction.
    """
    if name is None:
        raise RequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    identity = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    if identity.epoch < partition.producers.epoch(identity.producer_id):
        raise RequestError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {identity.producer_id} has a newer epoch than {identity.epoch}",
        )
    if not partition.has_open_transaction(*identity):
        support = Support.of(
            context.api_version, abortable_from=_ABORTABLE_FROM, adds_from=_ADDS_FROM
        )
        enlist_partition(
            context.store.transactions, support, name, identity, TopicPartition(topic.name, index)
        )


def _check_batch(records: bytes, topic: Topic, context: RequestContext) -> BatchHeader:
    """Check that ``records`` is one valid batch for this topic."""
    if not records:
        raise _invalid("a produce request needs a record batch for each partition")
    if len(records) >= HEADER_SIZE and records[_MAGIC_AT] in _OLD_FORMATS:
        raise _invalid(f"record batch of format (magic) {records[_MAGIC_AT]}: must be 2")
    if len(records) < HEADER_SIZE:
        raise _invalid(f"{len(records)} bytes are no record batch")
    (count,) = _COUNT.unpack_from(records)
    if records[_MAGIC_AT] == MAGIC and count <= 0:
        raise _invalid(f"a batch of {count} records")
    header = read_header(records)
    size = header.size_in_bytes
    # As in Kafka, an incomplete batch after the first one is ignored.
    if len(records) < size or len(records) - size >= HEADER_SIZE:
        raise _invalid(
            f"{len(records)} bytes for a batch of {size}: must be exactly one record batch per "
            "partition"
        )
    records = records[:size]
    check_size(records, topic.config)
    check_crc(records, 0, header)
    _check_header(header, context)
    check_produced(records, header)
    check_records(records, header, topic.config, context.store.now_ms())
    return header


def _check_header(header: BatchHeader, context: RequestContext) -> None:
    if header.base_offset != 0:
        raise _invalid(f"the batch's base offset is {header.base_offset}: clients must send 0")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise _invalid(
            f"{counted(header.record_count, 'record')}: does not fit the last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.is_control:
        raise _invalid("only brokers may write control batches")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer {header.producer_id}: invalid epoch {header.producer_epoch} or sequence "
            f"{header.base_sequence}"
        )
    # An unknown number is refused with the records, as Kafka does.
    for codec in Codec:
        is_used = header.attributes & CODEC_MASK == codec
        if is_used and context.api_version < codec.produce_version:
            raise RequestError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"{codec.label} needs Produce version {codec.produce_version}",
            )


def _invalid(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_RECORD, text)
