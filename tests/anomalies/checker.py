"""Find all anomalies of a history."""

from __future__ import annotations

from tests.anomalies import (
    group_checks,
    liveness_checks,
    order_checks,
    poll_checks,
    transaction_checks,
    write_checks,
)
from tests.anomalies.anomaly import Anomaly
from tests.anomalies.history import History
from tests.anomalies.indexed import Indexed

CHECKS = (
    write_checks.lost_writes,
    write_checks.phantoms,
    write_checks.duplicates,
    write_checks.wrong_offsets,
    write_checks.inconsistent_offsets,
    write_checks.unstable_reads,
    write_checks.aborted_reads,
    transaction_checks.torn_transactions,
    transaction_checks.intermediate_reads,
    transaction_checks.cycles,
    poll_checks.positions,
    poll_checks.unseen,
    order_checks.caller_order,
    order_checks.real_time_order,
    group_checks.two_owners,
    group_checks.commits_beyond_reads,
    liveness_checks.hung_operations,
    liveness_checks.unavailability,
)


def check(history: History) -> list[Anomaly]:
    """Return the anomalies of a history, one per kind and subject."""
    indexed = Indexed(history)
    found: dict[tuple[str, str], Anomaly] = {}
    for each in CHECKS:
        for anomaly in each(indexed):
            found.setdefault((anomaly.kind, anomaly.subject), anomaly)
    return list(found.values())
