"""Check the owners of partitions and the committed offsets of groups."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.history import Outcome, Partition
from tests.anomalies.indexed import Indexed


def two_owners(indexed: Indexed) -> Iterator[Anomaly]:
    """Find partitions with two owners in one generation."""
    owners: dict[tuple[str, int, Partition], set[str]] = {}
    for group, generation, partition, client in indexed.history.owners:
        owners.setdefault((group, generation, partition), set()).add(client)
    for (group, generation, partition), clients in owners.items():
        if len(clients) > 1:
            yield Anomaly(
                Kind.TWO_OWNERS,
                f"{partition} of {group} in {generation}",
                f"{' and '.join(sorted(clients))} own {partition} in generation {generation} of "
                f"{group}",
            )


def commits_beyond_reads(indexed: Indexed) -> Iterator[Anomaly]:
    """Find committed offsets with an earlier record that the group had not got when the commit
    was invoked.
    """
    history = indexed.history
    got: dict[tuple[str, Partition], dict[int, float]] = {}
    for operation in history.operations:
        name = history.reading_as(operation.client)
        # What a transaction read, it read before it committed its offsets.
        at = operation.commit_invoked if operation.commits else operation.completed
        if at is None:
            continue
        for read in operation.reads:
            times = got.setdefault((name, read.partition), {})
            times[read.offset] = min(at, times.get(read.offset, at))
    latest = {name: _complete_from(indexed, name[1], times) for name, times in got.items()}
    for operation in history.operations:
        if operation.outcome is Outcome.FAILED:
            continue
        name = history.reading_as(operation.client)
        invoked = (
            operation.commit_invoked if operation.commit_invoked is not None else operation.invoked
        )
        for partition, offset in operation.commits.items():
            offsets, complete = latest.get((name, partition)) or _complete_from(
                indexed, partition, {}
            )
            before = bisect_left(offsets, offset)
            if before and complete[before - 1] > invoked:
                yield Anomaly(
                    Kind.COMMIT_BEYOND_READ,
                    f"operation {operation.number} in {partition}",
                    f"operation {operation.number} of {operation.client} committed {offset} in "
                    f"{partition}, and {name} had not got all records before it",
                )


def _complete_from(
    indexed: Indexed, partition: Partition, got: dict[int, float]
) -> tuple[list[int], list[float]]:
    """Return the offsets of committed records, and since when all up to each had been read."""
    start = indexed.history.start.get(partition, 0)
    offsets = [
        entry.offset
        for entry in indexed.history.log.get(partition, ())
        if entry.committed and entry.offset >= start
    ]
    return offsets, list(accumulate((got.get(each, float("inf")) for each in offsets), max))
