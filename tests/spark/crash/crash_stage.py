"""The stage: a query's life of many runs on one checkpoint, each run a process tree that is
crashed, and what is left of it ended by its ids.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.spark.own_home import spark_home_in

from .crash_judge import Ends, Verdict, judge
from .crash_spec import Event, EventLog, Point, Scenario, Spec, environment, result_path

SOURCE_PARTITIONS = 4
TARGET_PARTITIONS = 2
_RUN_LIMIT_S = 400.0
_POLL_S = 0.02
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_LIMIT_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        error: the query's exception; None if it ended normally, or was killed first.
        crashed: the driver's JVM was killed.
        fired: the numbers of the points that fired.
        kills: the number of killed processes: by points, by the clock or by ``answer``.
        seconds: the time from the start of the process to its end.
        replayed: the micro-batches that an earlier run had begun.
    """

    error: str | None
    crashed: bool
    fired: list[int]
    kills: int
    seconds: float
    replayed: list[int]


class Life:
    """A query's life: topics, a checkpoint, and run after run. A context manager; with its end all
    is gone but the topics.

    Args:
        servers: where the topics are.
        sink_options: options of the write, in all runs.
        replicas: replicas of the topics.
        rows_per_batch: the largest micro-batch.
        scenario: the name of the query.
    """

    def __init__(
        self,
        servers: str,
        sink_options: dict[str, str],
        *,
        rows_per_batch: int,
        replicas: int = 1,
        scenario: Scenario = "copy",
    ) -> None:
        name = f"crash-{uuid.uuid4().hex[:8]}"
        self.targets = [f"{name}-even", f"{name}-odd"]
        self.fed = 0
        self.runs = 0
        self._servers = servers
        self._source = f"{name}-in"
        self._sink_options = sink_options
        self._rows_per_batch = rows_per_batch
        self._scenario: Scenario = scenario
        self._directory = tempfile.mkdtemp(prefix="aioprod-crash-")
        self._spark_home = spark_home_in(Path(self._directory))
        topics = [
            NewTopic(self._source, SOURCE_PARTITIONS, replicas),
            *(NewTopic(topic, TARGET_PARTITIONS, replicas) for topic in self.targets),
        ]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(topics).values():
            created.result(_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def feed(self, rows: int) -> None:
        """More rows for the source topic."""
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        for number in range(self.fed, self.fed + rows):
            producer.produce(
                self._source, str(number).encode(), partition=number % SOURCE_PARTITIONS
            )
        assert producer.flush(_LIMIT_S) == 0, "rows for the source were not acknowledged"
        self.fed += rows

    def next_batch(self) -> int:
        """The number of the first micro-batch that no run has begun."""
        return max((event.batch for event in self.events()), default=-1) + 1

    def events(self) -> list[Event]:
        """Of all runs."""
        return EventLog(self._directory, self.runs).read()

    def judge(self) -> Verdict:
        """Compare all rows that were fed with those that are committed now."""
        return judge(self._servers, self.targets, self.fed)

    def ends(self) -> Ends:
        """A view of the target topics' ends; to be closed."""
        return Ends(self._servers, self.targets)

    def run(
        self,
        *points: Point,
        master: str = "local[2]",
        min_partitions: int | None = None,
        repartition: int | None = None,
        kill_after_s: float | None = None,
        answer: Callable[[Event], int] | None = None,
        options: dict[str, str] | None = None,
    ) -> Outcome:
        """Run the query until it ends or is crashed.

        Args:
            points: the faults to inject.
            kill_after_s: SIGKILL to the driver's JVM this number of seconds after it serves.
            answer: called for each point of the actions ``ask`` and ``orphan`` that was reached;
                its worker continues when this returns, which is the number of processes that it
                killed.
            options: more of the write, for this run only.

        Raises:
            TimeoutError: it neither ended nor crashed in time; with the end of its log.
        """
        before = {event.batch for event in self.events()}
        began = time.monotonic()
        with self.running(
            *points,
            master=master,
            min_partitions=min_partitions,
            repartition=repartition,
            options=options,
        ) as run:
            crashed = run.wait(kill_after_s, answer)
        events = run.log.read_run()
        return Outcome(
            error=run.error(),
            crashed=crashed,
            fired=[event.point for event in events if event.point >= 0],
            kills=sum(event.killed > 0 for event in events) + run.kills,
            seconds=time.monotonic() - began,
            replayed=sorted({event.batch for event in events} & before),
        )

    @contextmanager
    def running(
        self,
        *points: Point,
        master: str,
        min_partitions: int | None = None,
        repartition: int | None = None,
        options: dict[str, str] | None = None,
        settings: dict[str, str] | None = None,
    ) -> Iterator[Run]:
        """Start a run, and end all its processes afterwards. Arguments as for `run`, and further
        settings of Spark.
        """
        spec = Spec(
            self._directory,
            self.runs,
            self._servers,
            self._source,
            self.targets,
            master,
            min_partitions,
            repartition,
            {**self._sink_options, **(options or {})},
            list(points),
            self._rows_per_batch,
            self._scenario,
            settings or {},
        )
        self.runs += 1
        spec.save()
        run = Run(spec, self._spark_home)
        try:
            yield run
        finally:
            run.end()

    def committed(self) -> int:
        """The number of rows fed that are in micro-batches that Spark has noted as done."""
        return committed_rows(Path(self._directory) / "checkpoint")

    def logs(self) -> list[Path]:
        """The logs of all runs, and those of their executors."""
        return [
            *sorted(Path(self._directory).glob("run*.log")),
            *sorted(self._spark_home.glob("work/*/*/std*")),
        ]

    def query_id(self) -> str:
        """The query's id, which its transactional ids contain."""
        found: str = json.loads((Path(self._directory) / "checkpoint" / "metadata").read_text())[
            "id"
        ]
        return found


class Run:
    """One process tree: the query's Python, the JVM below it, and what that starts.

    Attributes:
        spec: its specification.
        kills: processes killed from here.
    """

    def __init__(self, spec: Spec, spark_home: Path) -> None:
        self.spec = spec
        self.log = EventLog(spec.directory, spec.run)
        self.kills = 0
        self._output = spec.path.with_suffix(".log")
        with self._output.open("wb") as output:
            # A session of its own, by which all that it starts is found; its standard input ends
            # with our process, and so does it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.crash.crash_query", str(spec.path)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment(spec, {**os.environ, "SPARK_HOME": str(spark_home)}),
            )

    def wait(self, kill_after_s: float | None, answer: Callable[[Event], int] | None) -> bool:
        """Until the process ends by itself (False), or the driver's JVM was killed (True)."""
        deadline = time.monotonic() + _RUN_LIMIT_S
        kill_at: float | None = None
        while self._process.poll() is None:
            driver = self._driver_jvm()
            if driver and kill_after_s is not None and kill_at is None:
                kill_at = time.monotonic() + kill_after_s
            if kill_at is not None and time.monotonic() >= kill_at:
                os.kill(driver, signal.SIGKILL)
                self.kills += 1
                return True
            if any(driver and event.killed == driver for event in self.log.read_run()):
                return True
            self._answer(answer)
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the run neither ended nor crashed within {_RUN_LIMIT_S:g} s; its log "
                    f"ends with:\n{self.log_tail()}"
                )
            time.sleep(_POLL_S)
        return False

    def error(self) -> str | None:
        """Return the error with which the query ended, if it ended."""
        try:
            error: str | None = json.loads(result_path(self.spec).read_text())["error"]
        except FileNotFoundError:
            return None
        return error

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-lines:])

    def end(self) -> None:
        """Kill all that is left of the tree, and wait until it is gone. Python's daemons lead
        process groups, but stay in the session.
        """
        deadline = time.monotonic() + _LIMIT_S
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            assert time.monotonic() < deadline, f"processes {left} outlive SIGKILL"
            time.sleep(_POLL_S)
        self._process.wait(_LIMIT_S)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def processes(self) -> list[int]:
        """All that run, by process id."""
        return _processes_of_session(self._process.pid)

    def executors(self) -> list[int]:
        """The process ids of executors' JVMs, starting ones too."""
        return [pid for pid in self.processes() if _EXECUTOR in _command_line(pid)]

    def kill(self, pid: int) -> None:
        """SIGKILL, if it has not ended meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def ended(self) -> bool:
        """Return whether the query's process has ended by itself."""
        return self._process.poll() is not None

    def wait_for_end(self, limit_s: float) -> None:
        """Raise TimeoutError if the query's process runs for longer than this."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the run did not end within {limit_s:g} s; its log ends with:\n{self.log_tail()}"
            ) from None

    def _driver_jvm(self) -> int:
        try:
            return int(self.spec.path.with_suffix(".jvm").read_text() or 0)
        except FileNotFoundError:
            return 0

    def _answer(self, answer: Callable[[Event], int] | None) -> None:
        for event in self.log.read_run():
            if (
                event.point >= 0
                and self.spec.points[event.point].action in ("ask", "orphan")
                and self.log.asked(event.point)
            ):
                assert answer is not None
                self.kills += answer(event)
                self.log.answer(event.point)


def committed_rows(checkpoint: Path) -> int:
    """Return the number of rows of a topic in micro-batches that Spark has noted as done."""
    done = max(
        (int(entry.name) for entry in checkpoint.glob("commits/*") if entry.name.isdecimal()),
        default=None,
    )
    if done is None:
        return 0
    offsets: dict[str, dict[str, int]] = json.loads(
        (checkpoint / "offsets" / str(done)).read_text().splitlines()[-1]
    )
    return sum(sum(by_partition.values()) for by_partition in offsets.values())


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # gone meanwhile


def _processes_of_session(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # gone meanwhile
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found
