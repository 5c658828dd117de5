"""The parent's side of ``worker.py``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.adapters import Settings
from benchmarks.measures import Figures

_REPOSITORY = Path(__file__).parents[1]
_LONGEST_ANSWER_BYTES = 64 << 20
_ANSWER_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 5


class MeasureError(Exception):
    """A worker could not measure what it was asked for."""


class Worker:
    """A process that measures one client.

    Attributes:
        name: the client's, with " (uvloop)" where it runs on that.
        pid: of the process.
    """

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    async def call(
        self,
        measure: str,
        settings: Settings,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> Figures:
        """The figures of one measure.

        Raises MeasureError where the worker fails or ends, TimeoutError where it takes longer than
        ``timeout_s``.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        question = {"measure": measure, "settings": asdict(settings), "arguments": dict(arguments)}
        try:
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(json.dumps(question).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise TimeoutError(
                f"{self.name}: no answer about {measure} within {timeout_s:g} s"
            ) from None
        if not line:
            raise MeasureError(f"{self.name}: the worker has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasureError(f"{self.name}: {answer['error']}")
        figures: Figures = answer["figures"]
        return figures


@asynccontextmanager
async def worker(client: str, *, uvloop: bool = False) -> AsyncIterator[Worker]:
    """A worker for a client of ``ADAPTERS``; it ends with the block."""
    command = ["-m", "benchmarks.worker", client, *(["--uvloop"] if uvloop else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=_REPOSITORY,
        stdin=PIPE,
        stdout=PIPE,
        limit=_LONGEST_ANSWER_BYTES,
    )
    try:
        yield Worker(f"{client} (uvloop)" if uvloop else client, process)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    """At the end of its input a worker ends; one that is in the middle of something is interrupted,
    so that it can end what it has started.
    """
    assert process.stdin is not None
    process.stdin.close()
    for act in (None, partial(process.send_signal, signal.SIGINT), process.kill):
        if act is not None:
            act()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
            return
        except TimeoutError:
            continue
