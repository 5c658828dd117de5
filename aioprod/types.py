"""Values that users and several layers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PreparedTransaction",
    "ProducerRecord",
    "RecordMetadata",
    "SubscriptionPattern",
    "TopicPartition",
]

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class TopicPartition(NamedTuple):
    """A topic's name and a partition number."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where the broker put an acknowledged record.

    Attributes:
        topic: the topic's name.
        partition: the partition number.
        offset: the record's offset, -1 where acks=0 or where the broker no longer knows it.
        timestamp: milliseconds since 1970, the record's own or, for LogAppendTime topics, the
            broker's.
        serialized_key_size: bytes of the key; -1 for a null, for a record that was not stored, and
            for rows of ``send_arrow``.
        serialized_value_size: the same for the value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1


class ProducerRecord(NamedTuple):
    """A record as it was given to ``send``.

    Attributes:
        topic: where to.
        value: bytes or what the value serializer takes; None is a null.
        key: the same for the key.
        partition: the partition number, None to have it chosen.
        timestamp_ms: milliseconds since 1970, None for now.
        headers: (name, bytes or None) pairs; order and duplicates are kept.
        partition_key: bytes that choose the partition instead of the key, and are not stored.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()
    partition_key: bytes | None = None


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, a note, and the leader epoch of
    the last record read (-1: unknown).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class SubscriptionPattern(NamedTuple):
    """A regular expression in RE2's syntax that the broker resolves: topics whose whole name
    matches (KIP-848, Kafka 4.0).

    For ``subscribe(pattern=...)`` with ``group_protocol="consumer"``; a pattern of Python's ``re``
    is resolved by this client.
    """

    pattern: str


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a point in time: its offset, its timestamp (milliseconds since
    1970) and its leader epoch (-1: unknown).
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple):
    """A record as it was read.

    Attributes:
        topic: where it was.
        partition: the partition number.
        offset: its place in the partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 where the producer set the timestamp (CreateTime), 1 where the broker did
            (LogAppendTime).
        key, value: bytes or what the deserializers make of them; None is a null.
        headers: names and values in the producer's order; names may repeat.
        leader_epoch: the epoch of the leader that wrote it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int = -1


class PreparedTransaction(NamedTuple):
    """A transaction that is written and still open: with this, any process may end it (KIP-939's
    name; EndTxn needs no more).

    Attributes:
        transactional_id: of the producer that wrote it; a newer producer with this id aborts it.
        producer_id, epoch: the identity it was written under.
        v2: whether it follows the second transaction protocol (KIP-890), which ends it by another
            version of the request.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    v2: bool


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets in a transaction (KIP-447): the group, and the member's generation and
    ids so that a member that was replaced is fenced.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A token for SASL/OAUTHBEARER, as a token provider returns it (KIP-255).

    Attributes:
        value: the token, such as a JSON Web Token in its compact form.
        extensions: names and values to send with the token (KIP-342).
    """

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenProvider = Callable[[], Awaitable[OAuthToken]]
"""An async function without arguments. Clients call it for each new connection, and before a
session expires.

An error that it raises becomes the cause of an AuthenticationError; so does CancelledError unless
the client cancels the call, because it closes or no longer needs the connection.
KeyboardInterrupt and SystemExit are also raised by the event loop.
"""
