"""The exceptions of ``aiokafka.errors``: the same names, numbers and flags."""

from __future__ import annotations

from typing import Any

from aioprod.compat.aiokafka.broker_errors import *  # noqa: F403
from aioprod.compat.aiokafka.broker_errors import KafkaError


class IllegalStateError(KafkaError):
    """The call is not allowed in the client's state."""


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class NoBrokersAvailable(KafkaError):
    """No broker is known."""

    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """A broker is not connected."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """Bytes do not follow the protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """A response has another correlation id than its request."""

    retriable = True


class Cancelled(KafkaError):
    """A request was cancelled."""

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """A broker has too many requests in flight."""

    retriable = True


class StaleMetadata(KafkaError):
    """The metadata is out of date."""

    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """The metadata has no brokers."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    """The broker's version is unknown."""


class IncompatibleBrokerVersion(KafkaError):
    """A broker does not support the call."""


class CommitFailedError(KafkaError):
    """The offsets were not committed: the group has rebalanced, and another member may have the
    partitions.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(
            "the group has rebalanced, and another member may have the partitions; process records "
            "in less time than max_poll_interval_ms, or get fewer of them with max_poll_records",
            *args,
        )


class AuthenticationMethodNotSupported(KafkaError):
    """The broker does not support the SASL mechanism."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


class KafkaUnavailableError(KafkaError):
    """The cluster can't be reached."""


class KafkaTimeoutError(KafkaError):
    """A timeout expired."""


class KafkaConnectionError(KafkaError):
    """Connecting to a broker failed, or the connection was lost."""

    retriable = True
    invalid_metadata = True


class UnsupportedCodecError(KafkaError):
    """The library of a compression type is missing."""


class KafkaConfigurationError(KafkaError):
    """A setting is invalid."""


class QuotaViolationError(KafkaError):
    """A quota was exceeded."""


class ConsumerStoppedError(Exception):
    """The consumer was stopped before or during the call."""


class IllegalOperation(Exception):
    """The settings rule out the call, such as a commit without ``group_id``."""


class NoOffsetForPartitionError(KafkaError):
    """A partition has no committed offset, and ``auto_offset_reset`` is "none"."""


class RecordTooLargeError(KafkaError):
    """A record is larger than a fetch."""


class ProducerClosed(KafkaError):
    """The producer was stopped."""


class ProducerFenced(KafkaError):
    """A newer producer has the same ``transactional_id``, or the transaction has timed out."""

    def __init__(
        self,
        msg: str = "a newer producer has the same transactional_id, or the transaction was open "
        "for longer than transaction_timeout_ms",
    ) -> None:
        super().__init__(msg)
