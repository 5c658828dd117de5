"""franz-go, in a Go process that runs calls and prints their results, as lines of JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.adapters.installed import go_program
from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned

SOURCE = Path(__file__).parents[1] / "franz_go"
_LINE_BYTES = 1 << 20


class FranzGoError(Exception):
    """A call of franz-go failed."""


def prepare() -> Path:
    """Compile the program, if its sources have changed, and return it."""
    return go_program(SOURCE, "anomalies-franz-go")


def version() -> str:
    """Return franz-go's version."""
    found = re.search(r"franz-go v(\S+)", (SOURCE / "go.mod").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


class Program:
    """The Go process, which ends with its standard input.

    Attributes:
        clients: the numbers of those that are not closed.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._results: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.clients: set[int] = set()
        self._members: dict[int, Assigned] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read(), name="franz-go")

    @classmethod
    async def start(cls) -> Program:
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.to_thread(prepare)
        return cls(
            await asyncio.create_subprocess_exec(
                program, stdin=pipe, stdout=pipe, limit=_LINE_BYTES
            )
        )

    def client(self, assigned: Assigned | None = None) -> int:
        """Return the number of a new client."""
        number = next(self._numbers)
        self.clients.add(number)
        if assigned is not None:
            self._members[number] = assigned
        return number

    async def call(
        self, client: int, name: str, *, limit_s: float = DELIVERY_S, **more: object
    ) -> dict[str, Any]:
        """Run a call and return its result.

        Raises:
            FranzGoError: if it failed.
        """
        number = next(self._numbers)
        line = {"id": number, "client": client, "name": name, "limit_ms": int(limit_s * 1000)}
        result = self._results[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line | more).encode() + b"\n")
        try:
            found: dict[str, Any] = await result
        finally:
            self._results.pop(number, None)
        if "error" in found:
            raise FranzGoError(found["error"])
        return found

    async def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                found = json.loads(line)
                if "id" not in found:  # assigned partitions, perhaps none
                    some = found.get("assigned", {}).values()
                    partitions = [each for listed in some for each in listed]
                    self._members[found["client"]](found.get("generation", 0), partitions)
                elif (result := self._results.get(found["id"])) is not None and not result.done():
                    result.set_result(found)
        finally:
            for result in self._results.values():
                if not result.done():
                    result.set_exception(FranzGoError("the program ended"))


_programs: dict[asyncio.AbstractEventLoop, asyncio.Task[Program]] = {}


async def _program() -> Program:
    """Return the program of this event loop, started if necessary."""
    loop = asyncio.get_running_loop()
    if loop not in _programs:
        _programs[loop] = loop.create_task(Program.start())
    return await _programs[loop]


async def _close(program: Program, client: int) -> None:
    """Close a client. The last one ends the program."""
    try:
        await program.call(client, "close")
    finally:
        program.clients.discard(client)
        if not program.clients:
            _programs.pop(asyncio.get_running_loop(), None)
            await program.stop()


class FranzGoSender:
    """franz-go's client as a producer."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "servers": servers,
            "topic": topic,
            "transactional_id": transactional_id or "",
            "transaction_ms": transaction_ms or 0,
        }

    async def start(self) -> None:
        self._program = await _program()
        self._client = self._program.client()
        await self._program.call(self._client, "sender", **self._settings)

    async def send(self, partition: int, value: int) -> int | None:
        found = await self._program.call(
            self._client, "send", partition=partition, value=str(value)
        )
        offset: int = found["offset"]
        return offset

    async def begin(self) -> None:
        await self._program.call(self._client, "begin")

    async def end(self, *, commit: bool) -> None:
        await self._program.call(self._client, "end", commit=commit)

    async def close(self) -> None:
        await _close(self._program, self._client)


class FranzGoMember:
    """franz-go's client as a member of a group. Rebalances wait for the next poll."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._assigned = assigned
        self._settings: dict[str, Any] = {"servers": servers, "topic": topic, "group": group}

    async def start(self) -> None:
        self._program = await _program()
        self._client = self._program.client(self._assigned)
        await self._program.call(self._client, "member", **self._settings)

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        found = await self._program.call(self._client, "poll", limit_s=POLL_S)
        return [(partition, offset, value) for partition, offset, value in found.get("records", ())]

    async def commit(self) -> dict[int, int]:
        found = await self._program.call(self._client, "commit", topic=self._topic)
        return {int(partition): offset for partition, offset in found.get("offsets", {}).items()}

    async def close(self) -> None:
        await _close(self._program, self._client)
