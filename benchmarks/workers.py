"""Start ``worker.py`` processes and send them requests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from aioprod.testing.cache import SetupError
from benchmarks.adapters import ADAPTERS, AioprodPure, ForeignClient, Settings
from benchmarks.measures import Numbers
from benchmarks.results import Results

_REPOSITORY = Path(__file__).parents[1]
_MAX_RESPONSE_BYTES = 64 << 20
_RESPONSE_TIMEOUT_S = 120
_ENVIRONMENTS = {AioprodPure.name: {"AIOPROD_PURE": "1"}}
_STOP_TIMEOUT_S = 5


class MeasureError(Exception):
    """A worker failed to run a measure."""


class Worker:
    """A process that measures one client.

    Attributes:
        name: the name of the client, with " (uvloop)" if it runs on uvloop.
        pid: the process id.
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
        timeout_s: float = _RESPONSE_TIMEOUT_S,
    ) -> Numbers:
        """Run a measure and return its numbers.

        Raises:
            MeasureError: if the worker fails or ends.
            TimeoutError: if it takes longer than ``timeout_s``.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"measure": measure, "settings": asdict(settings), "arguments": dict(arguments)}
        try:
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise TimeoutError(
                f"{self.name}: no response to {measure} within {timeout_s:g} s"
            ) from None
        if not line:
            raise MeasureError(f"{self.name}: the worker has ended")
        response = json.loads(line)
        if "error" in response:
            raise MeasureError(f"{self.name}: {response['error']}")
        numbers: Numbers = response["numbers"]
        return numbers


@asynccontextmanager
async def worker(
    client: str, *, uvloop: bool = False, python: str = sys.executable
) -> AsyncIterator[Worker]:
    """Run a worker for a client of ``ADAPTERS`` until the block ends.

    Args:
        python: the interpreter to run it with.
    """
    command = ["-m", "benchmarks.worker", client, *(["--uvloop"] if uvloop else [])]
    process = await asyncio.create_subprocess_exec(
        python,
        *command,
        cwd=_REPOSITORY,
        env={**os.environ, **_ENVIRONMENTS.get(client, {})},
        stdin=PIPE,
        stdout=PIPE,
        limit=_MAX_RESPONSE_BYTES,
    )
    try:
        yield Worker(f"{client} (uvloop)" if uvloop else client, process)
    finally:
        await _end(process)


def available(clients: Iterable[str], results: Results) -> list[str]:
    """Return the clients of ``ADAPTERS`` that are installed, and add the others to the results as
    left out. Fetches and compiles what clients of other ecosystems need.
    """
    found = []
    for client in clients:
        if reason := missing(client):
            results.left_out[client] = reason
            print(f"LEFT OUT: {client}: {reason}", file=sys.stderr, flush=True)
        else:
            found.append(client)
    return found


def missing(client: str) -> str:
    """Fetch and compile what a client of another ecosystem needs, and return why that failed."""
    adapter = ADAPTERS[client]
    if issubclass(adapter, ForeignClient):
        try:
            adapter.command()
        except SetupError as error:
            return str(error)
    return ""


async def describe(results: Results, client: str, worker: Worker) -> None:
    """Add the versions and builds of a worker's client and interpreter to the results."""
    described = await worker.call("description", Settings(""), {})
    results.interpreter = described["interpreter"]
    results.clients[client] = described["client"]


async def _end(process: Process) -> None:
    """Close the worker's input, then interrupt it, then kill it if it does not end."""
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
