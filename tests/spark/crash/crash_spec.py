"""The specification of a crash run, and its reports: JSON that the query and Spark's Python workers
read, and events that they write.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

# : Names the file of the run's `Spec` in the environment of the query, and so of its JVM and all
# Python workers.
SPEC_VARIABLE = "AIOPROD_CRASH_SPEC"

Phase = Literal["write", "commit", "abort"]
#: ``copy``: ends with the rows that are there. ``foreachBatch``: writes each micro-batch by
#: ``df.write``, and runs until it is stopped.
Scenario = Literal["copy", "foreachBatch"]
Action = Literal["kill", "kill worker", "fail", "ask", "orphan"]


@dataclass(frozen=True)
class Point:
    """A step of the protocol, and what is to happen when it is reached first.

    Attributes:
        step: ``<API>:before`` or ``<API>:after`` for a Kafka request about to go out or just
            answered (``END_TXN:after``; ``*:before`` counts all kinds); ``begin`` or ``end`` for
            the call of the writer that is the phase.
        phase: the writer's method that is running: ``write`` in tasks, ``commit`` and ``abort`` on
            the driver's side.
        nth: how many times it is reached in one call before it counts.
        from_batch: micro-batches before this one are left alone.
        partition: the task of that partition only; None: any.
        action: ``kill``: SIGKILL to the JVM above this Python worker (the driver's, or an
            executor's), and then to the worker; ``kill worker``: to the worker alone; ``fail``: an
            exception; ``ask``: wait until the watching process has acted (see `EventLog.asked`);
            ``orphan``: SIGKILL to the JVM; the worker survives, waits as with ``ask``, and then
            continues, each further step an event.
    """

    step: str
    phase: Phase
    nth: int = 1
    from_batch: int = 0
    partition: int | None = None
    action: Action = "kill"

    @property
    def name(self) -> str:
        """For people: ``commit END_TXN:after #2``."""
        return (
            f"{self.phase} {self.step}"
            + (f" #{self.nth}" if self.nth > 1 else "")
            + (f" ({self.action})" if self.action != "kill" else "")
        )


@dataclass(frozen=True)
class Spec:
    """One run of the query: what the child process is given.

    Attributes:
        directory: directory of the query's life: checkpoint, events.
        run: number of the run in that life; events and markers carry it.
        master: Spark's master URL.
        targets: topics; row n goes to number n modulo their count.
        min_partitions, repartition: the source's option; the number of partitions of the shuffle,
            None: as AQE likes it.
        sink_options: further options of the write.
        points: each fires once a run.
        rows_per_batch: ``maxOffsetsPerTrigger``.
        scenario: the name of the query.
        settings: further settings of Spark.
    """

    directory: str
    run: int
    servers: str
    source: str
    targets: list[str]
    master: str = "local[2]"
    min_partitions: int | None = None
    repartition: int | None = None
    sink_options: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    rows_per_batch: int = 60
    scenario: Scenario = "copy"
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file of this run's specification; files next to it with the same stem are its result,
        its markers and its log.
        """
        return Path(self.directory) / f"run{self.run}.json"

    def save(self) -> None:
        self.path.write_text(json.dumps(asdict(self)))


def load_spec(path: str) -> Spec:
    """Read what `Spec.save` wrote."""
    given: dict[str, Any] = json.loads(Path(path).read_text())
    points = [Point(**point) for point in given.pop("points")]
    return Spec(points=points, **given)


@dataclass(frozen=True)
class Event:
    """Something that happened in a Python worker: ``begin`` or ``end`` of a phase, or the step of a
    point that fired.

    Attributes:
        at: seconds since the epoch.
        killed: the process id of the JVM, or of the worker alone, that was killed.
        requests: at the end of a phase: Kafka requests that went out in it.
    """

    at: float
    run: int
    step: str
    phase: Phase
    batch: int
    partition: int = -1
    attempt: int = 0
    point: int = -1
    killed: int = 0
    requests: int = 0


class EventLog:
    """The events of a query's life, appended by many processes, each line at once; and which points
    of one of its runs have fired.
    """

    def __init__(self, directory: str, run: int) -> None:
        self._directory = Path(directory)
        self._run = run
        self._path = self._directory / "events.jsonl"

    def add(self, **fields: Any) -> None:
        event = Event(at=time.time(), run=self._run, **fields)
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, json.dumps(asdict(event)).encode() + b"\n")
        finally:
            os.close(handle)

    def read(self) -> list[Event]:
        """All events so far, of all runs."""
        try:
            return [Event(**json.loads(line)) for line in self._path.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def read_run(self) -> list[Event]:
        """Those of this run."""
        return [event for event in self.read() if event.run == self._run]

    def take(self, point: int) -> bool:
        """Return whether the point has not fired before in this run; from now on it has."""
        try:
            os.close(os.open(self._marker(point, "fired"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def asked(self, point: int) -> bool:
        """Return whether a worker waits at a point, and was not answered."""
        return self._marker(point, "fired").exists() and not self._marker(point, "done").exists()

    def answer(self, point: int) -> None:
        """Let it go on."""
        self._marker(point, "done").touch()

    def wait_for_answer(self, point: int, limit_s: float) -> None:
        """Block until `answer` is called, at most ``limit_s`` seconds."""
        deadline = time.monotonic() + limit_s
        while not self._marker(point, "done").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _marker(self, point: int, what: str) -> Path:
        return self._directory / f"run{self._run}.{point}.{what}"


def result_path(spec: Spec) -> Path:
    """Return the file to which a run that has ended writes its result: ``{"error": null}``, or the
    query's exception as text.
    """
    return spec.path.with_suffix(".result")


def environment(spec: Spec, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the child process."""
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **base,
        SPEC_VARIABLE: str(spec.path),
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
