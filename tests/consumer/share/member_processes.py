"""Members of a share group in processes of their own: consumers and processors of aioprod, and
Java's client. And the judgment on their ledgers.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java
from tests.consumer.share import share_member, share_processor_member
from tests.consumer.share.share_groups import ShareTopic
from tests.testing.java_compiler import compile_to_jar

MAX_POLL_RECORDS = 25
AIOPROD, PROCESSOR, JAVA = "aioprod", "processor", "java"
_PYTHON_MEMBERS = {AIOPROD: share_member, PROCESSOR: share_processor_member}
_JAVA_MEMBER = Path(share_member.__file__).parent / "java" / "ShareMember.java"
_JAVA_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Place = tuple[int, int]
"""The partition and the offset of a record."""


class Step(NamedTuple):
    """A line of a ledger: ``got`` or ``sure``, with the delivery count and a time in
    nanoseconds.
    """

    kind: str
    place: Place
    delivery: int
    at: int
    client: str


class Members:
    """Runs the processes of members: one for each of ``clients``, and another one when it ends.

    Args:
        directory: for the ledgers.
        clients: `AIOPROD`, `PROCESSOR` (a `ShareProcessor`) or `JAVA`, for each process.
    """

    def __init__(self, topic: ShareTopic, directory: Path, clients: Sequence[str]) -> None:
        self._topic = topic
        self._directory = directory
        self._clients = clients
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ledgers: dict[int, Path] = {}
        self._started = 0
        self._java: list[str] = []
        if JAVA in clients:
            classes = directory / "java"
            classes.mkdir()
            jars = [compile_to_jar(_JAVA_MEMBER, kafka_jars(), classes), *kafka_jars()]
            class_path = os.pathsep.join(map(str, jars))
            self._java = [str(find_java()), *_JAVA_OPTIONS, "-cp", class_path, "ShareMember"]

    async def fill(self) -> None:
        """Start the processes that are missing."""
        for slot, client in enumerate(self._clients):
            if slot not in self._running:
                self._started += 1
                ledger = self._ledgers[slot] = self._directory / f"{self._started}.ledger"
                program = self._java
                if client != JAVA:
                    program = [sys.executable, "-m", _PYTHON_MEMBERS[client].__name__]
                self._running[slot] = await asyncio.create_subprocess_exec(
                    *(*program, self._topic.kafka, self._topic.topic, self._topic.group),
                    *(str(ledger), str(MAX_POLL_RECORDS)),
                    stderr=asyncio.subprocess.DEVNULL if client == JAVA else None,
                )

    async def until_each_has_accepted(self, records: int) -> None:
        """Wait until each process has had the acceptance of this number of records confirmed."""
        for slot, process in self._running.items():
            while self._accepted(slot) < records:
                assert process.returncode is None, f"a member ({self._clients[slot]}) has ended"
                await asyncio.sleep(0.05)

    def _accepted(self, slot: int) -> int:
        ledger = self._ledgers[slot]
        return ledger.read_text().count("sure") if ledger.exists() else 0

    async def kill(self, slot: int) -> None:
        """Kill a process (SIGKILL)."""
        member = self._running.pop(slot)
        if member.returncode is None:
            member.kill()
        await member.wait()

    async def kill_one(self, rng: random.Random) -> None:
        """Kill any process."""
        await self.kill(rng.choice(list(self._running)))

    async def kill_all(self) -> None:
        """End all processes."""
        for slot in list(self._running):
            await self.kill(slot)

    def steps(self) -> list[Step]:
        """Return what the members have noted, in the order of time; a cut line does not count."""
        steps = []
        for path in self._directory.glob("*.ledger"):
            content = path.read_text()
            for line in content[: content.rfind("\n") + 1].splitlines():
                kind, partition, offset, count, at, client = line.split()
                place = (int(partition), int(offset))
                steps.append(Step(kind, place, int(count), int(at), client))
        return sorted(steps, key=lambda step: step.at)


@dataclass
class Judgment:
    """The result of comparing the ledgers.

    Attributes:
        findings: the violations, a line each.
        confirmed: the number of records whose acceptance was confirmed.
        repeated: the number of deliveries beyond the first of a record.
        stale: the number of deliveries after a confirmed acceptance.
        twice: the number of acceptances that were confirmed after another one of the record.
        by_client: the number of confirmed records by client.
    """

    findings: list[str]
    confirmed: int
    repeated: int
    stale: int
    twice: int
    by_client: dict[str, int]


def judge(
    steps: Iterable[Step], written: Iterable[Place], *, leaders_change: bool = False
) -> Judgment:
    """Judge what members did.

    Args:
        steps: in the order of time.
        written: the records that had to be delivered.
        leaders_change: whether nodes were killed or frozen. Then delivery counts need not rise with
            each delivery of a record, as leaders store them with the next acknowledgement; a leader
            that continues after others have elected another one still returns records; and a
            broker confirms an acknowledgement of a record that the group is done with, which is
            late if the partition has moved away and back since.
    """
    got: defaultdict[Place, list[Step]] = defaultdict(list)
    sure: defaultdict[Place, list[Step]] = defaultdict(list)
    findings = []
    stale = twice = 0
    for step in steps:
        if step.kind == "sure":
            if sure[step.place]:
                twice += 1
            if sure[step.place] and not leaders_change:
                findings.append(f"{step.place} was accepted twice: {sure[step.place][0]}, {step}")
            sure[step.place].append(step)
            continue
        before = got[step.place]
        if step.place in sure:
            stale += 1
            if not leaders_change:
                findings.append(f"{step} came after {sure[step.place][0]}")
        elif not leaders_change and before and step.delivery <= before[-1].delivery:
            findings.append(f"the delivery count of {step} is not above that of {before[-1]}")
        before.append(step)
    findings += [f"{place} was not delivered" for place in sorted(set(written) - got.keys())]
    by_client: defaultdict[str, int] = defaultdict(int)
    for first, *_ in sure.values():
        by_client[first.client] += 1
    repeated = sum(len(deliveries) - 1 for deliveries in got.values())
    return Judgment(findings, len(sure), repeated, stale, twice, dict(by_client))
