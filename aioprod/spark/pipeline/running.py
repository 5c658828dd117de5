"""Runs the streaming queries of an application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_POLL_S = 0.1
_SOURCE_LIMIT_S = 20.0
_STARTS = 3
_SLOW_PYTHON = "Python worker failed to connect back"
_PYTHON_STACK = "Traceback (most recent call last):"
# Spark refuses these before it calls aioprod, without saying what to use instead.
_CURES = {
    "aioprod does not support Update mode": "use aioprod.spark.write_updates(frame, options), "
    "which writes in this mode",
}


def run_queries(
    writers: Sequence[DataStreamWriter],
    stop: threading.Event | None = None,
    *,
    follow: bool,
    timeout_s: float,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[StreamingQuery]:
    """Start queries one after another; stop all when they have ended, one has failed, or the time
    limit is reached.

    Args:
        writers: the queries, with their triggers.
        stop: an event that ends them when it is set.
        follow: run without a time limit, and treat Ctrl-C as the normal end.
        timeout_s: the time limit without ``follow``, in seconds.
        starting: returns a context manager for the start of each query.

    Returns:
        The queries, which have ended.

    Raises:
        pyspark.errors.StreamingQueryException: if a query failed.
        TimeoutError: if the limit was reached.
    """
    queries: list[StreamingQuery] = []
    try:
        for writer in writers:
            _start(writer, queries, starting)
        _wait(queries, stop, None if follow else timeout_s)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        for query in queries:
            query.stop()
    return queries


def _start(
    writer: DataStreamWriter,
    queries: list[StreamingQuery],
    starting: Callable[[], AbstractContextManager[None]],
) -> None:
    """Start a query, and add it to the others. Spark fails a query if its Python process has not
    connected within 10 s, and has no setting for it: on a busy machine, start the query again.
    """
    for attempt in range(1, _STARTS + 1):
        with starting():
            queries.append(writer.start())
        _wait_for_source(queries[-1])
        if attempt == _STARTS or _SLOW_PYTHON not in str(queries[-1].exception()):
            return
        queries.pop()


def _wait_for_source(query: StreamingQuery) -> None:
    """Wait until a query's source is running: several that start at once are slower."""
    deadline = time.monotonic() + _SOURCE_LIMIT_S
    while (
        query.isActive
        and query.status["message"].startswith("Initializing")
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_S)


def _wait(
    queries: Sequence[StreamingQuery], stop: threading.Event | None, limit_s: float | None
) -> None:
    """Wait until all queries have ended or one failed, ``stop`` is set, or the time limit is
    reached.
    """
    started = time.monotonic()
    pause = stop or threading.Event()
    while any(query.isActive for query in queries) and not pause.wait(_POLL_S):
        _raise_failure(queries)
        if limit_s is not None and time.monotonic() - started > limit_s:
            raise TimeoutError(f"the pipeline did not end within timeout_s={limit_s:g}")
    _raise_failure(queries)


def _raise_failure(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure


def failure_reason(text: str) -> str:
    """Return the most informative line of a stack trace: the error at the end of a Python one,
    otherwise Java's last cause, otherwise the first line that is not from py4j. Add what to do if
    Spark's message lacks it.
    """
    reason = _reason(text)
    cure = next((cure for failure, cure in _CURES.items() if failure in reason), "")
    return f"{reason} {cure}" if cure else reason


def _reason(text: str) -> str:
    if _PYTHON_STACK in text:
        # The frames are indented; the first line that is not indented is the error.
        error = next(
            (
                line
                for line in text.split(_PYTHON_STACK, 1)[1].splitlines()
                if line and not line[0].isspace()
            ),
            "",
        )
        if error:
            return error
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = [
        line.removeprefix(": ")
        for line in lines
        if line and not line.startswith("An error occurred while calling")
    ]
    return (causes[-1:] or first[:1] or [""])[0]


def reason_of(error: BaseException) -> str:
    """Return the reason why a run has failed, as one line."""
    return failure_reason(str(error)) or type(error).__name__
