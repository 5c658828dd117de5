"""Stores decisions in the metadata of an offset that a group has committed, or in a compacted topic
if a decision is too long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.error_codes import ErrorCode
from aioprod.errors import AbortableTransactionError, BrokerError, FatalProducerError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.producer.producer import Producer
from aioprod.protocol.group_offsets import LAST_FETCH_BY_NAME, fetch_offsets
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aioprod.spark.coordination import Coordination
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once import decision_topic
from aioprod.spark.exactly_once.decision import Decision, decode, encode
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.sink_options import SinkOptions
from aioprod.spark.waiting import named_wait
from aioprod.types import OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

# Kafka's default for offset.metadata.max.bytes.
METADATA_LIMIT = 4096


async def read_decided(
    coordination: Coordination, sink: Sink, *, stable: bool = False
) -> Decision | None:
    """Return the newest decision of a sink, or None if there is none, within three times
    `Coordination.limit_s`.

    Args:
        stable: wait for a decision that is being committed (KIP-447); otherwise it may be missed.

    Raises:
        DecisionError: if it can't be parsed.
        KafkaError: if it can't be read within the limit.
    """
    committed = await committed_offsets(coordination, sink.group, stable=stable)
    # Each batch commits an offset of one of its topics; those of other topics are older, or belong
    # to a decision about the same batch that was taken back.
    newest = max((position.offset for position in committed.values()), default=None)
    found = [
        replace(await _read(coordination, position.metadata), topic=place.topic)
        for place, position in committed.items()
        if position.offset == newest
    ]
    return next((each for each in found if not each.is_taken_back), found[0] if found else None)


async def _read(coordination: Coordination, text: str) -> Decision:
    place = decision_topic.place_of(text)
    return decode(text if place is None else await decision_topic.read(coordination, place))


async def committed_offsets(
    coordination: Coordination, group: str, *, stable: bool
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all offsets of a group, within `Coordination.limit_s`.

    Args:
        stable: wait for those that are being committed (KIP-447).

    Raises:
        KafkaError: if they can't be read within the limit.
    """

    def prepare(peer: Connection) -> tuple[OffsetFetchRequest, int]:
        version = peer.pick_version(OffsetFetchRequest, LAST_FETCH_BY_NAME)
        return fetch_offsets(group, None, version, require_stable=stable), version

    reply = await coordination.ask(CoordinatorType.GROUP, group, prepare, _code)
    code = _code(reply)
    if code:
        raise BrokerError(code, f"the offsets of group {group!r} can't be read")
    topics = reply.groups[0].topics if reply.groups else reply.topics
    return {
        TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(
            p.committed_offset, p.metadata or ""
        )
        for topic in topics
        for p in topic.partitions
        if p.committed_offset >= 0
    }


def _code(reply: OffsetFetchResponse) -> ErrorCode:
    """Return the first error in the response for one group."""
    topics = (
        [topic for group in reply.groups for topic in group.topics]
        if reply.groups
        else reply.topics
    )
    codes = [
        reply.error_code,
        *(group.error_code for group in reply.groups),
        *(p.error_code for topic in topics for p in topic.partitions),
    ]
    return next((ErrorCode.of(code) for code in codes if code), ErrorCode.NONE)


@dataclass(frozen=True, slots=True)
class DriverPart:
    """The objects that the driver of a sink uses.

    Attributes:
        options: the options of the write.
        coordination: sends requests to coordinators.
        producer: a producer that was started with `Sink.driver_id`, which no other driver has taken
            over.
        sink: the sink whose batches are decided.
    """

    options: SinkOptions
    coordination: Coordination
    producer: Producer
    sink: Sink


async def decide(part: DriverPart, decision: Decision) -> None:
    """Commit the decision, for partition 0 of its topic. After that the batch counts as written.

    Each step (up to six calls of the producer, and those of `decision_topic.write`) ends within its
    own limit, `max_block_ms`.

    Raises:
        SinkError: if another driver took over; nothing was decided.
        KafkaError: if it is uncertain whether the decision was committed.
    """
    try:
        await _decide(part, decision)
    except FatalProducerError as error:
        raise SinkError(
            f"batch {decision.version}: another driver writes as {part.sink.driver_id!r}, with the "
            f"same checkpoint or txnAppId: {error}"
        ) from error


async def _decide(part: DriverPart, decision: Decision) -> None:
    producer, sink, place = part.producer, part.sink, TopicPartition(decision.topic, 0)
    text = encode(decision)
    if len(text) > METADATA_LIMIT:
        text = encode(replace(decision, sources=()))
    position = OffsetAndMetadata(decision.version + 1, text)
    if len(text) <= METADATA_LIMIT:
        await producer.begin_transaction()
        try:
            await _commit(producer, sink, place, position)
            return
        except AbortableTransactionError as error:
            if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
        # The brokers' limit is lower than Kafka's default.
        await producer.abort_transaction()
    await producer.begin_transaction()
    written = await decision_topic.write(
        part.coordination, producer, part.options.decision_topic, sink, text
    )
    await _commit(producer, sink, place, position._replace(metadata=written))


async def _commit(
    producer: Producer, sink: Sink, place: TopicPartition, position: OffsetAndMetadata
) -> None:
    what = f"committing the decision about batch {position.offset - 1} in group {sink.group}"
    with named_wait(what, "kafka.max.block.ms for each of two requests"):
        await producer.send_offsets_to_transaction({place: position}, sink.group)
        await producer.commit_transaction()
