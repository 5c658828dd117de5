"""A member of a group in a process of its own, which is killed with SIGKILL. It prints each
operation when it begins and when it has ended, so that what the application got before it died is
known: a record that a poll returned is printed before its offset is committed.

``python -m tests.anomalies.member_process`` followed by a `MemberTask` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Self

from tests.anomalies.clients import CLIENTS, LIMIT_S, Assigned
from tests.anomalies.history import Operation, Outcome, Read
from tests.anomalies.recorder import Recorder
from tests.faults.harness.child import end_with_parent

_MARK = "member: "
"""Begins this process's lines: libraries may print others."""
_LINE_BYTES = 1 << 24
_PACE_S = 0.01
_PAUSE_AFTER_ERROR_S = 0.2
COMMITS = 0.2
"""The probability that a member commits after a poll."""


@dataclass(frozen=True)
class MemberTask:
    """The arguments of a member, and the seed of the polls after which it commits."""

    client: str
    servers: str
    topic: str
    group: str
    seed: str


class MemberProcess:
    """The other end of a process: adds what it prints to a history.

    Attributes:
        reads: set once a poll has returned a record, or the process has ended.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        recorder: Recorder,
        name: str,
        topic: str,
        assigned: Assigned,
    ) -> None:
        self.reads = asyncio.Event()
        self._process = process
        self._recorder = recorder
        self._name = name
        self._topic = topic
        self._assigned = assigned

    @classmethod
    @asynccontextmanager
    async def running(
        cls, task: MemberTask, recorder: Recorder, name: str, assigned: Assigned
    ) -> AsyncIterator[Self]:
        """Run a process until the block ends, and kill it then, with its Java if it has one."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, json.dumps(asdict(task))),
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
            start_new_session=True,
        )
        member = cls(process, recorder, name, task.topic, assigned)
        following = asyncio.create_task(member._follow(), name=f"follow {name}")
        try:
            yield member
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await process.wait()
            await following

    async def _follow(self) -> None:
        """Add what the process prints to the history, until it ends."""
        assert self._process.stdout is not None
        operation: Operation | None = None
        try:
            while line := (await self._process.stdout.readline()).decode():
                if line.startswith(_MARK) and line.endswith("\n"):
                    event, *values = json.loads(line.removeprefix(_MARK))
                    if event == "assigned":
                        self._assigned(*values)
                    elif event == "begin":
                        operation = self._recorder.began(self._name, values[0], LIMIT_S)
                        operation.lifecycle = True  # it may be killed in the time of grace
                    elif operation is not None:
                        self._end(operation, *values)
                        operation = None
        finally:
            if operation is not None:
                self._recorder.ended(operation, self._recorder.clock(), Outcome.UNKNOWN)
            self.reads.set()

    def _end(
        self,
        operation: Operation,
        at: float,
        reads: list[tuple[int, int, int]],
        commits: dict[str, int],
        error: str,
    ) -> None:
        operation.error = error
        operation.reads = tuple(
            Read(f"{self._topic}/{partition}", offset, value) for partition, offset, value in reads
        )
        operation.commits = {
            f"{self._topic}/{partition}": offset for partition, offset in commits.items()
        }
        self._recorder.ended(operation, at, Outcome.UNKNOWN if error else Outcome.OK)
        if reads:
            self.reads.set()


def _print(*values: Any) -> None:
    # One write for the line: another thread may print at the same time.
    sys.stdout.write(f"{_MARK}{json.dumps(values)}\n")
    sys.stdout.flush()


async def _run(task: MemberTask) -> None:
    _, new_member = CLIENTS[task.client].load()

    def assigned(generation: int | None, partitions: list[int]) -> None:
        _print("assigned", generation, partitions)

    member = new_member(task.servers, task.topic, task.group, assigned)
    random = Random(task.seed)
    await _print_result(member.start())
    while True:
        await _print_result(member.poll())
        if random.random() < COMMITS:
            await _print_result(member.commit())


async def _print_result(call: Awaitable[Any]) -> None:
    """Run a call, and print when it began and what it returned."""
    _print("begin", time.monotonic())
    found: Any = None
    error = ""
    try:
        found = await call
    except Exception as failure:
        error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
    reads, commits = ([], found) if isinstance(found, dict) else ([*(found or ())], {})
    _print("end", time.monotonic(), reads, commits, error)
    await asyncio.sleep(_PAUSE_AFTER_ERROR_S if error else _PACE_S)


def main() -> None:
    """Poll and commit until this process is killed, or its parent ends."""
    end_with_parent()
    asyncio.run(_run(MemberTask(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
