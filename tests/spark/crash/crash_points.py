"""Inside Spark's Python workers: sees each step of the protocol, as calls of the writer and as
Kafka requests, and crashes as ordered.

It looks at requests where they leave and where their answers come in, so that it depends on nothing
of how the sink is built.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aioprod.errors import KafkaError
from aioprod.net.connection import Connection
from aioprod.net.pending_requests import ReplyHandler
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message

from .crash_spec import SPEC_VARIABLE, EventLog, Phase, Spec, load_spec

_ASK_LIMIT_S = 180.0


class PlannedFailure(Exception):
    """Raised by a point of the action ``fail``."""


class Watch:
    """Counts the steps of the call that is running, and carries out the points."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._log = EventLog(spec.directory, spec.run)
        self._phase: Phase | None = None
        self._where: dict[str, int] = {}
        self._reached: Counter[str] = Counter()
        self._orphaned = False

    @contextmanager
    def during(
        self, phase: Phase, batch: int, partition: int = -1, attempt: int = 0
    ) -> Iterator[None]:
        """A call of the writer."""
        self._phase = phase
        self._where = {"batch": batch, "partition": partition, "attempt": attempt}
        self._reached.clear()
        try:
            self._log.add(step="begin", phase=phase, **self._where)
            self.reach("begin")
            yield
            self._log.add(
                step="end", phase=phase, requests=self._reached["*:before"], **self._where
            )
            self.reach("end")
        finally:
            self._phase = None

    def reach(self, *steps: str) -> None:
        """Called at each step, by all its names."""
        if self._phase is None:
            return
        if self._orphaned:
            self._log.add(step=f"orphan {steps[0]}", phase=self._phase, **self._where)
        self._reached.update(steps)
        for number, point in enumerate(self._spec.points):
            fits = (
                point.step in steps
                and point.phase == self._phase
                and self._where["batch"] >= point.from_batch
            )
            if (
                not fits
                or self._reached[point.step] != point.nth
                or point.partition not in (None, self._where["partition"])
            ):
                continue
            if self._log.take(number):
                self._act(number)

    def _act(self, number: int) -> None:
        point = self._spec.points[number]
        killed = (
            _java_above(os.getpid())
            if point.action in ("kill", "orphan")
            else os.getpid()
            if point.action == "kill worker"
            else 0
        )
        if point.action == "orphan":
            self._orphaned = True
            # Spark's daemon sends SIGHUP to its workers when the JVM has ended.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._log.add(
            step=point.step, phase=point.phase, point=number, killed=killed, **self._where
        )
        if killed:
            os.kill(killed, signal.SIGKILL)
        if point.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif point.action == "fail":
            raise PlannedFailure(point.name)
        else:
            self._log.wait_for_answer(number, _ASK_LIMIT_S)


def watch() -> Watch:
    """This process's watch over the run that its environment names; the first call makes it see all
    requests.
    """
    global _watch
    if _watch is None:
        _watch = Watch(load_spec(os.environ[SPEC_VARIABLE]))
        _see_requests(_watch)
    return _watch


_watch: Watch | None = None


class _SeenReply:
    """Shows the watch of a reply, before it is handled."""

    def __init__(self, handler: ReplyHandler, reached: Callable[[], None]) -> None:
        self._handler = handler
        self._reached = reached

    def replied(self, reply: Message, now: float) -> None:
        self._reached()
        self._handler.replied(reply, now)

    def failed(self, error: KafkaError) -> None:
        self._handler.failed(error)


def _see_requests(seen_by: Watch) -> None:
    post = Connection.post

    def watched(
        self: Connection,
        buffers: Any,
        request_type: Any,
        version: int,
        correlation_id: int,
        handler: ReplyHandler,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        api = ApiKey(request_type.API_KEY).name
        seen_by.reach(f"{api}:before", "*:before")
        seen = _SeenReply(handler, lambda: seen_by.reach(f"{api}:after", "*:after"))
        post(self, buffers, request_type, version, correlation_id, seen, *args, **kwargs)

    Connection.post = watched  # type: ignore[method-assign]


def _java_above(pid: int) -> int:
    """The nearest Java process among a process's ancestors."""
    while pid > 1:
        # The name is in parentheses and may contain spaces; the parent is the second field after
        # it.
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise AssertionError("no Java process above this one")
