"""Kafka's Java producer in ``kafka-producer-perf-test``, which creates the records and counts the
acknowledged ones.
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

# As in Kafka's start script.
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
_UNLIMITED_RECORDS = 100_000_000


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tool's report, which it writes every 5 seconds: the records that were
    acknowledged since the line before, and the time.
    """

    records: int
    at_s: float
    cpu_s: float


class Java:
    """The tool supports neither keys nor headers. It chooses random values from those that other
    clients send in rotation.
    """

    name: ClassVar[str] = "java"
    lacks: ClassVar[frozenset[Feature]] = frozenset({"one record", "many tasks", "keys", "headers"})

    async def start(self, settings: Settings) -> None:
        self._settings = settings

    async def stop(self) -> None:
        """Do nothing: each load runs in a separate process, which has ended."""

    async def send_all(self, load: Load) -> None:
        async with self._tool(load) as process:
            assert process.stdout is not None
            output = await asyncio.wait_for(process.stdout.read(), _LINE_TIMEOUT_S)
            total = _TOTAL.search(output)
            if total is None or int(total[1]) != load.records:
                raise DeliveryFailedError(
                    f"expected {load.records} acknowledged records; the tool reports: "
                    f"{output.decode(errors='replace')}"
                )

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        raise NotImplementedError

    async def steady(self, load: Load) -> Cost:
        """Measure from the first line of the report to the second, without start and warm-up. The
        load's number of records is ignored.
        """
        async with self._tool(Load(load.topic, _UNLIMITED_RECORDS, load.value_size)) as process:
            first = await _next_line(process)
            second = await _next_line(process)
        return Cost(second.records, second.cpu_s - first.cpu_s, second.at_s - first.at_s)

    @asynccontextmanager
    async def _tool(self, load: Load) -> AsyncIterator[Process]:
        """Run the tool until the block ends."""
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
            raise DeliveryFailedError(f"the tool ended with exit status {process.returncode}")
        if found := _LINE.match(line):
            return _Line(int(found[1]), time.perf_counter(), _cpu_s(process.pid))


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a running process (Linux): fields 14 and 15 of its ``stat``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@cache
def _class_path() -> str:
    return os.pathsep.join(str(jar) for jar in kafka_tools_jars())
