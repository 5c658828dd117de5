"""A client's workload in a process of its own, so that clients affect each other less, and one can
be frozen. The campaign and this process exchange lines: this one says that its client works, the
campaign says when the disturbance begins and ends, and this one prints what it found.

``python -m tests.anomalies.client_process`` followed by a `Task` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self

from tests.anomalies.clients import CLIENTS
from tests.anomalies.incarnations import keep_last_incarnation
from tests.anomalies.row import judged
from tests.anomalies.schedule import Visit
from tests.anomalies.workload import CALLERS, Workload

_MARK = "anomalies: "
"""Begins this process's lines: libraries may print others."""
_WORKING, _BEGIN, _END = "working", "begin", "end "
_PACE_S = 0.01
_START_S = 120.0
_RESULT_S = 420.0
"""Longer than the time of grace, a transaction of which each call takes as long as it may, and
reading to the end take together.
"""
_LINE_BYTES = 1 << 24


@dataclass(frozen=True)
class Task:
    """The work of a process: the arguments of `Workload`."""

    client: str
    servers: str
    topic: str
    operations: int
    seed: int
    partitions: int
    log_servers: str
    visits: Sequence[Visit] = ()
    kills: Sequence[Visit] = ()
    overdue: Sequence[float] = ()
    callers: int = CALLERS


class ClientProcess:
    """The campaign's end of a process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Any) -> None:
        self._process = process
        self._log = log

    @classmethod
    @asynccontextmanager
    async def running(cls, task: Task) -> AsyncIterator[Self]:
        """Run a process until the block ends."""
        with tempfile.TemporaryFile() as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, json.dumps(asdict(task))),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **CLIENTS[task.client].environment},
                limit=_LINE_BYTES,
                start_new_session=True,
            )
            try:
                yield cls(process, log)
            finally:
                _signal(process.pid, signal.SIGKILL)
                await process.wait()

    async def until_working(self) -> None:
        """Wait until the client works, has failed to for half a minute, or has ended."""
        try:
            async with asyncio.timeout(_START_S):
                await self._line()
        except (EOFError, TimeoutError):
            pass  # `result` says so

    def begin(self) -> None:
        """The disturbance begins."""
        self._say(_BEGIN)

    def end(self, recreated: Sequence[tuple[float, float]] = ()) -> None:
        """The disturbance has ended. The topic was deleted and existed again at these times of the
        clock that all processes share.
        """
        self._say(f"{_END}{json.dumps(recreated)}")

    def freeze(self) -> None:
        """Stop the process, and its Java if it has one."""
        _signal(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process continue."""
        _signal(self._process.pid, signal.SIGCONT)

    async def result(self) -> dict[str, Any]:
        """Return the result: attributes of a `Row`."""
        try:
            async with asyncio.timeout(_RESULT_S):
                found: dict[str, Any] = json.loads(await self._line())
                return found
        except (EOFError, TimeoutError) as error:
            self._log.seek(0)
            tail = self._log.read().decode(errors="replace")[-1_000:]
            what = f"the process gave no result: {error!r}: {tail}"
            return {"anomalies": {"no-result": 1}, "examples": [what]}

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def _line(self) -> str:
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if line.startswith(_MARK):
                return line.removeprefix(_MARK).strip()
        raise EOFError(f"exit status {await self._process.wait()}")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _print(line: str) -> None:
    print(f"{_MARK}{line}", flush=True)


class _Campaign:
    """The lines of the campaign. If it ends, so does this process, whatever its client does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line.strip())
        os._exit(1)

    async def expect(self, prefix: str) -> str:
        """Wait for a line, and return what follows its prefix."""
        found = await self._lines.get()
        if not found.startswith(prefix):
            raise ValueError(f"expected {prefix!r} from the campaign, got {found!r}")
        return found.removeprefix(prefix)


async def _run(task: Task) -> None:
    arguments = asdict(task)
    for name in ("visits", "kills"):
        arguments[name] = [Visit(*each) for each in arguments[name]]
    workload = Workload(**arguments, pace_s=_PACE_S)
    campaign = _Campaign()

    async def begin() -> None:
        _print(_WORKING)
        await campaign.expect(_BEGIN)

    recreated: list[tuple[float, float]] = []

    async def disturb() -> None:
        recreated.extend(json.loads(await campaign.expect(_END)))

    history = await workload.run(disturb, begin)
    if recreated:
        keep_last_incarnation(history, recreated[-1][1])
    _print(json.dumps(judged(history)))
    os._exit(0)  # threads of a client that hangs would prevent the end


def main() -> None:
    """Run the workload of a task, and print the result."""
    logging.disable(logging.CRITICAL)  # clients log each fault
    asyncio.run(_run(Task(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
