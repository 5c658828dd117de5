"""Everything that aioprod raises.

KafkaError
├── ConfigError (also a ValueError)      a setting is unknown or out of range
├── ProtocolError                        bytes that don't follow the protocol
│   └── CorruptRecordError               a record batch that fails its checks
├── UnsupportedVersionError              client and broker share no version of a request
├── BrokerConnectionError                no connection to a broker, or it broke
├── KafkaTimeoutError (also a TimeoutError)
│   ├── RequestTimedOutError             no reply within request_timeout_ms
│   ├── MetadataTimeoutError             topic or partition unknown within max_block_ms
│   ├── DeliveryTimeoutError             not acknowledged within delivery_timeout_ms
│   └── BufferExhaustedError             no buffer memory within max_block_ms
├── SerializationError (also a TypeError)
├── RecordTooLargeError (also a ValueError)
├── InvalidTopicError (also a ValueError)
├── InvalidPartitionError (also a ValueError)
├── ProducerClosedError
├── AuthenticationError                  the broker refused the credentials, or its certificate was refused
├── TransactionStateError (also a RuntimeError)  a call that the transaction's state does not allow
├── TransactionAbortedError              the record's transaction was aborted before the record was sent
└── BrokerError                          a broker answered with an error code
    ├── AbortableTransactionError        abort the transaction, then go on with the next
    └── FatalProducerError               the producer can't go on and must be made anew
        └── ProducerFencedError          another producer has taken over the transactional id
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode


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
    """Client and broker don't trust each other: wrong credentials, or a certificate that fails its check. Trying again does not help."""


class TransactionStateError(KafkaError, RuntimeError):
    """The transaction's state does not allow this call, such as a commit without a begin."""


class TransactionAbortedError(KafkaError):
    """The record was dropped: its transaction was aborted before it was sent."""


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
    """The producer's identity is lost for good (fenced, not authorised): close it and make a new one."""


class ProducerFencedError(FatalProducerError):
    """Another producer has started with the same ``transactional_id``: this one must not write any more. Close it."""
