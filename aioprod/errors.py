"""Everything that aioprod raises.

KafkaError
├── ConfigError (also a ValueError)    a setting is unknown or out of range
├── ProtocolError                      bytes that don't follow the protocol
│   └── CorruptRecordError             a record batch that fails its checks
├── UnsupportedVersionError            client and broker share no version of a request
├── BrokerConnectionError              no connection to a broker, or it broke
├── KafkaTimeoutError (also a TimeoutError)
│   ├── RequestTimedOutError           no reply within request_timeout_ms
│   ├── MetadataTimeoutError           topic or partition unknown within max_block_ms
│   ├── DeliveryTimeoutError           not acknowledged within delivery_timeout_ms
│   └── BufferExhaustedError           no buffer memory within max_block_ms
├── SerializationError (also a TypeError)
├── RecordTooLargeError (also a ValueError)
├── InvalidTopicError (also a ValueError)
├── InvalidPartitionError (also a ValueError)
├── ProducerClosedError
├── AuthenticationError                credentials or a certificate were refused
├── TransactionStateError (also a RuntimeError)  a call that the transaction's state does not allow
├── TransactionAbortedError            the transaction was aborted before it was sent
├── ConsumerClosedError
├── AdminClosedError
├── ConsumerStateError (also a RuntimeError)  a call that the consumer's state does not allow
│   └── ConcurrentUseError             two tasks use one consumer at the same time
├── WakeupError                        ``wakeup`` was called: the waiting call ends
├── WrongEventLoopError (a RuntimeError)  used outside the event loop or process it started in
├── DeserializationError (also a ValueError)  a deserializer can't read a record; names its place
├── InvalidOffsetError                 no such position, and auto_offset_reset="none"
│   ├── NoOffsetError                  neither a position nor a committed offset
│   ├── OffsetOutOfRangeError          the offset is outside what the partition holds
│   └── LogTruncationError             the log was cut off before the position (KIP-320)
├── CommitFailedError                  another member reads the partitions now
├── RebalanceInProgressError           the group rebalances: poll, then commit again
└── BrokerError                        a broker answered with an error code
    ├── AbortableTransactionError      abort the transaction, then go on with the next
    └── FatalProducerError             the producer can't go on and must be made anew
        └── ProducerFencedError        another producer has taken over the transactional id
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.types import Headers, TopicPartition

__all__ = [
    "AbortableTransactionError",
    "AdminClosedError",
    "AuthenticationError",
    "BrokerConnectionError",
    "BrokerError",
    "BufferExhaustedError",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConfigError",
    "ConsumerClosedError",
    "ConsumerStateError",
    "CorruptRecordError",
    "DeliveryTimeoutError",
    "DeserializationError",
    "FatalProducerError",
    "InvalidOffsetError",
    "InvalidPartitionError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MetadataTimeoutError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProtocolError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "SerializationError",
    "TransactionAbortedError",
    "TransactionStateError",
    "UnsupportedVersionError",
    "WakeupError",
    "WrongEventLoopError",
]


class KafkaError(Exception):
    """Root of all errors of this library."""


class ConfigError(KafkaError, ValueError):
    """A setting is unknown, of the wrong type or outside its limits."""


class ProtocolError(KafkaError):
    """Received or given bytes do not follow the Kafka protocol."""


class CorruptRecordError(ProtocolError):
    """A record batch fails its length, format or checksum test."""


class UnsupportedVersionError(KafkaError):
    """Client and broker have no version of a request in common."""


class BrokerConnectionError(KafkaError):
    """No connection to a broker could be made, or it broke."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A limit on waiting was reached."""


class RequestTimedOutError(KafkaTimeoutError):
    """A broker did not reply within ``request_timeout_ms``."""


class MetadataTimeoutError(KafkaTimeoutError):
    """A topic or partition stayed unknown for ``max_block_ms``."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within ``delivery_timeout_ms``."""


class BufferExhaustedError(KafkaTimeoutError):
    """No buffer memory came free within ``max_block_ms``."""


class SerializationError(KafkaError, TypeError):
    """A key or value can't be turned into bytes."""


