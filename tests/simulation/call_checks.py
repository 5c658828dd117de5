"""Checks of calls: each ends within its limit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import OK, CallTrace, Finding, History


def check_call(
    history: History, call: CallTrace, slack_seconds: float, failed: str = "failed-call"
) -> Iterator[Finding]:
    """Check that a call ends within its limit, and succeeds if it has to.

    Args:
        slack_seconds: timers fire after their time, and the tasks that they wake run after that.
        failed: the anomaly of a call that has to succeed, and does not.
    """
    if call.ended is None:
        yield Finding(
            "hang",
            f"{call.owner}: {call.name} did not return; the limit is {call.limit} s",
            (call.owner,),
        )
        return
    took = history.time_of(call.owner, call.begun, call.ended)
    if took > call.limit + slack_seconds:
        yield Finding(
            "late",
            f"{call.owner}: {call.name} took {took:.3f} s; the limit is {call.limit} s",
            (call.owner,),
        )
    if call.must_succeed and call.outcome != OK:
        yield Finding(failed, f"{call.owner}: {call.name} ended with {call.outcome}", (call.owner,))
