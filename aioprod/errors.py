"""The errors of aioprod.

KafkaError
├── ConfigError (also a ValueError)    a setting or argument is invalid
├── ProtocolError                      bytes do not follow the protocol
│   └── CorruptRecordError             a record batch is corrupt
├── UnsupportedVersionError            client and broker support no common version of a request
├── BrokerConnectionError              connecting to a broker failed, or the connection was lost
├── KafkaTimeoutError (also a TimeoutError)
│   ├── RequestTimedOutError           no response within request_timeout_ms
│   ├── MetadataTimeoutError           topic or partition unknown within max_block_ms
│   ├── DeliveryTimeoutError           not acknowledged within delivery_timeout_ms
│   └── BufferExhaustedError           no buffer memory within max_block_ms
├── SerializationError (also a TypeError)
├── RecordTooLargeError (also a ValueError)
├── InvalidTopicError (also a ValueError)
├── InvalidPartitionError (also a ValueError)
├── ProducerClosedError
├── AuthenticationError                credentials or a certificate were rejected
├── TransactionStateError (also a RuntimeError)  the state of the transaction forbids the call
├── TransactionAbortedError            the transaction was aborted before the record was sent
├── ConsumerClosedError
├── AdminClosedError
├── ConsumerStateError (also a RuntimeError)  the state of the consumer forbids the call
│   └── ConcurrentUseError             two tasks use a consumer at the same time
├── WakeupError                        ``wakeup`` interrupted the call
├── WrongEventLoopError (also a RuntimeError)  used outside the event loop or process of its start
├── DeserializationError (also a ValueError)  a deserializer failed
├── InvalidOffsetError                 no valid position, and auto_offset_reset="none"
│   ├── NoOffsetError                  neither a position nor a committed offset
│   ├── OffsetOutOfRangeError          the position is outside the range of the partition
│   ├── LogTruncationError             the log was truncated before the position (KIP-320)
│   └── TopicRecreatedError            the topic was deleted and created again
├── CommitFailedError                  the consumer is not in its group any more
├── RebalanceInProgressError           the group rebalances: poll, then commit again
└── BrokerError                        a broker responded with an error code
    ├── AbortableTransactionError      abort the transaction, then begin another one
    └── FatalProducerError             close the producer and create another one
        └── ProducerFencedError        a newer producer has the same transactional id
"""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.foreign_text import bounded, escaped
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
    "TopicRecreatedError",
    "TransactionAbortedError",
    "TransactionStateError",
    "UnsupportedVersionError",
    "WakeupError",
    "WrongEventLoopError",
]


_Error = TypeVar("_Error", bound=Exception)
_MAX_TEXT = 4_000


class KafkaError(Exception):
    """Base class of all errors of aioprod.

    The text is one printable line of limited length, whatever names and reasons of brokers and
    services it contains: other characters are escaped.
    """

    def __str__(self) -> str:
        return bounded(escaped(bounded(super().__str__(), _MAX_TEXT)), _MAX_TEXT)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would call the class with the text only, but some have more parameters.
        return restored, (type(self), self.args), self.__dict__


def restored(kind: type[_Error], arguments: tuple[Any, ...]) -> _Error:
    """Return an error with these ``args``, without a call of its constructor."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    return error


def copy_of(error: _Error) -> _Error:
    """Return an equal error without a traceback.

    One failure may end many calls. Each gets its own error: raising the same object in several
    tasks would mix their tracebacks, and keep the variables of all these calls alive.
    """
    copy = restored(type(error), error.args)
    copy.__dict__.update(error.__dict__)
    if "__notes__" in copy.__dict__:
        copy.__dict__["__notes__"] = list(copy.__dict__["__notes__"])
    copy.__cause__ = error.__cause__
    copy.__context__ = error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy


class ConfigError(KafkaError, ValueError):
    """A setting or argument is unknown, has the wrong type, or is out of range."""


class ProtocolError(KafkaError):
    """Bytes do not follow the protocol of Kafka."""


class CorruptRecordError(ProtocolError):
    """A record batch has an invalid length, format or checksum."""


class UnsupportedVersionError(KafkaError):
    """Client and broker support no common version of a request."""


class BrokerConnectionError(KafkaError):
    """Connecting to a broker failed, or the connection was lost.

    Attributes:
        was_open: whether a broker had accepted the connection, and then ended it.
    """

    was_open: bool = False


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A timeout expired."""


class RequestTimedOutError(KafkaTimeoutError):
    """A broker did not respond within ``request_timeout_ms``."""


class MetadataTimeoutError(KafkaTimeoutError):
    """The metadata of a topic or partition was not available within ``max_block_ms``."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within ``delivery_timeout_ms``."""


class BufferExhaustedError(KafkaTimeoutError):
    """No buffer memory was available within ``max_block_ms``."""


class SerializationError(KafkaError, TypeError):
    """A key, value or header can't be serialized."""


class RecordTooLargeError(KafkaError, ValueError):
    """A record is larger than a limit of the producer or the broker."""


