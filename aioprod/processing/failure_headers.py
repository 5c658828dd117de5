"""The headers of records in retry topics and dead-letter topics: origin, error and attempts."""

from __future__ import annotations

from typing import NamedTuple

from aioprod import ConsumerRecord, ProducerRecord
from aioprod.foreign_text import text_of
from aioprod.types import Header

PREFIX = "aioprod."
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
    """Where a record was read for the first time.

    Attributes:
        headers: its headers there.
        attempts: the calls of the handler with it so far.
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
        is_retry: whether it was read from a retry topic: its headers name the origin then. If
            another program wrote it without them, its own place is the origin.
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
    headers = tuple(header for header in record.headers if not header[0].startswith(PREFIX))
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
    the headers of the origin, and those that describe the failure.

    Args:
        attempts: the calls of the handler with the record so far, in a share group since its last
            delivery.
        delivery_count: how often a share group has got it; 0 in a consumer group.
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
    headers = [header for header in origin.headers if not header[0].startswith(PREFIX)]
    for name, text in facts.items():
        # Cut in the middle of a character, the rest of it is left out.
        data = text.encode(errors="replace")[:_MAX_MESSAGE_BYTES]
        headers.append((name, data.decode(errors="ignore").encode()))
    return ProducerRecord(topic, record.value, record.key, headers=tuple(headers))


def _number(data: bytes) -> int:
    if not data.isdigit() or len(data) > len(str(_MAX_NUMBER)):
        raise ValueError("not a number")
    return int(data)
