"""The headers of records in retry topics and dead-letter topics: origin, error and attempts."""

from __future__ import annotations

from typing import NamedTuple

from aioprod import ConsumerRecord, ProducerRecord
from aioprod.dead_letter_headers import PROCESSOR as PREFIX
from aioprod.dead_letter_headers import REDRIVES
from aioprod.foreign_text import text_of
from aioprod.types import Header

TOPIC = PREFIX + "original-topic"
PARTITION = PREFIX + "original-partition"
OFFSET = PREFIX + "original-offset"
TIMESTAMP = PREFIX + "original-timestamp"
GROUP = PREFIX + "group-id"
ATTEMPTS = PREFIX + "attempts"
DELIVERY_COUNT = PREFIX + "delivery-count"
ERROR_CLASS = PREFIX + "error-class"
ERROR_MESSAGE = PREFIX + "error-message"

_MAX_MESSAGE_BYTES = 2_000
_MAX_NUMBER = 2**63 - 1


class Origin(NamedTuple):
    """The topic, partition and offset where a record was first read.

    Attributes:
        headers: its headers there.
        attempts: the number of calls of the handler with it so far.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: tuple[Header, ...]
    attempts: int


def origin_of(record: ConsumerRecord, *, is_retry: bool) -> Origin:
    """Return the origin of a record.

    Args:
        is_retry: whether it was read from a retry topic. Its headers name the origin then; if
            another program wrote it without them, the retry topic is its origin.
    """
    own = Origin(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.headers,
        0,
    )
    if not is_retry:
        return own
    ours = {name: value or b"" for name, value in record.headers if name.startswith(PREFIX)}
    headers = tuple(header for header in record.headers if not _is_ours(header[0]))
    try:
        return Origin(
            ours[TOPIC].decode(),
            _number(ours[PARTITION]),
            _number(ours[OFFSET]),
            _number(ours[TIMESTAMP]),
            headers,
            _number(ours[ATTEMPTS]),
        )
    except (KeyError, ValueError):
        return own._replace(headers=headers)


def forwarded(
    record: ConsumerRecord,
    origin: Origin,
    topic: str,
    group_id: str,
    error: BaseException,
    attempts: int,
    delivery_count: int = 0,
) -> ProducerRecord:
    """Return the record to send to a retry topic or to the dead-letter topic: the bytes as stored,
    the headers of the origin, and headers that describe the failure.

    Args:
        attempts: the number of calls of the handler with the record so far; in a share group,
            since its last delivery.
        delivery_count: how often it was delivered to the share group; 0 in a consumer group.
    """
    kind = type(error)
    facts = {
        TOPIC: origin.topic,
        PARTITION: str(origin.partition),
        OFFSET: str(origin.offset),
        TIMESTAMP: str(origin.timestamp),
        GROUP: group_id,
        ATTEMPTS: str(attempts),
        ERROR_CLASS: f"{kind.__module__}.{kind.__qualname__}",
        ERROR_MESSAGE: text_of(error),
    }
    if delivery_count:
        facts[DELIVERY_COUNT] = str(delivery_count)
    headers = [header for header in origin.headers if not _is_ours(header[0])]
    for name, text in facts.items():
        # A character that is cut in the middle is left out.
        data = text.encode(errors="replace")[:_MAX_MESSAGE_BYTES]
        headers.append((name, data.decode(errors="ignore").encode()))
    return ProducerRecord(topic, record.value, record.key, headers=tuple(headers))


def _is_ours(name: str) -> bool:
    """Return whether a header describes the failure; that of redrives belongs to the record."""
    return name.startswith(PREFIX) and name != REDRIVES


def _number(data: bytes) -> int:
    if not data.isdigit() or len(data) > len(str(_MAX_NUMBER)):
        raise ValueError("not a number")
    return int(data)
