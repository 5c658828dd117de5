"""Start and close of a share consumer."""

from __future__ import annotations

import asyncio

from aioprod.arguments import check_limit_ms
from aioprod.cluster.runtime import ClientLifecycle, ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.lifecycle import CLOSE_TIMEOUT_MS
from aioprod.consumer.problems import Problems
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.run_state import RunState
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.share.fetcher import ShareFetcher
from aioprod.consumer.share.figures import ShareFigures
from aioprod.consumer.share.member import ShareMember
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.requests import ShareRequests
from aioprod.consumer.stall_watch import StallWatch
from aioprod.errors import KafkaError


class ShareLifecycle(ClientLifecycle):
    """Starts and closes a share consumer once.

    Attributes:
        runtime: the connections, metadata and state of the consumer.
    """

    def __init__(
        self,
        runtime: ClientRuntime,
        run_state: RunState,
        guard: CallGuard,
        member: ShareMember,
        fetcher: ShareFetcher,
        requests: ShareRequests,
        converter: RecordConverter,
        problems: Problems,
        reporter: ShareReporter,
        figures: ShareFigures,
        watch: StallWatch,
        scheduler: Scheduler,
    ) -> None:
        self.runtime = runtime
        self._run_state = run_state
        self._guard = guard
        self._member = member
        self._fetcher = fetcher
        self._requests = requests
        self._converter = converter
        self._problems = problems
        self._reporter = reporter
        self._figures = figures
        self._watch = watch
        self._scheduler = scheduler

    async def start(self) -> None:
        """See :meth:`aioprod.ShareConsumer.start`."""
        await self.runtime.start(self)

    async def close(self, timeout_ms: float | None) -> None:
        """See :meth:`aioprod.ShareConsumer.close`."""
        check_limit_ms(timeout_ms)
        self.runtime.check_may_close()
        await self.runtime.close(self, CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms)

    # -- steps -------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Get the metadata of the subscribed topics."""
        self._run_state.begin_start()
        self._reporter.started(self._figures.observed())
        try:
            await self.runtime.metadata.first(sorted(self._member.topics), "default_api_timeout_ms")
        except BaseException:
            self._run_state.stop()
            raise

    def begin(self) -> None:
        """Refresh the metadata; the first call for records joins the group."""
        self._run_state.end_start()
        self.runtime.metadata.start(self._metadata_changed, self._run_state.fail)
        self._metadata_changed(self.runtime.metadata.snapshot)
        self._scheduler.start((self._watch.step,))

    async def finish(self, deadline: float) -> None:
        """End the call of another task, send the last acknowledgements, and leave the group."""
        await self._guard.end_call()
        await asyncio.gather(self._fetcher.close(), self._member.leave())

    def stop(self, error: KafkaError) -> None:
        """Fail the acknowledgements without an outcome."""
        self._fetcher.end(error)

    async def release(self) -> None:
        """End all tasks and requests."""
        self._scheduler.stop()
        await self._member.close()
        self._requests.close()

    def close_plugins(self) -> None:
        """Close deserializers and observers."""
        self._converter.close()
        self._reporter.close()

    def closed(self) -> None:
        """Enter STOPPED."""
        self._run_state.stop()

    def _metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Keep the subscribed topics up to date, and note those that can't be read."""
        metadata = self.runtime.metadata
        for topic in self._member.topics:
            metadata.touch(topic)
            error = snapshot.topic_error(topic)
            if error is None:
                self._problems.over(topic)
                continue
            self._problems.add(topic, error, self.runtime.now())
            metadata.request_topic(topic)
        self._fetcher.metadata_changed()
