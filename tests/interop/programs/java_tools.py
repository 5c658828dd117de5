"""Kafka's command line tools, each in a separate Java process."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aioprod.testing.jars import kafka_tools_jars
from aioprod.testing.java import find_java

LIMIT_S = 30.0
_OPTIONS = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_TOOLS = "org.apache.kafka.tools"
Event = dict[str, Any]


@dataclass(frozen=True)
class CompletedTool:
    """The exit status and the output of a tool."""

    status: int
    output: str
    errors: str

    def events(self) -> Iterator[Event]:
        """Return the JSON objects in the output."""
        for line in self.output.splitlines():
            if line.startswith("{"):
                yield json.loads(line)


async def run_tool(name: str, *arguments: str, lines: str = "") -> CompletedTool:
    """Run a tool with ``lines`` as its standard input.

    Raises:
        TimeoutError: if it does not end in time.
    """
    process = await _start(name, *arguments)
    try:
        async with asyncio.timeout(LIMIT_S):
            output, errors = await process.communicate(lines.encode())
    finally:
        await _end(process)
    assert process.returncode is not None
    return CompletedTool(process.returncode, output.decode(), errors.decode())


class RunningTool:
    """A tool that prints JSON objects until it is stopped."""

    def __init__(self, process: Process) -> None:
        self.events: list[Event] = []
        self._process = process

    async def until(self, happened: Callable[[list[Event]], bool]) -> None:
        """Read events until ``happened`` returns True for all events so far.

        Raises:
            TimeoutError: if that does not happen in time; the message has the events.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(LIMIT_S):
                while not happened(self.events):
                    line = await self._process.stdout.readline()
                    if not line:
                        raise EOFError(f"the tool has ended; its events: {self.events}")
                    if line.startswith(b"{"):
                        self.events.append(json.loads(line))
        except TimeoutError as error:
            raise TimeoutError(f"events so far: {self.events}") from error

    async def named(self, name: str) -> list[Event]:
        """Wait for the first event with this name; return all of them."""
        await self.until(lambda events: any(event["name"] == name for event in events))
        return [event for event in self.events if event["name"] == name]

    async def stop(self) -> None:
        """Shut the tool down gracefully and wait for its end."""
        self._process.terminate()
        await self.named("shutdown_complete")


@asynccontextmanager
async def running_tool(name: str, *arguments: str) -> AsyncIterator[RunningTool]:
    """Run a tool until the block ends."""
    process = await _start(name, *arguments, errors=DEVNULL)
    try:
        yield RunningTool(process)
    finally:
        await _end(process)


async def _start(name: str, *arguments: str, errors: int = PIPE) -> Process:
    command = [
        *_OPTIONS,
        "-cp",
        _class_path(),
        name if name.startswith("kafka.") else f"{_TOOLS}.{name}",
        *arguments,
    ]
    return await asyncio.create_subprocess_exec(
        str(find_java()), *command, stdin=PIPE, stdout=PIPE, stderr=errors, limit=1 << 24
    )


@cache
def _class_path() -> str:
    return os.pathsep.join(str(jar) for jar in kafka_tools_jars())


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    # communicate() reads the rest of the output; otherwise the pipes would stay open.
    await process.communicate()


def properties_file(directory: Path, **settings: object) -> str:
    """Write a properties file and return its path; underscores in names become dots."""
    path = directory / "tool.properties"
    path.write_text(
        "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
    )
    return str(path)
