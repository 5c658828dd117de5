"""Start and stop, signals, lifespans of applications, and probes of all processors."""

from __future__ import annotations

import asyncio
import signal
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aioprod import ConfigError, ConsumerState, ConsumerStatus, Deserializer, TopicPartition
from aioprod.arguments import check_listed_topics
from aioprod.background import Background
from aioprod.config.checks import check_serializer
from aioprod.misuse import names_cures
from aioprod.probes import Probed
from aioprod.processing.base_runner import BaseRunner, Stage
from aioprod.processing.config import CommonConfig
from aioprod.processing.health import ProcessorState, ProcessorStatus, probed
from aioprod.processing.observers import ObservedProcessor, ProcessorMetrics
from aioprod.processing.scheduling import OrderedScheduler
from aioprod.processing.workers import Workers
from aioprod.running_loop import running_loop

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STATUS = {
    Stage.NEW: ProcessorStatus.NEW,
    Stage.STARTING: ProcessorStatus.STARTING,
    Stage.RUNNING: ProcessorStatus.RUNNING,
    Stage.STOPPING: ProcessorStatus.STOPPING,
    Stage.STOPPED: ProcessorStatus.STOPPED,
}


_TROUBLE = {
    ConsumerStatus.FAILING: ProcessorStatus.FAILING,
    ConsumerStatus.STALLED: ProcessorStatus.STALLED,
}


