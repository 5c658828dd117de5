"""Sends records that are not flights among the flights, and finds them among the dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from aioprod.consumer.partition_reader import (
    EARLIEST,
    LATEST,
    FetchSettings,
    PartitionReader,
    list_offsets,
    partitions_of,
)

if TYPE_CHECKING:
    from aioprod import Producer
    from aioprod.cluster.client import ClusterClient

_READ_LIMIT_MS = 20_000
_REASON = "dead-letter.reason"


class BadRecord(NamedTuple):
    """A record that is not a flight."""

    key: bytes | None
    value: bytes | None
    reason: str


_ROUTE = b'"origin":"EWR","dest":"IAH","time_hour":"2013-01-01T10:00:00Z"'
PLANTED = (
    BadRecord(b"planted", b"a flight, but not JSON", "not JSON"),
    BadRecord(b"planted", b'{"dep_delay":2,%b}' % _ROUTE, "carrier missing"),
    BadRecord(
        b"planted", b'{"carrier":"UA","dep_delay":"late",%b}' % _ROUTE, "dep_delay is not a number"
    ),
)


async def plant(producer: Producer, topic: str) -> None:
    """Send the bad records.

    Raises:
        KafkaError: if one was not acknowledged.
    """
    deliveries = [await producer.send(topic, record.value, record.key) for record in PLANTED]
    for delivery in deliveries:
        await delivery


async def read_dead_letters(client: ClusterClient, topic: str) -> list[BadRecord]:
    """Read all committed records of a dead-letter topic, with the reason from their header.

    Raises:
        KafkaError: if the topic can't be read, or a transaction stays open in it for too long.
    """
    partitions = await partitions_of(client, [topic])
    first = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    last = await list_offsets(client, dict.fromkeys(partitions, LATEST))
    settings = FetchSettings(isolation_level="read_committed", retry_limit_ms=_READ_LIMIT_MS)
    found = []
    for partition in partitions:
        async for fetched in PartitionReader(
            client, partition, first[partition], last[partition], settings
        ):
            for record in fetched.records():
                reasons = [
                    value for name, value in record.headers if name == _REASON and value is not None
                ]
                found.append(
                    BadRecord(
                        record.key, record.value, b"; ".join(reasons).decode(errors="replace")
                    )
                )
    return found


def check_dead_letters(found: Iterable[BadRecord]) -> list[str]:
    """Return how dead letters differ from the planted records; empty if they don't."""
    missing, unexpected = list(PLANTED), []
    for record in found:
        if record in missing:
            missing.remove(record)
        else:
            unexpected.append(record)
    lines = [
        f"planted, but not among the dead letters: {record.value!r} ({record.reason})"
        for record in missing
    ]
    return lines + [
        f"among the dead letters, but not planted: {record.value!r} ({record.reason})"
        for record in unexpected
    ]
