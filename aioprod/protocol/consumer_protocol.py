"""Kafka's ConsumerProtocol: the messages between the members of a classic group (protocol type
"consumer"), which are opaque to brokers.

New versions only add fields at the end, which readers of older versions ignore.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader, Writer
from aioprod.types import TopicPartition

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3
_OWNED_FROM = 1
_GENERATION_FROM = 2
_RACK_FROM = 3


class Subscription(NamedTuple):
    """The subscription that a member sends in a rebalance.

    Attributes:
        topics: the topics that the member reads.
        user_data: data of the member's assignor, if any.
        owned: the partitions that the member continues to read (cooperative rebalances, KIP-429).
        generation: generation of the group in which they were assigned; -1 if there are none
            (KIP-792).
        rack: rack of the member (``client.rack``, KIP-881), if known.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


class Assignment(NamedTuple):
    """The partitions that are assigned to a member, and data of the assignor, if any."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Return the metadata of a JoinGroup request. Topics and partitions are sorted, so that an
    unchanged subscription has the same bytes.
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
    """Return the subscription in a member's metadata.

    Raises:
        ProtocolError: if it is not valid.
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
    """Return the assignment of one member in a SyncGroup request."""
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, assignment.partitions)
    writer.nullable_bytes(assignment.user_data)
    return bytes(writer.buffer)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in a SyncGroup response or a described group; empty if there are no
    bytes.

    Raises:
        ProtocolError: if it is not valid.
    """
    if not data:
        return Assignment()
    reader = Reader(data)
    _read_version(reader)
    return Assignment(_read_partitions(reader), reader.nullable_bytes())


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, both sorted."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol is not valid")
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
