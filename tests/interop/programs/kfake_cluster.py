"""franz-go's fake Kafka cluster in a separate process, ``kfake/main.go``. Requires Go."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.interop.programs.foreign_cluster import CoordinatorKind, ForeignCluster

_LIMIT_S = 10


class KfakeCluster(ForeignCluster):
    """A running fake cluster, started by :func:`kfake_cluster`. Its own node ids begin at 0."""

    def __init__(self, process: Process, addresses: list[str]) -> None:
        self._process = process
        self._addresses = addresses

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._addresses)

    async def create_topic(self, name: str, partitions: int) -> None:
        await self._command("topic", topic=name, partitions=partitions)
        for partition in range(partitions):
            await self.move_leader(name, partition, partition % len(self._addresses) + 1)

    async def fail(self, api_key: int, code: int, times: int = 1) -> None:
        await self._command("fail", key=api_key, code=code, times=times)

    async def cut(self, api_key: int, times: int = 1) -> None:
        await self._command("close", key=api_key, times=times)

    async def hang(self, api_key: int, times: int = 1) -> None:
        """Ignore the next requests of an API."""
        await self._command("hang", key=api_key, times=times)

    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        await self._command("leader", topic=topic, partition=partition, node=node - 1)

    async def move_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Move all coordinators."""
        await self._command("coordinators")

    async def stop_node(self, node: int) -> None:
        await self._command("stop", node=node - 1)

    async def start_node(self, node: int) -> None:
        await self._command("start", node=node - 1)

    async def _command(self, do: str, **details: object) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
        async with asyncio.timeout(_LIMIT_S):
            response = json.loads(await stdout.readline())
        if response:
            raise RuntimeError(f"kfake: {do} {details} failed: {response['error']}")


@asynccontextmanager
async def kfake_cluster(program: Path, version: str = "") -> AsyncIterator[KfakeCluster]:
    """Run a cluster of this version of Kafka ("" for the newest) until the block ends."""
    process = await asyncio.create_subprocess_exec(
        str(program), f"-as-version={version}", stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(_LIMIT_S):
            addresses = json.loads(await process.stdout.readline())["addresses"]
        yield KfakeCluster(process, addresses)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(_LIMIT_S):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
