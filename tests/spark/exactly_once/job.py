"""Plays Spark's part for the exactly-once sink: runs tasks and driver as Spark would, and lets them
die at any step. No JVM.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import Producer
from aioprod.spark.coordination import CoordinationClient
from aioprod.spark.exactly_once.driver import abort_batch, commit_batch
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.exactly_once.task import write_task
from aioprod.spark.sink_options import SinkOptions, parse_sink_options
from aioprod.testing import EmbeddedCluster

_runs = itertools.count(1)

Rows = Sequence[str]


class Killed(BaseException):
    """The process has died: no code may handle this."""


async def write_alone(
    options: SinkOptions, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """A task in a process of its own."""
    brokers = CoordinationClient(options.producer, "alone")
    try:
        return await write_task(brokers, options, attempt, batches)
    finally:
        await brokers.close()


class Job:
    """One run of a query: what is the same in all runs is the sink.

    Args:
        servers: bootstrap servers.
        sink_id: the query's id.
        options: options of the sink, in addition to topic ``t`` and short pauses.
    """

    def __init__(self, servers: str, sink_id: str = "query", **options: str) -> None:
        self.given = {
            "kafka.bootstrap.servers": servers,
            "topic": "t",
            "kafka.retry.backoff.ms": "5",
            "kafka.max.block.ms": "5000",
        } | options
        self.options = parse_sink_options({name: text for name, text in self.given.items() if text})
        self.sink = Sink(self.options.transactional_id_prefix, sink_id)
        self.run = short_run(f"run {next(_runs)}")

    def again(self, **options: str) -> Job:
        """The next run of the same query."""
        return Job(
            self.given["kafka.bootstrap.servers"], self.sink.sink_id, **{**self.given, **options}
        )

    async def task(
        self,
        version: int,
        partition: int,
        rows: Rows,
        attempt: int = 0,
        columns: dict[str, Any] | None = None,
    ) -> TaskReport:
        """One attempt of a task; its rows come in batches of two."""
        table = pa.table({"value": pa.array(rows, pa.string()), **(columns or {})})
        batches = table.to_batches(max_chunksize=2) if rows else []
        return await write_alone(
            self.options,
            TaskAttempt(self.sink, self.run, version, partition, number_of(partition, attempt)),
            iter(batches),
        )

    async def tasks(self, version: int, parts: Sequence[Rows]) -> list[TaskReport]:
        """All tasks of a batch, at the same time."""
        return list(
            await asyncio.gather(
                *(self.task(version, partition, rows) for partition, rows in enumerate(parts))
            )
        )

    async def commit(self, version: int, reports: Sequence[TaskReport]) -> bool:
        """Commit as Spark does: a commit that fails is followed by abort, with the same reports."""
        try:
            return await commit_batch(self.options, reports, version)
        except Exception:
            await self.abort(version)
            raise

    async def abort(self, version: int, *, strays: bool = False) -> None:
        """Abort as Spark does when it gives a batch up."""
        await abort_batch(
            self.options, TaskAttempt(self.sink, self.run, version, 0, 0), strays=strays
        )

    async def batch(self, version: int, parts: Sequence[Rows]) -> bool:
        """A whole batch. Returns whether it was written now."""
        return await self.commit(version, await self.tasks(version, parts))


def number_of(partition: int, attempt: int = 0) -> int:
    """The number of a task attempt, as Spark might count them."""
    return attempt * 1000 + partition


def rows_of(version: int, count: int = 12) -> list[str]:
    """The rows of a batch."""
    return [f"{version}/{number}" for number in range(count)]


def split(rows: Rows, parts: int) -> list[Rows]:
    """The rows spread over tasks."""
    return [rows[part::parts] for part in range(parts)]


def committed(broker: EmbeddedCluster) -> list[str]:
    """Return the committed records, sorted."""
    return sorted(
        (record.value or b"").decode() for record in broker.records("t", committed_only=True)
    )


def open_transactions(broker: EmbeddedCluster) -> list[str]:
    """The transactional ids of open transactions."""
    return [
        name
        for name, transaction in broker.transactions.items()
        if transaction.state.value == "Ongoing"
    ]


@contextlib.contextmanager
def killed_at(module: Any, name: str, when: str, call: int = 1) -> Iterator[None]:
    """Let the process die before or after the n-th call of a step: nothing is cleaned up then,
    connections just end.
    """
    original: Callable[..., Awaitable[Any]] = getattr(module, name)
    calls = itertools.count(1)
    dead = False

    async def step(*args: Any, **kwargs: Any) -> Any:
        nonlocal dead
        here = next(calls) == call
        if here and when == "before":
            dead = True
            raise Killed
        result = await original(*args, **kwargs)
        if here:
            dead = True
            raise Killed
        return result

    close = Producer.close

    async def close_of_the_dead(self: Producer, timeout_ms: float | None = None) -> None:
        await close(self, timeout_ms=0 if dead else timeout_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, step)
        patch.setattr(Producer, "close", close_of_the_dead)
        with pytest.raises(Killed):
            yield
    assert dead, f"{name} was not called {call} times"
