"""A producer and a consumer of aioprod with 1,000 records/s in a process of their own, which prints
samples of itself: ``python -m tests.anomalies.soak_process SERVERS TOPIC INTERVAL_S``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from aioprod import Consumer, KafkaError, Producer
from tests.anomalies.soak import Sample

RATE = 1_000
_TICK_S = 0.01
_DELIVERY_MS = 120_000
"""Longer than any fault, so that no record fails."""
_READ_TO_END_S = 60.0
_RESULT_S = 200.0
_MIB = 1 << 20


class SoakProcess:
    """The other end of a process.

    Attributes:
        samples: those that it has printed.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.samples: list[Sample] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def running(cls, servers: str, topic: str, interval_s: float) -> AsyncIterator[Self]:
        """Run a process until the block ends."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, servers, topic, str(interval_s)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        running = cls(process)
        try:
            yield running
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
            await running._reading

    async def end(self) -> dict[str, int]:
        """Let it read to the end, and return what it counted.

        Raises:
            RuntimeError: if it has ended without a result.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(_RESULT_S):
            found = await asyncio.shield(self._reading)
        if found is None:
            raise RuntimeError(f"exit status {await self._process.wait()}, without a result")
        return found

    async def _read(self) -> dict[str, int] | None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            found = json.loads(line)
            if isinstance(found, dict):
                return found
            self.samples.append(Sample(*found))
        return None


class _Load:
    """Sends numbers, and reads them.

    Attributes:
        counts: the numbers of acknowledged, failed and read records, and of duplicates.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.counts = {"acknowledged": 0, "failed": 0, "read": 0, "duplicates": 0}
        self._topic = topic
        self._producer = Producer(servers, delivery_timeout_ms=_DELIVERY_MS)
        self._consumer = Consumer(
            topic, bootstrap_servers=servers, group_id=f"{topic}-soak", auto_offset_reset="earliest"
        )
        self._sent = 0
        self._unread: set[int] = set()  # acknowledged
        self._early: set[int] = set()  # read before the acknowledgment arrived
        self._ended = asyncio.Event()

    async def run(self, interval_s: float) -> dict[str, int]:
        """Work until standard input ends; return the counts and the number of lost records."""
        async with self._producer, self._consumer, asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(self._read()),
                tasks.create_task(self._sample(interval_s)),
            ]
            sending = tasks.create_task(self._send())
            await asyncio.to_thread(sys.stdin.read)
            self._ended.set()
            await sending
            await self._producer.flush()
            until = time.monotonic() + _READ_TO_END_S
            while self._unread and time.monotonic() < until:  # noqa: ASYNC110 - it has a limit
                await asyncio.sleep(_TICK_S)
            for each in others:
                each.cancel()
        return {**self.counts, "lost": len(self._unread)}

    async def _send(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            while self._sent < (time.monotonic() - began) * RATE:
                number, self._sent = self._sent, self._sent + 1
                delivery = await self._producer.send(self._topic, b"%d" % number)
                delivery.add_done_callback(partial(self._delivered, number))
            await asyncio.sleep(_TICK_S)

    def _delivered(self, number: int, delivery: Any) -> None:
        if delivery.exception() is not None:
            self.counts["failed"] += 1
            return
        self.counts["acknowledged"] += 1
        if number in self._early:
            self._early.discard(number)
        else:
            self._unread.add(number)

    async def _read(self) -> None:
        last: dict[int, int] = {}
        while True:
            try:
                records = await self._consumer.getmany(timeout_ms=200)
            except KafkaError:
                continue  # the next call tries again
            for record in records:
                if record.offset <= last.get(record.partition, -1):
                    self.counts["duplicates"] += 1
                    continue
                last[record.partition] = record.offset
                number = int(record.value or b"-1")
                self.counts["read"] += 1
                if number in self._unread:
                    self._unread.discard(number)
                else:
                    self._early.add(number)

    async def _sample(self, interval_s: float) -> None:
        began = at = time.monotonic()
        cpu, acknowledged = time.process_time(), 0
        while True:
            await asyncio.sleep(interval_s)
            now, cpu_now, count = time.monotonic(), time.process_time(), self.counts["acknowledged"]
            records = max(1, count - acknowledged)
            sample = Sample(
                now - began,
                _rss_mib(),
                len(os.listdir("/proc/self/fd")),
                len(asyncio.all_tasks()),
                (cpu_now - cpu) * 1e6 / records,
                (count - acknowledged) / (now - at),
            )
            print(json.dumps([round(each, 3) for each in sample]), flush=True)
            at, cpu, acknowledged = now, cpu_now, count


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


async def _main() -> None:
    logging.disable(logging.CRITICAL)  # each fault is logged
    servers, topic, interval_s = sys.argv[1:]
    counts = await _Load(servers, topic).run(float(interval_s))
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
