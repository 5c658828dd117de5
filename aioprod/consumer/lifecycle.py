"""Start and close of a consumer, and the end of one that was dropped without ``close``."""

from __future__ import annotations

import asyncio

from aioprod.arguments import check_limit_ms
from aioprod.cluster.runtime import ClientLifecycle, ClientRuntime
from aioprod.consumer.background import Background
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.calls.metrics import MetricCalls
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.run_state import RunState

CLOSE_TIMEOUT_MS = 30_000


class Lifecycle(ClientLifecycle):
    """Starts and closes a consumer once.

    Args:
        runtime: the connections, metadata and state of the consumer.
        run_state: has the stage of the consumer.
        guard: the application's calls, which ``close`` ends.
        background: the work to start and end.
        converter: has the user's deserializers and interceptors, which are closed with it.
        reporter: has the observers, which are closed with the consumer.
        metrics: has the metrics for observers.

    Attributes:
        runtime: the connections, metadata and state of the consumer.
    """

    def __init__(
        self,
        runtime: ClientRuntime,
        run_state: RunState,
        guard: CallGuard,
        background: Background,
        converter: RecordConverter,
        reporter: ConsumerReporter,
        metrics: MetricCalls,
    ) -> None:
        self.runtime = runtime
        self._run_state = run_state
        self._guard = guard
        self._background = background
        self._converter = converter
        self._reporter = reporter
        self._metrics = metrics

    async def start(self) -> None:
        """See :meth:`aioprod.Consumer.start`."""
        await self.runtime.start(self)

    async def close(self, timeout_ms: float | None) -> None:
        """See :meth:`aioprod.Consumer.close`."""
        check_limit_ms(timeout_ms)
        self.runtime.check_may_close()
        if self.runtime.closing is not None and self._guard.is_callers:
            return  # a rebalance listener would wait for its own call
        await self.runtime.close(self, CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms)

    def loss(self) -> str:
        """Return what is lost if the consumer is dropped now, for the warning."""
        return self._background.loss()

    # -- steps -------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Get the metadata of the topics that are read."""
        self._run_state.begin_start()
        self._reporter.started(self._metrics.observed())
        try:
            await self._background.connect()
        except BaseException:
            self._run_state.stop()
            raise

    def begin(self) -> None:
        """Start to read."""
        self._run_state.end_start()
        self._background.start()
        self.runtime.connect_ahead()

    async def finish(self, deadline: float) -> None:
        """End the call of another task, commit, and leave the group."""
        await self._guard.end_call()
        async with asyncio.timeout(None) as timeout:
            await self._background.finish(deadline, timeout)

    async def release(self) -> None:
        """End all tasks and requests."""
        await self._background.close()

    def close_plugins(self) -> None:
        """Close deserializers, interceptors and observers."""
        self._converter.close()
        self._reporter.close()

    def closed(self) -> None:
        """Enter STOPPED."""
        self._run_state.stop()
