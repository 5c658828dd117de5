"""Members of a group in processes of their own, ours and Java's: they can be killed, and every line
that they print is kept.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import aioprod
from aioprod.testing.jars import kafka_jars
from aioprod.testing.java import find_java, home_of

LIMIT_S = 60.0
COMPILE_LIMIT_S = 100
HERE = Path(__file__).parent
ROOT = Path(aioprod.__file__).parent.parent
_JVM = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


class ProcessMember:
    """A process that reads with a group.

    Attributes:
        read: by partition: offset and value of each record that it has processed, in its order.
        events: name and numbers of everything else that it has reported: ``assigned``, ``revoked``,
            ``lost`` with partitions, ``leads`` with how many members there were, ``left``.
        refused: commits that the group did not take.
    """

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.read: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self.events: list[tuple[str, list[int]]] = []
        self.refused: list[str] = []
        self._log = log
        self._news = asyncio.Event()
        self._started = asyncio.get_running_loop().create_task(
            self._start(command), name=f"{name}-start"
        )

    async def _start(self, command: list[str]) -> asyncio.subprocess.Process:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("w") as errors:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=errors, env=environment, limit=1 << 24
            )
        self._listening = asyncio.get_running_loop().create_task(
            self._listen(process), name=f"{self.name}-listen"
        )
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.endswith(b"\n"):  # else it was killed in the middle of telling
                self._take(line.decode().rstrip("\n"))
            self._news.set()
        self._news.set()

    def _take(self, line: str) -> None:
        event, _, rest = line.partition(" ")
        if event == "read":
            partition, *records = rest.split()
            self.read[int(partition)] += [
                (int(offset), value)
                for offset, _, value in (record.partition(":") for record in records)
            ]
        elif event == "refused":
            self.refused.append(rest)
        else:
            self.events.append((event, [int(number) for number in rest.split()]))

    def numbers(self, event: str) -> list[list[int]]:
        """The numbers of each event of that name."""
        return [numbers for name, numbers in self.events if name == event]

    @property
    def keeps(self) -> set[int]:
        """The partitions that it has."""
        kept_back: set[int] = set()
        for event, numbers in self.events:
            if event == "assigned":
                kept_back.update(numbers)
            elif event in ("revoked", "lost"):
                kept_back.difference_update(numbers)
        return kept_back

    async def assigned(self) -> None:
        """Wait until it has partitions. Raises AssertionError with the end of its log where it ends
        before, or it takes too long.
        """
        await self._started
        try:
            async with asyncio.timeout(LIMIT_S):
                while not self.numbers("assigned"):
                    assert not self._listening.done(), f"{self.name} has ended:\n{self.log_tail()}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self.name}: {self.events[-20:]}\n{self.log_tail()}") from None

    async def leave(self) -> None:
        """Have it leave in order, and wait until it has ended."""
        process = await self._started
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._listening
                status = await process.wait()
        except TimeoutError:
            raise AssertionError(
                f"{self.name} does not end: {self.events[-20:]}\n{self.log_tail()}"
            ) from None
        assert status == 0 and self.numbers("left"), (
            f"{self.name} has ended with {status}:\n{self.log_tail()}"
        )

    async def kill(self) -> None:
        """End it with SIGKILL."""
        process = await self._started
        process.kill()
        await process.wait()
        await self._listening

    async def end(self) -> None:
        """End it, whatever its state is."""
        process = await self._started
        if process.returncode is None:
            process.kill()
        await process.wait()
        await self._listening

    def forget_uncommitted(self, committed: Mapping[int, int]) -> None:
        """Records of the partitions that it has, at or above what its group has committed, count as
        never processed.
        """
        for partition in self.keeps:
            end = committed.get(partition, 0)
            self.read[partition] = [
                (offset, value) for offset, value in self.read[partition] if offset < end
            ]

    def log_tail(self) -> str:
        """The end of what it has written to standard error."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])


def our_command(topic: str, settings: Mapping[str, str]) -> list[str]:
    """Return the command that runs our member."""
    return [sys.executable, str(HERE / "group_member.py"), topic, *_lines(settings)]


def java_command(classes: Path, version: str, topic: str, settings: Mapping[str, str]) -> list[str]:
    """Return the command that runs Java's member, with the client of that version."""
    strategy = {"cooperative-sticky": "GroupMember$Cooperative", "sticky": "GroupMember$Sticky"}
    name = "partition.assignment.strategy"
    theirs = {**settings, name: strategy[settings[name]]} if name in settings else settings
    class_path = os.pathsep.join([str(classes), *map(str, kafka_jars(version))])
    return [str(find_java()), *_JVM, "-cp", class_path, "GroupMember", topic, *_lines(theirs)]


def _lines(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def compile_java_member(directory: Path) -> Path:
    """The directory with its classes. A JDK is needed: the compiler is not in every Java."""
    compiler = home_of(find_java()) / "bin" / "javac"
    class_path = os.pathsep.join(map(str, kafka_jars()))
    subprocess.run(
        [str(compiler), "-cp", class_path, "-d", str(directory), str(HERE / "GroupMember.java")],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=COMPILE_LIMIT_S,
    )
    return directory
