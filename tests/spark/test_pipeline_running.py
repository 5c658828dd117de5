"""Starting the queries of a pipeline."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from aioprod.spark.pipeline import run_queries

SLOW = "Python worker failed to connect back."


class Query:
    """A query that has ended, perhaps with a failure."""

    isActive = False

    def __init__(self, failure: str | None) -> None:
        self.status = {"message": "Stopped"}
        self.failure = None if failure is None else RuntimeError(failure)

    def exception(self) -> RuntimeError | None:
        return self.failure

    def stop(self) -> None:
        pass


class Writer:
    """Starts a query for each of these failures."""

    def __init__(self, *failures: str | None) -> None:
        self._left = list(failures)
        self.started: list[Query] = []

    def start(self) -> Query:
        self.started.append(Query(self._left.pop(0)))
        return self.started[-1]


def run(*writers: Any) -> list[Any]:
    return list(run_queries(writers, follow=False, timeout_s=10, starting=nullcontext))


def test_a_query_whose_python_process_was_slow_to_start_is_started_again() -> None:
    slow, other = Writer(SLOW, SLOW, None), Writer(None)
    assert run(slow, other) == [slow.started[2], other.started[0]]


def test_a_process_that_is_never_there_in_time_fails_the_run() -> None:
    writer = Writer(SLOW, SLOW, SLOW, None)
    with pytest.raises(RuntimeError, match=SLOW):
        run(writer)
    assert len(writer.started) == 3


def test_another_failure_is_not_repeated() -> None:
    writer = Writer("no such topic", None)
    with pytest.raises(RuntimeError, match="no such topic"):
        run(writer)
    assert len(writer.started) == 1
