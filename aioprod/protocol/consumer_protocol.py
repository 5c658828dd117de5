"""What consumers of a classic group tell each other (protocol type "consumer"), as bytes that
brokers only pass on: Kafka's ConsumerProtocol.

Versions only add fields at the end: whoever knows fewer of them passes over the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.types import TopicPartition

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3
_OWNED_FROM = 1
_GENERATION_FROM = 2
_RACK_FROM = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member brings to a rebalance.

    Attributes:
        topics: what it reads.
        user_data: bytes of its assignor's own, None for none.
        owned: the partitions that it has and goes on reading (cooperative rebalances, KIP-429).
        generation: of the group when it was given these, -1 where it has none (KIP-792).
        rack: where it runs (``client.rack``, KIP-881), None where that is unknown.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member is given: partitions, and bytes of the assignor's own (None for none)."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """The metadata of a JoinGroup request; topics and partitions in order, so that an unchanged
    subscription has the same bytes.
    """
    writer = Writer()
    writer.int16(version)
    writer.array_length(len(subscription.topics), False)
    for topic in sorted(subscription.topics):
        writer.string(topic)
    writer.nullable_bytes(subscription.user_data)
    if version >= _OWNED_FROM:
        _write_partitions(writer, subscription.owned)
    if version >= _GENERATION_FROM:
        writer.int32(subscription.generation)
    if version >= _RACK_FROM:
        writer.nullable_string(subscription.rack)
    return bytes(writer.buffer)


def decode_subscription(data: bytes) -> Subscription:
    """The subscription in a member's metadata.

    Raises:
        ProtocolError: it is none.
    """
    reader = Reader(data)
    version = _read_version(reader)
    topics = tuple(reader.string() for _ in range(reader.array_length(False)))
    user_data = reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= _OWNED_FROM else ()
    generation = reader.int32() if version >= _GENERATION_FROM else -1
    rack = reader.nullable_string() if version >= _RACK_FROM else None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    """The assignment of one member in a SyncGroup request."""
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, assignment.partitions)
    writer.nullable_bytes(assignment.user_data)
    return bytes(writer.buffer)


def decode_assignment(data: bytes) -> Assignment:
    """The assignment in a SyncGroup response, or in a described group; empty bytes are an
    assignment of nothing.

    Raises:
        ProtocolError: it is none.
    """
    if not data:
        return Assignment()
    reader = Reader(data)
    _read_version(reader)
    return Assignment(_read_partitions(reader), reader.nullable_bytes())


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in order."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return version


def _write_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> None:
    topics = group_by_topic(partitions)
    writer.array_length(len(topics), False)
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.array_length(len(numbers), False)
        for number in numbers:
            writer.int32(number)


def _read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for _ in range(reader.array_length(False)):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length(False))]
    return tuple(found)
