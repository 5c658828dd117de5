"""Produce: check one batch per partition as Kafka does, without decoding a record, and append it."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import CorruptRecordError
from aioprod.protocol.compression import Codec
from aioprod.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioprod.protocol.record_batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from aioprod.testing.broker.enlistment import Support, enlist_partition
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.leaders import NotLeaderError, check_leader, leader_addresses
from aioprod.testing.broker.store import Appended, Partition, StoreError, Topic
from aioprod.testing.broker.transactions import Identity
from aioprod.types import TopicPartition

_MAGIC_AT = 16
_OLD_FORMATS = (0, 1)  # known, but not taken since version 3; anything else is corrupt
_ZSTD_FROM = 7
_TOPIC_IDS_FROM = 13
_LEADERS_FROM = 10  # KIP-951
_ABORTABLE_FROM = 11  # KIP-890
_ADDS_FROM = 12


async def handle(request: ProduceRequest, exchange: Exchange) -> ProduceResponse | None:
    """Append the batches; None (no answer) for acks=0."""
    responses = [_append_topic(topic_data, request, exchange) for topic_data in request.topic_data]
    if request.acks:
        hints = leader_addresses((part.current_leader.leader_id for topic in responses for part in topic.partition_responses), exchange)
        return ProduceResponse(responses=responses, node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port) for node in hints])
    if any(partition.error_code for topic in responses for partition in topic.partition_responses):
        raise exchange.drop_connection()  # the only way to tell a client that does not read answers
    return None


def _append_topic(topic_data: TopicProduceData, request: ProduceRequest, exchange: Exchange) -> TopicProduceResponse:
    topic = exchange.store.find_topic(topic_data.name, topic_data.topic_id)
    partitions = [_append_or_refuse(topic, topic_data, data, request, exchange) for data in topic_data.partition_data]
    return TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions)


def _append_or_refuse(
    topic: Topic | None, topic_data: TopicProduceData, data: PartitionProduceData, request: ProduceRequest, exchange: Exchange
) -> PartitionProduceResponse:
    code = exchange.failure(topic_data.name if topic is None else topic.name, data.index)
    if code:
        return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
    try:
        appended = _append(topic, data, request, exchange)
    except NotLeaderError as error:
        leader = LeaderIdAndEpoch(error.leader, error.epoch) if exchange.api_version >= _LEADERS_FROM else LeaderIdAndEpoch()
        return PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1, error_message=error.text, current_leader=leader)
    except StoreError as error:
        return PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1, error_message=error.text)
    except CorruptRecordError as error:
        return PartitionProduceResponse(index=data.index, error_code=ErrorCode.CORRUPT_MESSAGE, base_offset=-1, error_message=str(error))
    return PartitionProduceResponse(
        index=data.index, base_offset=appended.base_offset, log_append_time_ms=appended.log_append_time_ms, log_start_offset=0
    )


def _append(topic: Topic | None, data: PartitionProduceData, request: ProduceRequest, exchange: Exchange) -> Appended:
    if request.acks not in (-1, 0, 1):
        raise StoreError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be -1, 0 or 1")
    partition = topic.partition(data.index) if topic is not None else None
    if topic is None or partition is None:
        by_id = exchange.api_version >= _TOPIC_IDS_FROM and topic is None
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise StoreError(code, code.description)
    check_leader(partition, exchange)
    if request.acks == -1:
        _check_in_sync(topic, partition)
    records = data.records or b""
    header = _check_batch(records, topic, exchange)
    if header.is_transactional:
        _enlist(topic, data.index, partition, header, request.transactional_id, exchange)
    begins_at_zero = header.is_transactional and exchange.api_version >= _ADDS_FROM
    return exchange.store.append(topic, partition, header, records, begins_at_zero=begins_at_zero)


def _enlist(topic: Topic, index: int, partition: Partition, header: BatchHeader, name: str | None, exchange: Exchange) -> None:
    """Make sure that the partition is part of the producer's transaction; nobody is asked where it is known to be."""
    if name is None:
        raise StoreError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch in a request without a transactional id")
    identity = Identity(header.producer_id, header.producer_epoch)
    if identity.epoch < partition.producers.epoch(identity.producer_id):
        raise StoreError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {identity.epoch} of producer {identity.producer_id} is over")
    if not partition.has_open_transaction(*identity):
        support = Support.of(exchange.api_version, abortable_from=_ABORTABLE_FROM, adds_from=_ADDS_FROM)
        enlist_partition(exchange.store.transactions, support, name, identity, TopicPartition(topic.name, index))


def _check_in_sync(topic: Topic, partition: Partition) -> None:
    """Refuse acks=all while too few replicas live; as in Kafka, no more are asked for than the partition has."""
    wanted, leadership = topic.config.min_insync_replicas, partition.leadership
    if len(leadership.in_sync) < min(wanted, len(leadership.replicas)):
        raise StoreError(ErrorCode.NOT_ENOUGH_REPLICAS, f"min.insync.replicas={wanted}, and in sync are {list(leadership.in_sync)}")


def _check_batch(records: bytes, topic: Topic, exchange: Exchange) -> BatchHeader:
    """Make sure that ``records`` is one whole and sound batch that this topic takes."""
    if not records:
        raise _invalid("a produce request needs a record batch for each partition")
    if len(records) >= HEADER_SIZE and records[_MAGIC_AT] in _OLD_FORMATS:
        raise _invalid(f"record batch of format (magic) {records[_MAGIC_AT]}: only format 2 is taken")
    header = read_header(records)
    if len(records) != header.size_in_bytes:
        raise _invalid(f"{len(records)} bytes for a batch of {header.size_in_bytes}: exactly one whole record batch per partition is taken")
    if len(records) > topic.config.max_message_bytes:
        raise StoreError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {len(records)} bytes which exceeds the maximum of {topic.config.max_message_bytes}.",
        )
    check_crc(records, 0, header)
    _check_header(header, topic, exchange)
    return header


def _check_header(header: BatchHeader, topic: Topic, exchange: Exchange) -> None:
    if header.base_offset != 0:
        raise _invalid(f"the batch's base offset is {header.base_offset}: a client has to send 0")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise _invalid(f"{header.record_count} records do not fit the last offset delta of {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("control batches are written by brokers only")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(f"producer {header.producer_id} sends epoch {header.producer_epoch} and sequence {header.base_sequence}")
    if header.codec is Codec.ZSTD and exchange.api_version < _ZSTD_FROM:
        raise StoreError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_FROM}")
    latest = exchange.store.now_ms() + topic.config.timestamp_after_max_ms
    if not topic.config.log_append_time and header.max_timestamp > latest:
        raise StoreError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {header.max_timestamp} is past {latest}: see message.timestamp.after.max.ms")


def _invalid(text: str) -> StoreError:
    return StoreError(ErrorCode.INVALID_RECORD, text)
