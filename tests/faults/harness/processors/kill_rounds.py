"""Two processes of a processor, killed at random while records are written; the oracle of the
simulated processors judges what was seen.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aioprod import Admin, Delivery, KafkaError, Producer, TopicPartition
from tests.faults.harness.child import Child
from tests.faults.harness.groups.ledger import ERROR
from tests.faults.harness.processors.member import Settings
from tests.interop.programs.reading import Stored, read_all
from tests.processing import oracle
from tests.processing.oracle import Call, History, Place

PARTITIONS = 6
PROCESSES = 2
KEYS = 500
#: Seconds between two records of a group.
PACE_SECONDS = 0.015
_LOOK_SECONDS = 0.5
_FINISH_SECONDS = 90.0
_STOP_SECONDS = 40.0


class Step(NamedTuple):
    """A line of a ledger."""

    at: float
    event: str
    text: str


class LedgerTail:
    """Reads what a process has noted since the last call; a line that was cut does not count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def steps(self) -> list[Step]:
        """Return the new lines."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [
            Step(float(at), event, text)
            for event, at, text in (line.split("\t") for line in whole.decode().splitlines())
        ]


@dataclass
class ProcessorGroup:
    """A group of `PROCESSES` processes, and all that was seen of it.

    Attributes:
        slots: settings of each process, such as a ``group_instance_id``; a process that was killed
            is started again with them.
        kills: the number of processes that were killed.
        stored: offset and value of each record that was written, by partition.
    """

    name: str
    settings: Settings
    slots: list[dict[str, Any]]
    directory: Path
    kills: int = 0
    history: History = field(default_factory=History)
    stored: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    values: list[bytes] = field(default_factory=list)
    keys: defaultdict[tuple[int, bytes], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self._starts = 0
        self._running: dict[int, Child] = {}
        self._tails: dict[str, LedgerTail] = {}
        self._steps: list[tuple[str, Step]] = []
        self._looked: dict[int, int] = defaultdict(int)

    @property
    def exactly_once(self) -> bool:
        """True if its guarantee is exactly once."""
        return self.settings.settings.get("guarantee") == "exactly_once"

    # -- processes ---------------------------------------------------------------------------------

    def start(self, slot: int) -> None:
        """Start the process of a slot."""
        self._starts += 1
        name = f"{self.name}-{slot}-{self._starts}"
        path = self.directory / f"{name}.ledger"
        settings = replace(
            self.settings,
            ledger=str(path),
            settings={**self.settings.settings, **self.slots[slot]},
        )
        self._tails[name] = LedgerTail(path)
        self._running[slot] = Child(
            "tests.faults.harness.processors.member", settings.to_json(), path.with_suffix(".log")
        )

    def kill(self, slot: int) -> None:
        """Kill the process of a slot (SIGKILL)."""
        if not self._running[slot].runs:
            self.history.findings.append(f"the process of slot {slot} has ended by itself")
        self._running[slot].kill()
        self.kills += 1

    async def stop(self) -> None:
        """Let the processes end in good order."""
        await asyncio.gather(*(each.terminate(_STOP_SECONDS) for each in self._running.values()))

    def kill_all(self) -> None:
        """End what runs still."""
        for each in self._running.values():
            each.kill()

    # -- what is seen ------------------------------------------------------------------------------

    def written(self, key: bytes, value: bytes, delivery: Delivery) -> None:
        """Note a record that was acknowledged."""
        if delivery.exception() is None:
            metadata = delivery.result()
            self.stored[metadata.partition].append(metadata.offset)
            self.keys[metadata.partition, key].append(metadata.offset)
            self.values.append(value)

    def look(self, committed: Mapping[TopicPartition, int]) -> None:
        """Compare positions that were committed with what was done before.

        The ledgers are read after the positions, so they have all that the positions cover.
        """
        for name, tail in list(self._tails.items()):  # processes start in a thread
            for step in tail.steps():
                self._steps.append((name, step))
                if step.event == "done":
                    self.history.done.add(place_of(step)[0])
                elif step.event == ERROR:
                    self.history.findings.append(f"{name}: {step.text}")
        for tp, position in committed.items():
            looked = self._looked[tp.partition]
            if position < looked:
                self.history.findings.append(f"{tp}: the position went from {looked} to {position}")
            offsets = [each for each in self.stored[tp.partition] if looked <= each < position]
            self.history.committed({tp: position}, {tp.partition: offsets})
            self._looked[tp.partition] = max(looked, position)

    def is_done(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Return whether the positions of all partitions are after their last record."""
        positions = {tp.partition: position for tp, position in committed.items()}
        return all(
            positions.get(partition, 0) > max(offsets) for partition, offsets in self.stored.items()
        )

    def judge(self, outputs: list[Stored]) -> list[str]:
        """Return all findings at the end."""
        history = self.history
        for name, step in sorted(self._steps, key=lambda noted: noted[1].at):
            if step.event != ERROR:
                place, key = place_of(step)
                history.calls.append(Call(name, step.event, place, key))
        findings = list(history.findings)
        findings += oracle.disordered_keys(history.calls)
        findings += oracle.skipped_keys(history.calls, self.keys)
        findings += oracle.overlaps_in_a_member(history.calls)
        everything = {(p, offset) for p, offsets in self.stored.items() for offset in offsets}
        findings += [f"{place} is lost" for place in sorted(everything - history.done)]
        values = [record.value or b"" for record in outputs]
        if self.exactly_once:
            findings += oracle.outputs_not_exactly_once(self.values, values)
            findings += self._disorder(outputs)
        else:
            findings += [f"{value!r} has no output" for value in set(self.values) - set(values)]
        return findings

    def repeated(self) -> int:
        """Return how many handlers were called for records that had been handled before."""
        begun = [place_of(step)[0] for _, step in self._steps if step.event == "begin"]
        return len(begun) - len(set(begun))

    @staticmethod
    def _disorder(outputs: list[Stored]) -> list[str]:
        findings = []
        for partition in range(PARTITIONS):
            numbered = [
                (record.key or b"", int((record.value or b"0").rpartition(b":")[2]))
                for record in outputs
                if record.partition == partition
            ]
            findings += oracle.disordered_outputs(numbered)
        return findings


