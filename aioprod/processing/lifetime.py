"""What all processors have in common: start, stop, signals, lifespans of applications, probes."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from aioprod import ConfigError, ConsumerState, ConsumerStatus, TopicPartition
from aioprod.arguments import check_topics
from aioprod.processing.base_runner import BaseRunner, Stage
from aioprod.processing.config import CommonConfig
from aioprod.processing.health import AsgiApp, ProcessorState, ProcessorStatus, answer, asgi_app
from aioprod.processing.observers import ObservedProcessor, ProcessorMetrics
from aioprod.processing.scheduling import OrderedScheduler
from aioprod.processing.workers import Workers
from aioprod.public_module import Uncopyable
from aioprod.running_loop import running_loop

if TYPE_CHECKING:
    from aiohttp import web

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


class ProcessorLife(Uncopyable, ABC):
    """The life of a processor. A subclass makes the collaborators, and calls :meth:`_connect`."""

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
        self._caller: asyncio.Task[Any] | None = None  # of run()
        self._start_interrupted = False

    # -- life --------------------------------------------------------------------------------------

    async def run(self, *, handle_signals: bool = True) -> None:
        """Process records until SIGTERM, SIGINT, :meth:`stop`, a cancellation or an error.

        The first signal or cancellation stops it as :meth:`stop` does. A second one ends it at
        once, without waiting for handlers; a signal then raises SystemExit.

        Args:
            handle_signals: whether signals stop it. If False, or if the event loop does not
                support signals, cancel the task.

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
            raise ConfigError("start: a processor starts once; make a new one")
        running_loop()
        self._metrics.started(
            ObservedProcessor(
                self._client_id, self.config.group_id, self.metrics, self.metrics_by_partition
            )
        )
        await self._runner.start()

    async def stop(self) -> None:
        """Take no further records, let running handlers end within ``drain_timeout_ms``, commit,
        and leave the group. If this is cancelled, end at once.

        Raises:
            ProcessingError, KafkaError: the error that ended the processor.
        """
        self._runner.stop()
        await self._ended()

    async def __aenter__(self) -> Self:
        """Start, as :meth:`start` does."""
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Stop, as :meth:`stop` does. The error of the block is raised before that of the
        processor.
        """
        try:
            await self.stop()
        except Exception:
            if error is None:
                raise

    @asynccontextmanager
    async def _in_background(self, app: object) -> AsyncIterator[None]:
        async with self:
            yield

    @property
    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The lifespan of a FastAPI or Starlette application: ``FastAPI(lifespan=p.lifespan)``."""
        return self._in_background

    async def cleanup_ctx(self, app: object) -> AsyncIterator[None]:
        """Run with an aiohttp application: ``app.cleanup_ctx.append(p.cleanup_ctx)``."""
        async with self:
            yield

    async def _run(self) -> None:
        await self.start()
        await self._ended()

    async def _ended(self) -> None:
        """Wait for the end; a cancellation stops first, and a second one ends at once."""
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
        """Return the state while records are read.

        Args:
            polls: whether the last poll was in time.
            limit_s: how long a trouble may last until the processor is not healthy.
        """

    def _reading_state(
        self, reading: ConsumerState, joined: bool, polls: bool, limit_s: float
    ) -> ProcessorState:
        """Return the state that follows from that of the consumer."""
        trouble = _TROUBLE.get(reading.status)
        if trouble is not None:
            healthy = polls and self._metrics.clock() - reading.since <= limit_s
            # One partition may stall while all others are read.
            ready = trouble is ProcessorStatus.STALLED and healthy and joined
            return ProcessorState(trouble, ready, healthy, reading.error)
        if not joined:
            return ProcessorState(ProcessorStatus.STARTING, ready=False, healthy=polls)
        return ProcessorState(ProcessorStatus.RUNNING, ready=polls, healthy=polls)

    @property
    def ready(self) -> bool:
        """True if it handles records: started, a member of its group, not failing, and healthy."""
        return self.state.ready

    @property
    def healthy(self) -> bool:
        """Whether a restart would not help: it has not ended, polls, and for ``unhealthy_after_ms``
        its consumer has not failed and no partition was stalled, such as by a handler that hangs.
        """
        return self.state.healthy

    @property
    def health_app(self) -> AsgiApp:
        """An ASGI application for probes, such as ``app.mount("/kafka", p.health_app)``.

        It answers 200 or 503, and the state as JSON: paths that end with ``/ready`` by ``ready``,
        all others by ``healthy``.
        """
        return asgi_app(lambda: self.state)

    async def aiohttp_health(self, request: web.Request) -> web.Response:
        """Answer probes in an aiohttp application, as :attr:`health_app` does:
        ``app.router.add_get("/kafka/{probe}", p.aiohttp_health)``.
        """
        from aiohttp import web

        status, body = answer(request.path, self.state)
        headers = {"cache-control": "no-store"}
        return web.Response(
            status=status, body=body, content_type="application/json", headers=headers
        )

    # -- metrics -----------------------------------------------------------------------------------

    @abstractmethod
    def metrics(self) -> Mapping[str, float]:
        """Return counts since the start, and present gauges; see docs/processing.md."""

    @abstractmethod
    def metrics_by_partition(self) -> Mapping[TopicPartition, Mapping[str, float]]:
        """Return metrics of each partition."""

    def _common_metrics(self) -> dict[str, float]:
        return {
            **self._metrics.snapshot(),
            "records-in-flight": self._workers.in_flight,
            "records-queued": self._scheduler.queued,
            "keys-in-flight": len(self.in_flight_by_key()),
            "longest-call-seconds": self._workers.longest_call_s(),
        }

    def in_flight_by_key(self) -> Mapping[tuple[TopicPartition, bytes | None], int]:
        """Return the number of records in handlers, by partition and stored key."""
        return Counter(
            (TopicPartition(record.topic, record.partition), record.key)
            for record in self._workers.in_flight_records()
        )


def check_handler(handler: object) -> None:
    """Check that a handler can be called. ConfigError: if not."""
    if not callable(handler):
        raise ConfigError(f"handler={handler!r}: must be a coroutine function")


def checked_topics(topics: tuple[str, ...], config: CommonConfig) -> list[str]:
    """Return the topics to read. ConfigError: if there are none, or one gets failed records."""
    if not topics:
        raise ConfigError("no topics: name at least one after the handler")
    named = check_topics(topics)
    for other in config.topics_of_failed_records:
        if other in named:
            raise ConfigError(
                f"topic {other!r} is a topic to read, and gets failed records, too: a record would "
                "go round for ever"
            )
    return named


@contextmanager
def _handled_signals(callback: Callable[[int], None]) -> Iterator[None]:
    """Call ``callback`` with the number of each SIGTERM and SIGINT, instead of what they did.

    Event loops without signals (on Windows, and outside the main thread) keep what they do.
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
