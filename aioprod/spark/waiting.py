"""Logs what a task, a plan or a commit is waiting for if it takes long. Each wait has a limit, but
the limits are minutes, and the log must show why a query is stalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

# Longer than any step takes while brokers and executors are running, and shorter than all limits.
# The interval doubles each time.
_FIRST_S = 10.0


@contextmanager
def named_wait(what: str, limit: str) -> Iterator[None]:
    """Log what the block is doing after 10, 30, 70 ... seconds. Use it in a running event loop.

    Args:
        what: a description of the block, such as "waiting for rows from Spark".
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
    """Return the name of the task in Spark's logs."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return (
        f"task {context.partitionId()}.{context.attemptNumber()} in stage {context.stageId()} "
        f"(TID {context.taskAttemptId()})"
    )