def place_of(step: Step) -> tuple[Place, bytes]:
    """Return the place and key of a handler's step."""
    partition, offset, key = step.text.split(" ")
    return (int(partition), int(offset)), key.encode()


async def write(servers: str, groups: list[ProcessorGroup], stop: asyncio.Event) -> None:
    """Write to the topics of all groups until ``stop`` is set; then wait for all deliveries."""
    rng = random.Random(1)
    number = 0
    async with Producer(servers, linger_ms=5) as producer:
        while not stop.is_set():
            number += 1
            key = b"%d" % rng.randrange(KEYS)
            value = b"%s:%d" % (key, number)
            for group in groups:
                delivery = await producer.send(group.settings.topic, value, key=key)
                delivery.add_done_callback(partial(group.written, key, value))
            await asyncio.sleep(PACE_SECONDS)
        await producer.flush()


async def watch(servers: str, groups: list[ProcessorGroup]) -> None:
    """Look at the committed positions all the time."""
    async with Admin(servers) as admin:
        while True:
            for group in groups:
                group.look(await committed_positions(admin, group))
            await asyncio.sleep(_LOOK_SECONDS)


async def committed_positions(admin: Admin, group: ProcessorGroup) -> dict[TopicPartition, int]:
    """Return the committed positions of a group; none if its coordinator does not answer."""
    try:
        found = (await admin.list_consumer_group_offsets(group.settings.group)).check()
    except KafkaError:
        return {}
    return {tp: position.offset for tp, position in found.items() if position is not None}


async def kill_at_random(group: ProcessorGroup, rng: random.Random, until: float) -> None:
    """Kill one process of the group after the other, and start it again at once or later."""
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(2, 14))
        slot = rng.randrange(PROCESSES)
        await asyncio.to_thread(group.kill, slot)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, 8))
        await asyncio.to_thread(group.start, slot)


async def run(servers: str, groups: list[ProcessorGroup], seconds: float, seed: int) -> list[str]:
    """Kill processes of all groups for that time, let them finish, and return all findings."""
    rng = random.Random(seed)
    stop = asyncio.Event()
    for group in groups:
        for slot in range(PROCESSES):
            await asyncio.to_thread(group.start, slot)
    background = [
        asyncio.create_task(write(servers, groups, stop)),
        asyncio.create_task(watch(servers, groups)),
    ]
    try:
        until = time.monotonic() + seconds
        await asyncio.gather(
            *(kill_at_random(group, random.Random(rng.random()), until) for group in groups)
        )
        stop.set()
        await background[0]
        await _until_idle(servers, groups)
        await asyncio.gather(*(group.stop() for group in groups))
    finally:
        for task in background:
            task.cancel()
        ended = await asyncio.gather(*background, return_exceptions=True)
        for group in groups:
            await asyncio.to_thread(group.kill_all)
    findings = [f"{error!r}" for error in ended if isinstance(error, Exception)]
    for group in groups:
        group.look({})
        outputs = await read_all(
            servers, group.settings.output, PARTITIONS, committed_only=group.exactly_once
        )
        findings += [f"{group.name}: {finding}" for finding in group.judge(outputs)]
    return findings


async def _until_idle(servers: str, groups: list[ProcessorGroup]) -> None:
    deadline = time.monotonic() + _FINISH_SECONDS
    async with Admin(servers) as admin:
        waiting = list(groups)
        while waiting and time.monotonic() < deadline:
            waiting = [
                group
                for group in waiting
                if not group.is_done(await committed_positions(admin, group))
            ]
            await asyncio.sleep(_LOOK_SECONDS)
    for group in waiting:
        group.history.findings.append(f"not committed up to the end after {_FINISH_SECONDS:g} s")
