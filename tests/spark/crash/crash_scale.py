"""The run on a cluster: fills a topic, counts what a consumer of committed records finds of each
row, and what CPU the processes take.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, TopicPartition

from aioprod import Producer

_ROWS_AT_ONCE = 50_000
_VALUE_BYTES = 92
_JUDGE_LIMIT_S = 600.0
_SAMPLE_S = 1.0
# Fields after the process name: the parent's id, and the CPU time in user and kernel mode.
_PARENT, _TIMES = 1, slice(11, 13)
_KINDS = {
    b"kafka.Kafka": "brokers",
    b"CoarseGrainedExecutorBackend": "executors' JVMs",
    b"pyspark.daemon": "Python",
    b"crash_scale_job": "driver",
    b"SparkSubmit": "driver",
    b"spark.deploy.": "master and workers",
}


def value_of(numbers: pa.Array) -> pa.Array:
    """The values of rows: their numbers in decimal, padded."""
    return pc.utf8_lpad(pc.cast(numbers, pa.string()), _VALUE_BYTES, "0")


async def fill(servers: str, topic: str, rows: int) -> None:
    """Write rows 0 to ``rows`` - 1, each with its number as key."""
    async with Producer(servers, batch_size=1 << 17, linger_ms=5) as producer:
        for first in range(0, rows, _ROWS_AT_ONCE):
            numbers = pa.array(np.arange(first, min(first + _ROWS_AT_ONCE, rows)))
            table = pa.table({"key": pc.cast(numbers, pa.string()), "value": value_of(numbers)})
            sent = await producer.send_arrow(topic, table)
            await sent.wait()


def count_rows(servers: str, topic: str, partitions: int, rows: int) -> Counter[str]:
    """Read the topic to its end by librdkafka, ``isolation.level=read_committed``.

    Returns:
        How many rows are there ``once``, ``missing``, ``doubled``, and how many records ``wrong``.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found, wrong = np.zeros(rows, dtype=np.uint8), 0
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        unread, deadline = set(range(partitions)), time.monotonic() + _JUDGE_LIMIT_S
        while unread:
            assert time.monotonic() < deadline, f"the ends of partitions {unread} were not reached"
            numbers = []
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    key, value = message.key() or b"", message.value() or b""
                    right = key.isdigit() and value == key.rjust(_VALUE_BYTES, b"0")
                    if right and int(key) < rows:
                        numbers.append(int(key))
                    else:
                        wrong += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
            np.add.at(found, np.array(numbers, dtype=np.int64), 1)
    finally:
        consumer.close()
    return Counter(
        once=int((found == 1).sum()),
        missing=int((found == 0).sum()),
        doubled=int((found > 1).sum()),
        wrong=wrong,
    )


@dataclass
class CpuTimes:
    """CPU seconds of this process's descendants, by what they are."""

    by_process: dict[int, tuple[str, float]] = field(default_factory=dict)

    def total(self) -> dict[str, float]:
        """Return the seconds so far, those of ended processes too."""
        found: defaultdict[str, float] = defaultdict(float)
        for kind, seconds in self.by_process.values():
            found[kind] += seconds
        return dict(found)

    def sample(self) -> None:
        """Look at all processes."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = {pid: fields for pid in _pids() if (fields := _stat(pid))}
        below = {os.getpid()}
        for _ in stats:
            more = {pid for pid, fields in stats.items() if int(fields[_PARENT]) in below} - below
            if not more:
                break
            below |= more
        for pid in (below | self.by_process.keys()) & stats.keys():
            kind = self.by_process.get(pid, (_kind(pid), 0.0))[0]
            seconds = sum(int(ticked) for ticked in stats[pid][_TIMES]) / ticks
            self.by_process[pid] = kind, seconds


@contextmanager
def cpu_times() -> Iterator[CpuTimes]:
    """Sample all processes each second."""
    times, done = CpuTimes(), threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLE_S):
            times.sample()

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield times
    finally:
        done.set()
        thread.join()


def worker_jvm(work_directory: Path) -> int:
    """The process id of the worker of Spark with these files."""
    wanted = f"--work-dir\0{work_directory}\0".encode()
    return next(
        pid for pid in _pids() if wanted in _command(pid) and b"deploy.worker" in _command(pid)
    )


def _kind(pid: int) -> str:
    command = _command(pid)
    return next((kind for part, kind in _KINDS.items() if part in command), "others")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # gone meanwhile


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []  # gone meanwhile


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
