"""Compare what was sent and read with the log."""

from __future__ import annotations

from collections.abc import Iterator

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.history import Outcome, Partition
from tests.anomalies.indexed import Indexed


def lost_writes(indexed: Indexed) -> Iterator[Anomaly]:
    """Find acknowledged values that are not committed in the log."""
    for value, (operation, send) in indexed.sent.items():
        if operation.outcome is Outcome.OK and indexed.committed(value) is None:
            yield Anomaly(
                Kind.LOST_WRITE,
                f"value {value}",
                f"operation {operation.number} of {operation.client} sent {value} to "
                f"{send.partition} (offset {send.offset}), was acknowledged, and the log lacks it",
            )


def phantoms(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values in the log or in reads that were not sent to that partition."""
    places = {
        (value, place.partition) for value, found in indexed.places.items() for place in found
    }
    for operation in indexed.history.operations:
        places |= {(read.value, read.partition) for read in operation.reads}
    for value, partition in sorted(places):
        sent = indexed.sent.get(value)
        if sent is None or sent.send.partition != partition:
            yield Anomaly(
                Kind.PHANTOM,
                f"value {value} in {partition}",
                f"{partition} has {value}, which was not sent to it",
            )


def duplicates(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values that the log has more than once as committed."""
    for value, places in indexed.places.items():
        found = [f"{place.partition}@{place.entry.offset}" for place in places]
        if sum(place.entry.committed for place in places) > 1:
            yield Anomaly(Kind.DUPLICATE, f"value {value}", f"{value} is at {', '.join(found)}")


def wrong_offsets(indexed: Indexed) -> Iterator[Anomaly]:
    """Find acknowledged sends whose value is at no place with the reported offset."""
    for value, (operation, send) in indexed.sent.items():
        places = indexed.places.get(value, ())
        if operation.outcome is not Outcome.OK or send.offset is None or not places:
            continue
        if (send.partition, send.offset) not in {
            (place.partition, place.entry.offset) for place in places
        }:
            yield Anomaly(
                Kind.WRONG_OFFSET,
                f"value {value}",
                f"operation {operation.number} of {operation.client} reported offset "
                f"{send.offset} for {value}, which is at {places[0].entry.offset}",
            )


def inconsistent_offsets(indexed: Indexed) -> Iterator[Anomaly]:
    """Find offsets at which different values were read or stored."""
    values: dict[tuple[Partition, int], int] = {
        (partition, entry.offset): entry.value
        for partition, entries in indexed.history.log.items()
        for entry in entries
    }
    for operation in indexed.history.operations:
        for partition, offset, value in operation.reads:
            other = values.setdefault((partition, offset), value)
            if other != value:
                yield Anomaly(
                    Kind.INCONSISTENT_OFFSET,
                    f"{partition}@{offset}",
                    f"operation {operation.number} of {operation.client} read {value} at "
                    f"{partition}@{offset}, which has {other}",
                )


def unstable_reads(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values that were read as committed and are not committed in the log."""
    for operation in indexed.history.operations:
        reader = indexed.history.readers.get(operation.client)
        for read in operation.reads:
            sent = indexed.sent.get(read.value)
            if (
                reader is not None
                and reader.committed_only
                and sent is not None
                and sent.operation.outcome is not Outcome.FAILED
                and indexed.committed(read.value) is None
            ):
                yield Anomaly(
                    Kind.UNSTABLE_READ,
                    f"value {read.value}",
                    f"operation {operation.number} of {operation.client} read {read.value} at "
                    f"{read.partition}@{read.offset}, and the log lacks it",
                )


def aborted_reads(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values of failed sends and aborted transactions that are committed or were read."""
    history = indexed.history
    failed = {
        value for value, sent in indexed.sent.items() if sent.operation.outcome is Outcome.FAILED
    }
    for value in failed:
        if (place := indexed.committed(value)) is not None:
            yield Anomaly(
                Kind.ABORTED_READ,
                f"value {value}",
                f"{value} failed and is committed at {place.partition}@{place.entry.offset}",
            )
    for operation in history.operations:
        reader = history.readers.get(operation.client)
        for read in operation.reads:
            if (
                reader is not None
                and read.value in failed
                and (reader.committed_only or not indexed.sent[read.value].operation.transactional)
            ):
                yield Anomaly(
                    Kind.ABORTED_READ,
                    f"value {read.value}",
                    f"{read.value} failed, and operation {operation.number} of "
                    f"{operation.client} read it",
                )
