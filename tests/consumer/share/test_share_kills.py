"""Members of a share group in processes of their own are killed in the middle of their work."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.consumer.share import share_member
from tests.consumer.share.share_groups import ShareTopic, lag
from tests.consumer.share.share_member import MAX_POLL_RECORDS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

RECORDS = 4_000
KILLS = 10
MEMBER = Path(share_member.__file__)


class Members:
    """Three processes; one that ends is replaced."""

    def __init__(self, topic: ShareTopic, directory: Path) -> None:
        self._topic = topic
        self._directory = directory
        self._running: list[asyncio.subprocess.Process] = []
        self._started = 0

    async def fill(self) -> None:
        while len(self._running) < 3:
            self._started += 1
            self._running.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, str(MEMBER), self._topic.kafka),
                    *(self._topic.topic, self._topic.group),
                    str(self._directory / f"ledger-{self._started}"),
                )
            )

    async def kill(self, member: asyncio.subprocess.Process) -> None:
        self._running.remove(member)
        if member.returncode is None:
            member.kill()
        await member.wait()

    async def kill_one(self, rng: random.Random) -> None:
        await self.kill(rng.choice(self._running))

    async def kill_all(self) -> None:
        for member in list(self._running):
            await self.kill(member)

    def lines(self) -> list[list[str]]:
        """The complete lines of all ledgers."""
        return [
            line.split()
            for path in self._directory.iterdir()
            for line in path.read_text().splitlines()
        ]


async def test_killed_members_lose_nothing_that_is_not_confirmed(
    kafka: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    topic = ShareTopic(kafka)
    # Kills count as deliveries, so few of them could use up a small limit.
    await topic.create(share_record_lock_duration_ms="5000", share_delivery_count_limit="10")
    members = Members(topic, tmp_path)
    try:
        writing = asyncio.create_task(write_slowly(topic))
        for _ in range(KILLS):
            await members.fill()
            await asyncio.sleep(rng.uniform(1.0, 2.5))
            await members.kill_one(rng)
        await writing
        await members.fill()
        async with asyncio.timeout(90):
            # What a killed member had accepted without knowing it is in no ledger.
            while await lag(topic) != 0:  # noqa: ASYNC110 - a question to the broker
                await asyncio.sleep(0.5)
    finally:
        await members.kill_all()
    check(members.lines())


def check(lines: list[list[str]]) -> None:
    got: dict[int, list[int]] = defaultdict(list)
    sure: dict[int, list[int]] = defaultdict(list)
    counts = set()
    for kind, offset, count, time_ns in lines:
        (got if kind == "got" else sure)[int(offset)].append(int(time_ns))
        counts.add(int(count))
    assert got.keys() == set(range(RECORDS))
    assert [offset for offset, times in sure.items() if len(times) > 1] == []
    assert [offset for offset, times in sure.items() if max(got[offset]) > times[0]] == []
    # The rest was accepted by members that were killed before they knew it.
    assert len(sure) >= RECORDS - KILLS * MAX_POLL_RECORDS
    assert max(counts) > 1  # records were delivered again


async def write_slowly(topic: ShareTopic) -> None:
    for start in range(0, RECORDS, 200):
        await topic.write(range(start, start + 200))
        await asyncio.sleep(0.5)
