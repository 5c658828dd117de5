"""A dead letter: its origin, its error, and the record to send again."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aioprod import ConsumerRecord, ProducerRecord, TopicPartition
from aioprod.dead_letter_headers import REDRIVES
from aioprod.processing.dead_letters import formats
from aioprod.processing.dead_letters.formats import format_of, of_digits, own_headers
from aioprod.public_module import set_module
from aioprod.types import Header

SHARE_GROUP: Final = "share-group"

_MOST_TEXT = 10_000
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


@set_module("aioprod.processing.dead_letters")
class DeadLetter(NamedTuple):
    """A dead letter. Fields are None, or empty texts, if no header has them.

    Attributes:
        record: the record in the dead-letter topic.
        format: the format of its headers: ``aioprod``, ``aioprod-spark``, ``connect``, ``spring``,
            ``spring-retry``, ``share-group`` or ``streams``; empty if it has none of these.
        original_topic, original_partition, original_offset: where the record was first. Internal
            topics, whose names begin with two underscores, count as unknown.
        original_timestamp: its timestamp there, in milliseconds since 1970.
        group_id: the group, or the connector, that could not process it.
        error: the class of the error.
        message: the text of the error.
        attempts: how often it was tried.
        delivery_count: how often it was delivered to a share group.
        redrives: how often it was sent again already.
        key, value, headers: those of the record that failed. Of a share group's dead letter they
            are read from the original topic, as the broker copies no headers, and keys and values
            only if the group is set so.
        missing: whether nothing is left of a share group's record: it was not copied, and it is
            deleted in its topic.
    """

    record: ConsumerRecord[bytes | None, bytes | None]
    format: str
    original_topic: str | None
    original_partition: int | None
    original_offset: int | None
    original_timestamp: int | None
    group_id: str
    error: str
    message: str
    attempts: int | None
    delivery_count: int | None
    redrives: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    missing: bool = False

    @classmethod
    def of(cls, record: ConsumerRecord[bytes | None, bytes | None]) -> DeadLetter:
        """Return what the headers of a record say. Headers that are not in their format count as
        absent.
        """
        headers = record.headers
        known = format_of(headers)

        def number(field: str) -> int | None:
            data = None if known is None else known.find(headers, field)
            return None if data is None or known is None else known.number(data)

        def text(field: str) -> str:
            data = None if known is None else known.find(headers, field)
            return "" if data is None else data[:_MOST_TEXT].decode(errors="replace")

        return cls(
            record,
            "" if known is None else known.name,
            _topic(text(formats.TOPIC)),
            number(formats.PARTITION),
            number(formats.OFFSET),
            number(formats.TIMESTAMP),
            text(formats.GROUP),
            text(formats.ERROR),
            text(formats.MESSAGE),
            number(formats.ATTEMPTS),
            number(formats.DELIVERIES),
            _redrives(headers),
            record.key,
            record.value,
            own_headers(headers),
        )

    @property
    def place(self) -> TopicPartition:
        """The partition of the dead-letter topic."""
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def needs_original(self) -> bool:
        """True if the record is to be read from its topic, since this one may lack its content."""
        return (
            self.format == SHARE_GROUP
            and self.original_topic is not None
            and self.original_partition is not None
            and self.original_offset is not None
        )

    def with_original(
        self, original: ConsumerRecord[bytes | None, bytes | None] | None
    ) -> DeadLetter:
        """Return the dead letter of a share group with the content of its record.

        Args:
            original: the record at its place; None if it is deleted. A record with another content
                than the copy belongs to a topic that was created again, and does not count.
        """
        is_copy = self.key is not None or self.value is not None
        if original is None:
            return self if is_copy else self._replace(missing=True)
        if is_copy and (original.key, original.value) != (self.key, self.value):
            return self
        return self._replace(
            original_timestamp=original.timestamp,
            redrives=_redrives(original.headers),
            key=original.key,
            value=original.value,
            headers=own_headers(original.headers),
        )

    def to_send(
        self, topic: str, partition: int | None
    ) -> ProducerRecord[bytes | None, bytes | None]:
        """Return the record to send again, with one more in the header that counts that."""
        count = (REDRIVES, b"%d" % (self.redrives + 1))
        return ProducerRecord(
            topic, self.value, self.key, partition, headers=(*self.headers, count)
        )


def _topic(name: str) -> str | None:
    if name in (".", "..") or name.startswith("__") or not _TOPIC.fullmatch(name):
        return None
    return name


def _redrives(headers: tuple[Header, ...]) -> int:
    """Return the largest count: a program that keeps unknown headers may keep an older one, too."""
    found = [of_digits(value) for name, value in headers if name == REDRIVES and value is not None]
    return max((number for number in found if number is not None), default=0)
