"""Check that the log has the order in which values were sent."""

from __future__ import annotations

from collections.abc import Iterator

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.history import Entry, Operation, Outcome
from tests.anomalies.indexed import Indexed


def caller_order(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values that are before an earlier value of their caller."""
    for partition, entries in indexed.history.log.items():
        latest: dict[tuple[str, int], tuple[tuple[int, int], int]] = {}
        for entry, operation in _first_stored(indexed, entries):
            caller = (operation.client, operation.caller)
            place = next(n for n, send in enumerate(operation.sends) if send.value == entry.value)
            turn = (operation.number, place)
            before = latest.get(caller)
            if before is not None and turn < before[0]:
                yield Anomaly(
                    Kind.CALLER_ORDER,
                    f"value {entry.value}",
                    f"caller {operation.caller} of {operation.client} sent {entry.value} before "
                    f"{before[1]}, and {partition} has it later, at {entry.offset}",
                )
            else:
                latest[caller] = (turn, entry.value)


def real_time_order(indexed: Indexed) -> Iterator[Anomaly]:
    """Find values that are before one which was acknowledged when they were not yet sent."""
    for partition, entries in indexed.history.log.items():
        acknowledged: tuple[float, int] | None = None  # the earliest one after it
        for entry, operation in reversed([*_first_stored(indexed, entries)]):
            if acknowledged is not None and acknowledged[0] < operation.invoked:
                yield Anomaly(
                    Kind.REAL_TIME_ORDER,
                    f"value {entry.value}",
                    f"{acknowledged[1]} was acknowledged at {acknowledged[0]:.6f}, before "
                    f"{entry.value} was sent at {operation.invoked:.6f}, and {partition} has it "
                    f"after {entry.value}",
                )
            if operation.outcome is Outcome.OK and operation.completed is not None:
                ended = (operation.completed, entry.value)
                acknowledged = min(acknowledged or ended, ended)


def _first_stored(indexed: Indexed, entries: list[Entry]) -> Iterator[tuple[Entry, Operation]]:
    """Yield the records whose sends are known, without copies."""
    seen = set()
    for entry in entries:
        sent = indexed.sent.get(entry.value)
        if sent is not None and entry.value not in seen:
            seen.add(entry.value)
            yield entry, sent.operation
