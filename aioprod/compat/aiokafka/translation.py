"""Converts aioprod's errors to aiokafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aioprod
from aioprod.compat.aiokafka import errors

_BY_TYPE: tuple[tuple[type[aioprod.KafkaError], Callable[[str], Exception]], ...] = (
    (aioprod.BrokerConnectionError, errors.KafkaConnectionError),
    (aioprod.AuthenticationError, errors.AuthenticationFailedError),
    (aioprod.RequestTimedOutError, errors.RequestTimedOutError),
    (aioprod.MetadataTimeoutError, errors.UnknownTopicOrPartitionError),
    (aioprod.KafkaTimeoutError, errors.KafkaTimeoutError),
    (aioprod.SerializationError, TypeError),
    (aioprod.RecordTooLargeError, errors.MessageSizeTooLargeError),
    (aioprod.InvalidTopicError, errors.InvalidTopicError),
    (aioprod.InvalidPartitionError, AssertionError),
    (aioprod.ProducerClosedError, errors.ProducerClosed),
    (aioprod.TransactionStateError, errors.IllegalOperation),
    (aioprod.ConsumerClosedError, errors.ConsumerStoppedError),
    (aioprod.ConsumerStateError, errors.IllegalStateError),
    (aioprod.CommitFailedError, errors.CommitFailedError),
    (aioprod.RebalanceInProgressError, errors.CommitFailedError),
    (aioprod.NoOffsetError, errors.NoOffsetForPartitionError),
    (aioprod.CorruptRecordError, errors.CorruptRecordException),
    (aioprod.UnsupportedVersionError, errors.UnsupportedVersionError),
)

_FENCED = (aioprod.ErrorCode.INVALID_PRODUCER_EPOCH, aioprod.ErrorCode.PRODUCER_FENCED)


def translated(error: BaseException) -> BaseException:
    """Return aiokafka's error for an error of aioprod; other errors unchanged."""
    if not isinstance(error, aioprod.KafkaError) or isinstance(error, aioprod.ConfigError):
        return error
    found: Exception | None = None
    if isinstance(error, aioprod.BrokerError) and error.code in _FENCED:
        found = errors.ProducerFenced(str(error))
    elif isinstance(
        error,
        aioprod.OffsetOutOfRangeError | aioprod.LogTruncationError | aioprod.TopicRecreatedError,
    ):
        found = errors.OffsetOutOfRangeError({error.topic_partition: error.offset})
    else:
        for kind, make in _BY_TYPE:
            if isinstance(error, kind):
                found = make(str(error))
                break
    if found is None:
        known = isinstance(error, aioprod.BrokerError)
        make = errors.for_code(error.code) if known else errors.KafkaError  # type: ignore[attr-defined]
        found = make(str(error))
    found.__cause__ = error
    return found


@contextmanager
def aiokafka_errors() -> Iterator[None]:
    """Convert errors of aioprod that are raised in the body to aiokafka's."""
    try:
        yield
    except aioprod.KafkaError as error:
        found = translated(error)
        if found is error:
            raise
        raise found from error