class RecordTooLargeError(KafkaError, ValueError):
    """A record is larger than a limit of the producer or of the broker."""


class InvalidTopicError(KafkaError, ValueError):
    """A topic's name is not legal."""


class InvalidPartitionError(KafkaError, ValueError):
    """A partition is outside a topic's range."""


class ProducerClosedError(KafkaError):
    """The producer was closed before the call, or before the record was acknowledged."""


class AuthenticationError(KafkaError):
    """Client and broker don't trust each other: wrong credentials, or a certificate that fails its
    check. Trying again does not help.
    """


class TransactionStateError(KafkaError, RuntimeError):
    """The transaction's state does not allow this call, such as a commit without a begin."""


class TransactionAbortedError(KafkaError):
    """The record was dropped: its transaction was aborted before it was sent."""


class ConsumerClosedError(KafkaError):
    """The consumer was closed before the call, or while it waited."""


class AdminClosedError(KafkaError):
    """The admin client was closed before the call, or while it waited, or is not started."""


class ConsumerStateError(KafkaError, RuntimeError):
    """The consumer's state does not allow this call, such as a seek in a partition that is not
    assigned.
    """


class ConcurrentUseError(ConsumerStateError):
    """A second task called the consumer while one waits in it. It belongs to one task at a time;
    only ``wakeup`` and ``close`` are for all.
    """


class WakeupError(KafkaError):
    """``wakeup`` was called: the call that waited, or the next one that would, ends with this,
    once.
    """


class WrongEventLoopError(KafkaError, RuntimeError):
    """A client is used outside the event loop, or the process, in which it was started: from
    another loop or thread, or in a forked child.
    """


class DeserializationError(KafkaError, ValueError):
    """A deserializer can't read a record. The position stays in front of it: ``seek`` to ``offset +
    1`` leaves it out (KIP-334, KIP-1036).

    Attributes:
        topic_partition, offset, timestamp: where the record is, and when it was written.
        key, value: its bytes, as they are stored.
        headers: its headers.
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        offset: int,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers


class InvalidOffsetError(KafkaError):
    """A partition can't be read on from where it stands, and ``auto_offset_reset`` is "none":
    ``seek`` to where to go on.

    Attributes:
        topic_partition: the partition.
    """

    def __init__(self, message: str, topic_partition: TopicPartition) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition


class NoOffsetError(InvalidOffsetError):
    """The partition has neither a position nor a committed offset."""


class OffsetOutOfRangeError(InvalidOffsetError):
    """The position is outside what the partition holds, such as that of records that retention has
    removed.

    Attributes:
        offset: the position.
    """

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message, topic_partition)
        self.offset = offset


class LogTruncationError(InvalidOffsetError):
    """The log was cut off before the position: records that were read are gone, others have their
    offsets (KIP-320).

    Attributes:
        offset: the position.
        divergent_offset: the first offset that differs, -1 where the broker does not know it.
    """

    def __init__(
        self, message: str, topic_partition: TopicPartition, offset: int, divergent_offset: int = -1
    ) -> None:
        super().__init__(message, topic_partition)
        self.offset = offset
        self.divergent_offset = divergent_offset


class CommitFailedError(KafkaError):
    """The offsets were not committed: the member is no longer in its group, and another one may
    read its partitions.
    """


class RebalanceInProgressError(KafkaError):
    """The offsets were not committed: the group is being put together at this moment. Ask for
    records, which finishes that, then commit again.
    """


class BrokerError(KafkaError):
    """A broker answered with an error code.

    Attributes:
        code: the code, with ``retriable`` and ``description``.
    """

    def __init__(self, code: ErrorCode, context: str = "") -> None:
        self.code = code
        text = f"{code.name} ({int(code)}): {code.description}"
        super().__init__(f"{context}: {text}" if context else text)


class AbortableTransactionError(BrokerError):
    """The transaction can't be committed: abort it, then the next one may succeed (KIP-1050)."""


class FatalProducerError(BrokerError):
    """The producer's identity is lost for good (fenced, not authorised): close it and make a new
    one.
    """


class ProducerFencedError(FatalProducerError):
    """Another producer has started with the same ``transactional_id``: this one must not write any
    more. Close it.
    """