class InvalidTopicError(KafkaError, ValueError):
    """The name of a topic is invalid."""


class InvalidPartitionError(KafkaError, ValueError):
    """The topic has no such partition."""


class ProducerClosedError(KafkaError):
    """The producer was closed before the call, or before the record was acknowledged."""


class AuthenticationError(KafkaError):
    """The broker rejected the credentials, or a certificate is invalid. Retries do not help."""


class TransactionStateError(KafkaError, RuntimeError):
    """The state of the transaction does not allow the call, such as a commit without a begin."""


class TransactionAbortedError(KafkaError):
    """The transaction was aborted before the record was sent."""


class ConsumerClosedError(KafkaError):
    """The consumer was closed before or during the call."""


class AdminClosedError(KafkaError):
    """The admin client is not started, or was closed before or during the call."""


class ConsumerStateError(KafkaError, RuntimeError):
    """The state of the consumer does not allow the call, such as a seek in a partition that is not
    assigned.
    """


class ConcurrentUseError(ConsumerStateError):
    """A task called the consumer during a call of another task. Use a consumer in one task at a
    time; any task may call ``wakeup`` and ``close``.
    """


class WakeupError(KafkaError):
    """``wakeup`` interrupted the call, or the next one that waits."""


class WrongEventLoopError(KafkaError, RuntimeError):
    """A client was called from another event loop, thread or process than it was started in."""


class DeserializationError(KafkaError, ValueError):
    """A deserializer failed. The position stays at the record; ``seek`` to ``offset + 1`` skips it
    (KIP-334, KIP-1036).

    Attributes:
        topic_partition, offset, timestamp: partition, offset and timestamp of the record.
        key, value: the bytes that are stored.
        headers: headers of the record.
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
    """A partition has no valid position, and ``auto_offset_reset`` is "none". ``seek`` to a valid
    offset.

    Attributes:
        topic_partition: the partition.
    """

    def __init__(self, message: str, topic_partition: TopicPartition) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition


class NoOffsetError(InvalidOffsetError):
    """The partition has neither a position nor a committed offset."""


class OffsetOutOfRangeError(InvalidOffsetError):
    """The position is outside the range of the partition, for example because retention deleted the
    records.

    Attributes:
        offset: the position.
    """

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message, topic_partition)
        self.offset = offset


class LogTruncationError(InvalidOffsetError):
    """The log was truncated before the position: records that were read are lost, and others may
    have their offsets (KIP-320).

    Attributes:
        offset: the position.
        divergent_offset: the first offset that differs, or -1 if it is unknown.
    """

    def __init__(
        self, message: str, topic_partition: TopicPartition, offset: int, divergent_offset: int = -1
    ) -> None:
        super().__init__(message, topic_partition)
        self.offset = offset
        self.divergent_offset = divergent_offset


class TopicRecreatedError(InvalidOffsetError):
    """The topic was deleted and created again: the position belongs to the deleted topic, and says
    nothing about the new one.

    Attributes:
        offset: the position in the deleted topic; -1 if none was known yet.
        former_topic_id: the id of the deleted topic.
        topic_id: the id of the current topic.
    """

    def __init__(
        self,
        message: str,
        topic_partition: TopicPartition,
        offset: int,
        former_topic_id: uuid.UUID,
        topic_id: uuid.UUID,
    ) -> None:
        super().__init__(message, topic_partition)
        self.offset = offset
        self.former_topic_id = former_topic_id
        self.topic_id = topic_id


class CommitFailedError(KafkaError):
    """The offsets were not committed: the consumer is not in its group any more, and another one
    may read its partitions; or they belong to a topic that was deleted and created again.
    """


class RebalanceInProgressError(KafkaError):
    """The offsets were not committed: the group rebalances. Get records, which completes the
    rebalance, then commit again.
    """


class BrokerError(KafkaError):
    """A broker responded with an error code.

    Attributes:
        code: the error code; see :class:`aioprod.ErrorCode`.
        is_explained: whether the text says more than the description of the code, such as which
            operation is not authorized.
    """

    args: tuple[Any, ...]

    def __init__(self, code: ErrorCode, context: str = "") -> None:
        self.code = code
        self._context = context
        self.is_explained: bool = False
        super().__init__(self._text(code.description))

    def explain(self, reason: str) -> None:
        """Replace the description of the code by a reason that says more."""
        self.args = (self._text(reason),)
        self.is_explained = True

    def _text(self, reason: str) -> str:
        text = f"{self.code.name} ({int(self.code)}): {reason}"
        return f"{self._context}: {text}" if self._context else text


class AbortableTransactionError(BrokerError):
    """The transaction can't be committed. Abort it; the next one may succeed (KIP-1050)."""


class FatalProducerError(BrokerError):
    """The producer can't continue, for example because it is fenced. Close it and create another
    one.
    """


class ProducerFencedError(FatalProducerError):
    """A newer producer has started with the same ``transactional_id``. Close this one."""
