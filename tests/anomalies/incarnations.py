"""Reduces a history to the last incarnation of its topic, if that was deleted and created again."""

from __future__ import annotations

from tests.anomalies.history import History


def keep_last_incarnation(history: History, since: float) -> None:
    """Forget what concerns records of deleted incarnations.

    A value that the final log has belongs to the last incarnation. The others do not, if they were
    sent before it existed: deleting a topic loses acknowledged records. Positions that were
    committed before are those of a deleted incarnation. How long each operation took still counts,
    as do commits from ``since`` on: a member must not commit the position of a deleted incarnation.

    Args:
        since: the time from which on the last incarnation existed on all nodes.
    """
    kept = {entry.value for entries in history.log.values() for entry in entries}
    gone: set[int] = set()
    for operation in history.operations:
        if operation.invoked >= since:
            continue
        gone.update(each.value for each in operation.sends if each.value not in kept)
        operation.sends = tuple(each for each in operation.sends if each.value in kept)
        operation.commits = {}
    for operation in history.operations:
        operation.reads = tuple(each for each in operation.reads if each.value not in gone)
