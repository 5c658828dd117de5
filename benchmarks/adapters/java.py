"""Kafka's own producer, as ``kafka-producer-perf-test`` runs it: the tool itself makes the records
and counts the acknowledged ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from aioprod.testing.jars import kafka_tools_jars
from aioprod.testing.java import find_java
from benchmarks.adapters.adapter import DeliveryFailedError, Feature
from benchmarks.adapters.settings import Load, Settings, different_values
from benchmarks.harness import Cost

# As Kafka's start script has them.
_JVM_OPTIONS = [
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
]
_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_LINE = re.compile(rb"(\d+) records sent, [^\n]*max latency\.")
_TOTAL = re.compile(rb"(\d+) records sent, [^\n]* 50th,")
_LINE_TIMEOUT_S = 60
_MORE_THAN_ENOUGH_RECORDS = 100_000_000


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tool's report, which comes every 5 seconds: what was acknowledged since the one
    before, and when it came.
    """

    records: int
    at_s: float
    cpu_s: float


class Java:
    """The tool knows neither keys nor headers. Of payloads it takes one by chance for each record,
    out of those that the others send in rotation.
    """

    name: ClassVar[str] = "java"
    lacks: ClassVar[frozenset[Feature]] = frozenset({"one record", "many tasks", "keys", "headers"})

    async def start(self, settings: Settings) -> None:
        self._settings = settings

    async def stop(self) -> None:
        """Nothing is open: each load has a process of its own."""

    async def send_all(self, load: Load) -> None:
        async with self._tool(load) as process:
            assert process.stdout is not None
            output = await asyncio.wait_for(process.stdout.read(), _LINE_TIMEOUT_S)
            total = _TOTAL.search(output)
            if total is None or int(total[1]) != load.records:
                raise DeliveryFailedError(
                    f"{load.records} records were to be sent, and the tool says: "
                    f"{output.decode(errors='replace')}"
                )

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        raise NotImplementedError

    async def steady(self, load: Load) -> Cost:
        """From the first line of the report to the second: start and warm-up are over by then. The
        load's number of records has no meaning.
        """
        async with self._tool(
            Load(load.topic, _MORE_THAN_ENOUGH_RECORDS, load.value_size)
        ) as process:
            first = await _next_line(process)
            second = await _next_line(process)
        return Cost(second.records, second.cpu_s - first.cpu_s, second.at_s - first.at_s)

    @asynccontextmanager
    async def _tool(self, load: Load) -> AsyncIterator[Process]:
        """The tool at work; it is killed with the block."""
        settings = self._settings
        properties = {
            "bootstrap.servers": settings.bootstrap_servers,
            "acks": settings.acks,
            "enable.idempotence": str(settings.idempotent).lower(),
            "linger.ms": f"{settings.linger_ms:.0f}",
            "batch.size": settings.batch_size,
            "compression.type": settings.compression_type,
            "buffer.memory": settings.buffer_memory,
        }
        with tempfile.NamedTemporaryFile(prefix="aioprod-benchmark-") as payloads:
            payloads.write(b"\n".join(different_values(load.value_size)))
            payloads.flush()
            arguments = [
                "--topic",
                load.topic,
                "--num-records",
                str(load.records),
                "--throughput",
                "-1",
                "--payload-file",
                payloads.name,
            ]
            arguments += [
                "--producer-props",
                *(f"{name}={value}" for name, value in properties.items()),
            ]
            command = [str(find_java()), *_JVM_OPTIONS, "-cp", _class_path(), _TOOL, *arguments]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
            )
            try:
                yield process
            finally:
                if process.returncode is None:
                    process.kill()
                await process.communicate()


async def _next_line(process: Process) -> _Line:
    assert process.stdout is not None
    while True:
        line = await asyncio.wait_for(process.stdout.readline(), _LINE_TIMEOUT_S)
        if not line:
            raise DeliveryFailedError(f"the tool has ended with exit status {process.returncode}")
        if found := _LINE.match(line):
            return _Line(int(found[1]), time.perf_counter(), _cpu_s(process.pid))


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process that runs (Linux): fields 14 and 15 of its ``stat``, counted behind
    the name, which may have spaces.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@cache
def _class_path() -> str:
    return os.pathsep.join(str(jar) for jar in kafka_tools_jars())
