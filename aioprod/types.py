"""Values of the public API."""

# Without `from __future__ import annotations`: NamedTuple and `set_module` would compile each
# annotation of a field, which takes milliseconds of each import.

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

__all__ = [
    "AcknowledgeType",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PreparedTransaction",
    "ProducerRecord",
    "RecordMetadata",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # A class without type arguments, such as ``ConsumerRecord``, is one of Any.
    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
    K_contra = TypeVar("K_contra", contravariant=True, default=Any)
    V_contra = TypeVar("V_contra", contravariant=True, default=Any)
else:  # typing has defaults from Python 3.13 on
    from typing import TypeVar

    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]


class TopicPartition(NamedTuple):
    """A topic and the number of a partition."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record.

    Attributes:
        topic: the topic's name.
        partition: the partition number.
        offset: the offset; -1 with acks=0, or if the broker does not know it any more.
        timestamp: milliseconds since 1970, set by the producer, or by the broker for topics
            with LogAppendTime.
        serialized_key_size: the size of the key in bytes; -1 for a null, for a record that was not
            stored, and for rows of ``send_arrow``.
        serialized_value_size: the same for the value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1


class ProducerRecord(NamedTuple, Generic[K_co, V_co]):
    """A record as it was passed to ``send``: ``ProducerRecord[K, V]`` has a key and a value of
    these types.

    Attributes:
        topic: the topic.
        value: bytes, or an object for the value serializer; None is a null.
        key: the same for the key.
        partition: the partition number, or None if the producer chooses it.
        timestamp_ms: milliseconds since 1970; None is the current time, -1 no timestamp.
        headers: (name, bytes or None) pairs, in order; names may repeat.
        partition_key: bytes that select the partition instead of the key, and are not stored.
    """

    topic: str
    value: V_co = None  # type: ignore[assignment]  # then V is None
    key: K_co = None  # type: ignore[assignment]
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()
    partition_key: bytes | None = None


class OffsetAndMetadata(NamedTuple):
    """A position to commit.

    Attributes:
        offset: the offset of the next record to read.
        metadata: any text.
        leader_epoch: the leader epoch of the last record that was read; -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class SubscriptionPattern(NamedTuple):
    """A regular expression for topics that the broker evaluates, in RE2's syntax; it must match the
    whole name (KIP-848, Kafka 4.0).

    For ``subscribe(pattern=...)`` with ``group_protocol="consumer"``. The client evaluates patterns
    of Python's ``re``.
    """

    pattern: str


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp.

    Attributes:
        offset: the offset of the record.
        timestamp: its timestamp, in milliseconds since 1970.
        leader_epoch: its leader epoch; -1 if unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple, Generic[K_co, V_co]):
    """A record that a consumer returns: that of a ``Consumer[K, V]`` is a ``ConsumerRecord[K, V]``.

    Attributes:
        topic: the topic.
        partition: the partition number.
        offset: the offset in the partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the broker did
            (LogAppendTime).
        key, value: bytes, or what the deserializers return; None is a null.
        headers: (name, bytes or None) pairs, in order; names may repeat.
        leader_epoch: the leader epoch of the batch; -1 if unknown.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K_co
    value: V_co
    headers: tuple[Header, ...]
    leader_epoch: int = -1


class AcknowledgeType(IntEnum):
    """The way in which a member of a share group acknowledges a record (KIP-932). The numbers are
    those of the protocol.
    """

    ACCEPT = 1
    """The record was processed; the group does not get it again."""
    RELEASE = 2
    """The record was not processed; the group gets it again."""
    REJECT = 3
    """The record can't be processed; the group does not get it again."""
    RENEW = 4
    """The record is still being processed: its lock begins again (KIP-1222, Kafka 4.2)."""


class ShareRecord(NamedTuple, Generic[K_co, V_co]):
    """A record that a share consumer returns (KIP-932): that of a ``ShareConsumer[K, V]`` is a
    ``ShareRecord[K, V]``.

    Attributes:
        topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch: as
            in :class:`ConsumerRecord`.
        delivery_count: number of deliveries to the group, this one included.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K_co
    value: V_co
    headers: tuple[Header, ...]
    leader_epoch: int
    delivery_count: int


class PreparedTransaction(NamedTuple):
    """A prepared transaction: all records are written, and any process can commit or abort it
    (named as in KIP-939).

    Attributes:
        transactional_id: transactional id of its producer; a newer producer with this id aborts it.
        producer_id, epoch: id and epoch of its producer.
        v2: whether it uses transaction protocol 2 (KIP-890), which has another version of the
            request that ends it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    v2: bool


class ConsumerGroupMetadata(NamedTuple):
    """The group member that commits offsets in a transaction (KIP-447). The broker fences a member
    that was replaced.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
