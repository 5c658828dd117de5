"""Says what a task, a plan or a commit waits for if that takes long: each wait has a limit, but the
limits are minutes, and a stalled query must say why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from aioprod.logs import get_logger

log = get_logger(__name__)

# Longer than any step takes while brokers and executors run, and shorter than all limits. Repeated
# after twice as long each time.
_FIRST_S = 10.0


@contextmanager
def named_wait(what: str, limit: str) -> Iterator[None]:
    """Log after 10, 30, 70 ... seconds what the block does. Use it in a running event loop.

    Args:
        what: what the block does, such as "waiting for rows from Spark".
        limit: the setting that ends the wait.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    timer = loop.call_later(_FIRST_S, lambda: report(_FIRST_S))

    def report(pause_s: float) -> None:
        nonlocal timer
        log.warning(
            "%s: %s has taken %.0f s so far; limit: %s", _here(), what, loop.time() - begun, limit
        )
        timer = loop.call_later(2 * pause_s, report, 2 * pause_s)

    try:
        yield
    finally:
        timer.cancel()


def _here() -> str:
    """Return the name of the task by which Spark logs it."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return (
        f"task {context.partitionId()}.{context.attemptNumber()} in stage {context.stageId()} "
        f"(TID {context.taskAttemptId()})"
    )
