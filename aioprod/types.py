"""Values that users and several layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
        timestamp: milliseconds since 1970, the record's own or, for LogAppendTime topics, the broker's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