@names_cures(shown="Processor")
class ProcessorLife(Background):
    """The base of all processors. A subclass creates the parts, and calls :meth:`_connect`."""

    config: CommonConfig
    _runner: BaseRunner

    def _connect(
        self,
        client_id: str,
        scheduler: OrderedScheduler,
        metrics: ProcessorMetrics,
        workers: Workers,
    ) -> None:
        self._client_id = client_id
        self._scheduler = scheduler
        self._metrics = metrics
        self._workers = workers
        self._signal: int | None = None
        self._caller: asyncio.Task[Any] | None = None  # the task of run()
        self._start_interrupted = False

    # -- life --------------------------------------------------------------------------------------

    async def run(self, *, handle_signals: bool = True) -> None:
        """Process records until SIGTERM, SIGINT, :meth:`stop`, a cancellation or an error.

        The first signal or cancellation stops it as :meth:`stop` does. A second one ends it
        immediately, without waiting for handlers; a signal then raises SystemExit.

        Args:
            handle_signals: whether SIGTERM and SIGINT stop it. If False, or if the event loop does
                not support signals, cancel the task instead.

        Raises:
            ProcessingError: if a record can be neither processed nor forwarded.
            KafkaError: if it can't start, or its clients can't continue.
        """
        running_loop()
        if not handle_signals:
            await self._run()
            return
        self._caller = asyncio.current_task()
        try:
            with _handled_signals(self._on_signal):
                await self._run()
        except asyncio.CancelledError:
            if not self._start_interrupted:
                raise
        if self._signal is not None:
            raise SystemExit(128 + self._signal)

    async def start(self) -> None:
        """Connect, join the group, and process records in the background.

        Raises:
            KafkaError: as in ``start`` of :class:`aioprod.Producer` and :class:`aioprod.Consumer`.
            ConfigError: if it was started before; create a new one.
        """
        if self._runner.stage is not Stage.NEW:
            raise ConfigError("start: a processor can be started only once; create a new one")
        running_loop()
        self._metrics.started(
            ObservedProcessor(
                self._client_id, self.config.group_id, self.metrics, self.metrics_by_partition
            )
        )
        await self._runner.start()

    async def stop(self) -> None:
        """Read no further records, wait for running handlers up to ``drain_timeout_ms``, commit,
        and leave the group. If this call is cancelled, end immediately.

        Raises:
            ProcessingError, KafkaError: the error that stopped the processor.
        """
        self._runner.stop()
        await self._ended()

    async def _run(self) -> None:
        await self.start()
        await self._ended()

    async def _ended(self) -> None:
        """Wait for the end. A cancellation stops the runner; a second one ends it immediately."""
        task = self._runner.task
        if task is None:
            return
        stopping = self._runner.stage is not Stage.RUNNING
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if not stopping:
                self._runner.stop()
                try:
                    await asyncio.wait([task])
                    raise
                except asyncio.CancelledError:
                    if task.done():
                        raise
            task.cancel()
            await asyncio.wait([task])
            raise
        if self._runner.stage is not Stage.STOPPED:  # the task was cancelled before it began
            await self._runner.end(0)
        if self._runner.failure is not None:
            raise self._runner.failure

    def _on_signal(self, number: int) -> None:
        if self._runner.stage is Stage.STARTING and self._caller is not None:
            self._start_interrupted = True
            self._caller.cancel()
        elif self._runner.stage is Stage.RUNNING:
            self._runner.stop()
        elif self._runner.task is not None:
            self._signal = number
            self._runner.task.cancel()

    # -- state -------------------------------------------------------------------------------------

    @property
    def state(self) -> ProcessorState:
        """The current state, for health checks. Any task may read it."""
        runner = self._runner
        status, error = _STATUS[runner.stage], runner.failure
        if runner.stage is Stage.NEW:
            return ProcessorState(status, ready=False, healthy=True)
        if runner.stage is Stage.STOPPED or error is not None:
            return ProcessorState(status, ready=False, healthy=False, error=error)
        if runner.stage is not Stage.RUNNING:
            return ProcessorState(status, ready=False, healthy=True)
        limit_s = self.config.unhealthy_after_ms / 1000
        polls = asyncio.get_running_loop().time() - runner.last_poll <= limit_s
        return self._running_state(polls, limit_s)

    @abstractmethod
    def _running_state(self, polls: bool, limit_s: float) -> ProcessorState:
        """Return the state of a processor that reads records.

        Args:
            polls: whether the last poll was in time.
            limit_s: how long a problem may last until the processor is not healthy.
        """

    def _reading_state(
        self, reading: ConsumerState, joined: bool, polls: bool, limit_s: float
    ) -> ProcessorState:
        """Return the state according to the consumer's state."""
        trouble = _TROUBLE.get(reading.status)
        if trouble is not None:
            healthy = polls and self._metrics.clock() - reading.since <= limit_s
            # One partition may be stalled while the others are read.
            ready = trouble is ProcessorStatus.STALLED and healthy and joined
            return ProcessorState(trouble, ready, healthy, reading.error)
        if not joined:
            return ProcessorState(ProcessorStatus.STARTING, ready=False, healthy=polls)
        return ProcessorState(ProcessorStatus.RUNNING, ready=polls, healthy=polls)

    @property
    def ready(self) -> bool:
        """True if it processes records: started, in its group, not failing, and healthy."""
        return self.state.ready

    @property
    def healthy(self) -> bool:
        """True if a restart is not needed: it has not ended, it polls, and for
        ``unhealthy_after_ms`` its consumer has not failed and no partition was stalled, such as by
        a handler that hangs.
        """
        return self.state.healthy

    def _probed(self) -> Probed:
        """Return what probes report."""
        return probed(self.state)

    # -- metrics -----------------------------------------------------------------------------------

    @abstractmethod
    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, and current gauges; see docs/processing.md."""

    @abstractmethod
    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return the metrics of each partition."""

    def _common_metrics(self) -> dict[str, float]:
        return {
            **self._metrics.snapshot(),
            "records-in-flight": self._workers.in_flight,
            "records-queued": self._scheduler.queued,
            "keys-in-flight": len(self.in_flight_by_key()),
            "longest-call-seconds": self._workers.longest_call_s(),
        }

    def in_flight_by_key(self) -> Mapping[tuple[TopicPartition, bytes | None], int]:
        """Return the number of records in handlers, by partition and key (bytes)."""
        return Counter(
            (TopicPartition(record.topic, record.partition), record.key)
            for record in self._workers.in_flight_records()
        )


def check_handler(handler: object) -> None:
    """Raise ConfigError unless a handler can be called."""
    if not callable(handler):
        raise ConfigError(f"handler={handler!r}: must be a coroutine function")


def checked_deserializers(
    key: object, value: object
) -> tuple[Deserializer | None, Deserializer | None]:
    """Return a processor's deserializers. Raise ConfigError if one is invalid."""
    return (
        check_serializer("key_deserializer", key),
        check_serializer("value_deserializer", value),
    )


def checked_topics(topics: tuple[str, ...], config: CommonConfig) -> list[str]:
    """Return the topics to read. Raise ConfigError without topics, or if one is also written to."""
    if not topics:
        raise ConfigError("no topics: name at least one after the handler")
    named = check_listed_topics(topics)
    for other in config.topics_of_failed_records:
        if other in named:
            raise ConfigError(
                f"topic {other!r} is read, and failed records are sent to it: a failing record "
                "would be processed forever"
            )
    return named


@contextmanager
def _handled_signals(callback: Callable[[int], None]) -> Iterator[None]:
    """Call ``callback`` with the number of each SIGTERM and SIGINT, instead of their handlers.

    Without support for signals (on Windows, and outside the main thread) the handlers stay.
    """
    loop = asyncio.get_running_loop()
    before = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, callback, number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue
        before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
