"""Checks the handlers, commits and outputs of a run: functions over the events that were seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aioprod import TopicPartition

Place = tuple[int, int]  # partition, offset
ENDED_WELL = ("done", "dead letter")


class Call(NamedTuple):
    """A step of a handler's call.

    Attributes:
        step: ``begin``, ``done``, ``failed``, or ``dead letter`` after ``failed``.
    """

    member: str
    step: str
    place: Place
    key: bytes | None


@dataclass
class History:
    """The events of a run, in the order of time.

    Attributes:
        calls: the steps of all handlers.
        done: the records whose handler has succeeded, or that are in the dead-letter topic.
        findings: violations that were found while the run went on.
    """

    calls: list[Call] = field(default_factory=list)
    done: set[Place] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)

    def note(self, member: str, step: str, place: Place, key: bytes | None) -> None:
        """Note a step; look at the order of the key."""
        self.calls.append(Call(member, step, place, key))
        if step in ENDED_WELL:
            self.done.add(place)

    def committed(
        self, offsets: Mapping[TopicPartition, int], starts: Mapping[int, Sequence[int]]
    ) -> None:
        """Look for records before a committed position that are not done.

        Args:
            starts: the offsets of all records, by partition.
        """
        for tp, position in offsets.items():
            holes = [
                offset
                for offset in starts[tp.partition]
                if offset < position and (tp.partition, offset) not in self.done
            ]
            if holes:
                self.findings.append(f"{tp} is committed up to {position}, not done: {holes}")


def disordered_keys(calls: Sequence[Call]) -> list[str]:
    """Find records whose handler began before all earlier records of their key were done."""
    findings = []
    done: set[Place] = set()
    known: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for call in calls:
        if call.key is None:
            continue
        partition, offset = call.place
        seen = known[partition, call.key]
        if call.step == "begin":
            waiting = [each for each in seen if each < offset and (partition, each) not in done]
            if waiting:
                findings.append(f"{call} although {waiting} are not done")
            if offset not in seen:
                seen.append(offset)
        elif call.step in ENDED_WELL:
            done.add(call.place)
    return findings


def skipped_keys(
    calls: Sequence[Call], keys: Mapping[tuple[int, bytes], Sequence[int]]
) -> list[str]:
    """Find records that began although an earlier record of their key was never begun before."""
    findings = []
    begun: set[Place] = set()
    for call in calls:
        if call.step != "begin" or call.key is None:
            continue
        partition, offset = call.place
        before = [o for o in keys[partition, call.key] if o < offset]
        missing = [o for o in before if (partition, o) not in begun]
        if missing:
            findings.append(f"{call} before {missing}")
        begun.add(call.place)
    return findings


def overlaps_in_a_member(calls: Sequence[Call]) -> list[str]:
    """Find records of a key that one member handled at the same time."""
    findings = []
    running: Counter[tuple[str, int, bytes]] = Counter()
    for call in calls:
        if call.key is None:
            continue
        lane = (call.member, call.place[0], call.key)
        running[lane] += {"begin": 1, "dead letter": 0}.get(call.step, -1)
        if running[lane] > 1:
            findings.append(f"{call} while another record of its key is handled")
    return findings


def handled_more_than_once(calls: Sequence[Call]) -> list[str]:
    """Find records with more than one call."""
    counts = Counter(call.place for call in calls if call.step == "begin")
    return [f"{place} was handled {count} times" for place, count in counts.items() if count > 1]


def outputs_not_exactly_once(inputs: Sequence[bytes], outputs: Sequence[bytes]) -> list[str]:
    """Find inputs without an output, and those with several."""
    counts, known = Counter(outputs), set(inputs)
    return [f"{value!r} has {counts[value]} outputs" for value in inputs if counts[value] != 1] + [
        f"{value!r} has no input" for value in counts if value not in known
    ]


def missing_outputs(
    committed: Mapping[TopicPartition, int],
    inputs: Mapping[Place, bytes],
    outputs: Collection[bytes],
    letters: Collection[Place],
) -> list[str]:
    """Find records before a committed position with neither a stored output nor a dead letter."""
    positions = {tp.partition: position for tp, position in committed.items()}
    return [
        f"{place} is committed, and its output is not stored"
        for place, value in inputs.items()
        if place[1] < positions.get(place[0], 0) and value not in outputs and place not in letters
    ]


def disordered_outputs(outputs: Sequence[tuple[bytes, int]]) -> list[str]:
    """Find outputs (key, number) of a partition that are not in the order of their inputs."""
    last: dict[bytes, int] = {}
    findings = []
    for key, number in outputs:
        if number < last.get(key, -1):
            findings.append(f"{key!r}: {number} after {last[key]}")
        last[key] = number
    return findings
