"""Determines the rows that Kafka refuses from the errors of their records. Pure functions."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Literal

from aioprod import (
    AbortableTransactionError,
    BrokerError,
    ErrorCode,
    InvalidPartitionError,
    InvalidTopicError,
    ProducerRecord,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.outbox.databases import Row
from aioprod.outbox.schema import COLUMNS
from aioprod.outbox.steps import Refusal

OnRefused = Literal["stop_key", "set_aside"]

#: The time after which rows of a topic are sent again, since the topic may be created or an ACL
#: granted.
RETRY_TOPIC_MS = 30_000

_OF_TOPIC = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
#: Errors of a whole batch: it is unknown which of its records is the cause.
_OF_BATCH = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.POLICY_VIOLATION}
)
_OF_RECORD = (RecordTooLargeError, InvalidPartitionError, SerializationError)


class MalformedRow(ValueError):
    """A row that another program wrote is not a valid record."""


def record_of(row: Row) -> ProducerRecord[bytes, bytes]:
    """Return the record of a row.

    Raises:
        MalformedRow: if its headers are invalid.
    """
    # In the order of COLUMNS: for each row, names took three times as long.
    _, _, topic, partition, partition_key, key, value, encoded, timestamp_ms = row
    headers: list[tuple[str, bytes | None]] = []
    if encoded:
        try:
            headers = [
                (name, None if data is None else b64decode(data, validate=True))
                for name, data in json.loads(encoded)
            ]
        except (TypeError, ValueError) as error:
            raise MalformedRow(f"column headers: {error}") from None
    return ProducerRecord(topic, value, key, partition, timestamp_ms, headers, partition_key)


def is_of_topic(error: BaseException) -> bool:
    """Return whether the error means that Kafka refuses all records of the topic."""
    if isinstance(error, InvalidTopicError):
        return True
    return isinstance(error, BrokerError) and error.code in _OF_TOPIC


def refusals(
    rows: list[Row], errors: Mapping[int, Exception], policy: OnRefused
) -> list[Refusal] | None:
    """Return the rows that Kafka refuses; None if this can be determined only with fewer rows in a
    transaction.

    Args:
        rows: the rows of a transaction that failed.
        errors: the errors of their records, by index in ``rows``.
    """
    found: dict[int, Exception] = {}
    suspects: dict[int, Exception] = {}
    topics = set()
    for place, error in sorted(errors.items()):
        topic = rows[place][1 + COLUMNS.index("topic")]
        if isinstance(error, AbortableTransactionError):  # perhaps because of another record
            if is_of_topic(error) or error.code in _OF_BATCH:
                suspects[place] = error
        elif is_of_topic(error):
            if topic not in topics:  # one row stops all rows of a topic
                found[place] = error
            topics.add(topic)
        elif isinstance(error, (MalformedRow, *_OF_RECORD)):
            found[place] = error
        elif isinstance(error, BrokerError) and error.code in _OF_BATCH:
            suspects[place] = error
    if not found and suspects:
        if len(rows) > 1:
            return None
        found = suspects
    return [_refusal(rows[place], error, policy) for place, error in found.items()]


def _refusal(row: Row, error: Exception, policy: OnRefused) -> Refusal:
    given = dict(zip(COLUMNS, row[1:], strict=True))
    ordering = given["key"] if given["partition_key"] is None else given["partition_key"]
    reason = f"{type(error).__name__}: {error}"
    if is_of_topic(error):
        return Refusal(row[0], given["topic"], "topic", ordering, reason, RETRY_TOPIC_MS)
    stops: Literal["key", "row"] = "row" if policy == "set_aside" or ordering is None else "key"
    return Refusal(row[0], given["topic"], stops, ordering, reason, None)
