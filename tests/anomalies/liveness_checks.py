"""Check that operations end, and that clients recover."""

from __future__ import annotations

from collections.abc import Iterator

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.history import Outcome
from tests.anomalies.indexed import Indexed


def hung_operations(indexed: Indexed) -> Iterator[Anomaly]:
    """Find operations that lasted longer than their limit, or that never ended."""
    for operation in indexed.history.operations:
        ended = operation.completed if operation.completed is not None else indexed.history.ended
        open_ended = operation.completed is None and operation.outcome is Outcome.OPEN
        if open_ended or ended - operation.invoked > operation.limit:
            yield Anomaly(
                Kind.HUNG,
                f"operation {operation.number}",
                f"operation {operation.number} of {operation.client} took "
                f"{ended - operation.invoked:.1f} s; its limit is {operation.limit:g} s",
            )


def unavailability(indexed: Indexed) -> Iterator[Anomaly]:
    """Find clients of which no operation succeeded in the time of grace after the last fault."""
    history = indexed.history
    if history.faults_ended is None or history.ended < history.faults_ended + history.grace:
        return
    until = history.faults_ended + history.grace
    tried, succeeded = set(), set()
    for operation in history.operations:
        if operation.lifecycle or not history.faults_ended <= operation.invoked < until:
            continue
        tried.add(operation.client)
        if (
            operation.outcome is Outcome.OK
            and operation.completed is not None
            and operation.completed <= until
        ):
            succeeded.add(operation.client)
    for client in sorted(tried - succeeded):
        yield Anomaly(
            Kind.UNAVAILABLE,
            client,
            f"no operation of {client} succeeded within {history.grace:g} s of the last fault",
        )
