"""franz-go's fake Kafka cluster, in a process of its own that ``kfake/main.go`` makes. It
needs Go.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.judges.programs.foreign_cluster import CoordinatorKind, ForeignCluster

_LIMIT_S = 10


class KfakeCluster(ForeignCluster):
    """The running process. :func:`kfake_cluster` starts one. Its own node ids are one lower than
    ours.
    """

    def __init__(self, process: Process, addresses: list[str]) -> None:
        self._process = process
        self._addresses = addresses

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._addresses)

    async def create_topic(self, name: str, partitions: int) -> None:
        await self._order("topic", topic=name, partitions=partitions)
        for partition in range(partitions):
            await self.move_leader(name, partition, partition % len(self._addresses) + 1)

    async def fail(self, api_key: int, code: int, times: int = 1) -> None:
        await self._order("fail", key=api_key, code=code, times=times)

    async def cut(self, api_key: int, times: int = 1) -> None:
        await self._order("close", key=api_key, times=times)

    async def hang(self, api_key: int, times: int = 1) -> None:
        """Neither handle nor answer the next requests of an API."""
        await self._order("hang", key=api_key, times=times)

    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        await self._order("leader", topic=topic, partition=partition, node=node - 1)

    async def move_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """All coordinators move at once."""
        await self._order("coordinators")

    async def stop_node(self, node: int) -> None:
        await self._order("stop", node=node - 1)

    async def start_node(self, node: int) -> None:
        await self._order("start", node=node - 1)

    async def _order(self, do: str, **details: object) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
        async with asyncio.timeout(_LIMIT_S):
            answer = json.loads(await stdout.readline())
        if answer:
            raise RuntimeError(f"kfake refuses {do} {details}: {answer['error']}")


@asynccontextmanager
async def kfake_cluster(program: Path, version: str = "") -> AsyncIterator[KfakeCluster]:
    """A running cluster of this version of Kafka ("": the newest), until the block ends."""
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
