"""Check that clients read each record in turn."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.history import History, Operation, Partition, Read, Repositioned
from tests.anomalies.indexed import Indexed


def positions(indexed: Indexed) -> Iterator[Anomaly]:
    """Find reads that went past a record, or back, without a change of the position."""
    history = indexed.history
    offsets = _offsets(history)
    last: dict[tuple[str, Partition], int] = {}
    events: list[Operation | Repositioned] = [*history.repositioned, *history.operations]
    for event in sorted(events, key=lambda event: event.number):  # stable: changes come first
        if not isinstance(event, Operation):
            for partition in event.partitions:
                last.pop((event.client, partition), None)
            continue
        for read in event.reads:
            place = (event.client, read.partition)
            before = last.get(place)
            last[place] = read.offset
            if before is not None:
                yield from _step(event, before, read, offsets, _committed_only(history, event))


def unseen(indexed: Indexed) -> Iterator[Anomaly]:
    """Find committed records that a reader which polled to the end did not get."""
    history = indexed.history
    seen: dict[str, set[int]] = {}
    for operation in history.operations:
        name = history.reading_as(operation.client)
        seen.setdefault(name, set()).update(read.value for read in operation.reads)
    for name in sorted(history.final_polls):
        for partition, entries in history.log.items():
            start = history.start.get(partition, 0)
            for entry in entries:
                if (
                    entry.committed
                    and entry.offset >= start
                    and entry.value not in seen.get(name, ())
                ):
                    yield Anomaly(
                        Kind.UNSEEN,
                        f"value {entry.value} by {name}",
                        f"{name} polled to the end without {entry.value} at "
                        f"{partition}@{entry.offset}",
                    )


def _offsets(history: History) -> dict[tuple[Partition, bool], list[int]]:
    """Return the offsets of all records and of the committed ones, by partition."""
    return {
        (partition, committed_only): [
            entry.offset for entry in entries if entry.committed or not committed_only
        ]
        for partition, entries in history.log.items()
        for committed_only in (False, True)
    }


def _committed_only(history: History, operation: Operation) -> bool:
    reader = history.readers.get(operation.client)
    return reader is None or reader.committed_only


def _step(
    operation: Operation,
    before: int,
    read: Read,
    offsets: dict[tuple[Partition, bool], list[int]],
    committed_only: bool,
) -> Iterator[Anomaly]:
    where = f"{operation.client} at {read.partition}@{read.offset}"
    if read.offset <= before:
        yield Anomaly(
            Kind.NONMONOTONIC_POLL,
            where,
            f"operation {operation.number} of {operation.client} read {read.partition}@"
            f"{read.offset} after {before}",
        )
        return
    known = offsets.get((read.partition, committed_only), [])
    skipped = known[bisect_right(known, before) : bisect_left(known, read.offset)]
    if skipped:
        yield Anomaly(
            Kind.POLL_SKIP,
            where,
            f"operation {operation.number} of {operation.client} read {read.partition}@"
            f"{read.offset} after {before} and skipped {skipped[:10]}",
        )
