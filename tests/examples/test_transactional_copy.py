"""examples/transactional_copy.py and examples/processing_copy.py in processes that are killed with
-9 at random times: each record is in the target exactly once.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aioprod
from aioprod import Consumer, Producer
from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

ROOT = Path(aioprod.__file__).parent.parent
EXAMPLES = ROOT / "examples"
COPIES = ["transactional_copy.py", "processing_copy.py"]
PARTITIONS = 4
RECORDS = 3_000
LIMIT_S = 100.0
LONGEST_BACKLOG = 2_000
LONGEST_LIFE_S = (
    2.5  # short lives end while a process starts, longer ones in the middle of its work
)


class Copies:
    """Processes of the example, by instance."""

    def __init__(self, example: str, servers: str, source: str, target: str, log: Path) -> None:
        self._names_instances = example == "transactional_copy.py"
        self._arguments = [
            sys.executable,
            str(EXAMPLES / example),
            source,
            target,
            "--session-timeout-ms",
            "6000",
        ]
        self._servers = servers
        self._log = log.open("w")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, instance: str) -> None:
        environment = {
            **os.environ,
            "AIOPROD_BOOTSTRAP_SERVERS": self._servers,
            "PYTHONPATH": str(ROOT),
        }
        self.processes[instance] = subprocess.Popen(
            [*self._arguments, *(["--instance", instance] if self._names_instances else [])],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def kill(self, instance: str) -> None:
        """End it as the kernel does where memory runs out."""
        process = self.processes[instance]
        process.kill()
        process.wait(10)

    def close(self) -> None:
        self._log.close()

    def check_running(self, log: Path) -> None:
        for instance, process in self.processes.items():
            assert process.poll() is None, f"instance {instance} has ended:\n{log.read_text()}"


@contextmanager
def copying(example: str, servers: str, source: str, target: str, log: Path) -> Iterator[Copies]:
    copies = Copies(example, servers, source, target, log)
    try:
        for instance in ("1", "2"):
            copies.start(instance)
        yield copies
    finally:
        for instance in copies.processes:
            copies.kill(instance)
        copies.close()


async def run(example: str, servers: str, kills: int, seed: int, log: Path) -> None:
    rng = random.Random(seed)
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "target"))
    async with ClusterClient(servers) as client:
        reply = await client.request(
            CreateTopicsRequest(
                [CreatableTopic(name, PARTITIONS, 1) for name in (source, target)], 10_000
            )
        )
        assert not [topic for topic in reply.topics if topic.error_code]
    async with (
        Producer(servers) as producer,
        Consumer(
            target,
            bootstrap_servers=servers,
            group_id=f"judge-{target}",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as judge,
    ):
        with copying(example, servers, source, target, log) as copies:
            seen: Counter[bytes | None] = Counter()
            written = 0
            killed = 0
            async with asyncio.timeout(LIMIT_S):
                kill_at = time.monotonic() + rng.uniform(0, LONGEST_LIFE_S)
                # Writing goes on while processes are killed, so that there is always something
                # in progress.
                while killed < kills or written < RECORDS or seen.total() < written:
                    if written - seen.total() < LONGEST_BACKLOG and (
                        written < RECORDS or killed < kills
                    ):
                        for _ in range(50):
                            await producer.send(
                                source, f"record-{written}".encode(), partition=written % PARTITIONS
                            )
                            written += 1
                    seen.update(
                        record.value
                        for record in await judge.getmany(timeout_ms=rng.randint(1, 60))
                    )
                    copies.check_running(log)
                    if killed < kills and time.monotonic() >= kill_at:
                        instances = rng.choice((("1",), ("2",), ("1", "2")))
                        for instance in instances:
                            copies.kill(instance)
                        for instance in instances:
                            copies.start(instance)
                        killed += 1
                        kill_at = time.monotonic() + rng.uniform(0, LONGEST_LIFE_S)
            seen.update(record.value for record in await judge.getmany(timeout_ms=1_000))
    assert seen == Counter({f"RECORD-{number}".encode(): 1 for number in range(written)}), (
        f"seed {seed}"
    )


@pytest.mark.real_time
@pytest.mark.parametrize("example", COPIES)
@pytest.mark.parametrize(
    "bootstrap",
    [
        pytest.param("real", marks=pytest.mark.kafka),
        pytest.param("embedded", marks=pytest.mark.interop),
    ],
    indirect=True,
)
async def test_each_record_is_copied_once_although_processes_are_killed(
    example: str, bootstrap: str, tmp_path: Path
) -> None:
    await run(
        example, bootstrap, kills=3, seed=random.randrange(1_000_000), log=tmp_path / "log.txt"
    )


@pytest.mark.faults
@pytest.mark.parametrize("example", COPIES)
@pytest.mark.parametrize("round_", range(5))
async def test_many_kills(example: str, kafka: str, tmp_path: Path, round_: int) -> None:
    await run(example, kafka, kills=15, seed=random.randrange(1_000_000), log=tmp_path / "log.txt")


@pytest.mark.faults
@pytest.mark.parametrize("example", COPIES)
@pytest.mark.parametrize("round_", range(3))
async def test_many_kills_on_kafka_3_9(
    example: str, kafka_3_9: str, tmp_path: Path, round_: int
) -> None:
    await run(
        example, kafka_3_9, kills=15, seed=random.randrange(1_000_000), log=tmp_path / "log.txt"
    )
