"""The parts of a producer, put together, and its life: start, close, and the end of one that was
forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from aioprod.arguments import check_limit_ms
from aioprod.cluster.coordinators import Coordinators
from aioprod.cluster.home import Home, bring_forward
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.plugins import close_plugins
from aioprod.config.producer import ProducerConfig
from aioprod.errors import (
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionStateError,
)
from aioprod.interceptors import InterceptorChain
from aioprod.metrics import ObservedProducer, Observers, ProducerMetrics
from aioprod.net.brokers import Brokers
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import BatchState
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.bulk import BulkIntake
from aioprod.producer.compressor import Compressor
from aioprod.producer.intake import RecordIntake
from aioprod.producer.reporting import BatchReporter
from aioprod.producer.sender import Sender
from aioprod.producer.sequences import ProducerState
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.types import TopicPartition

log = logging.getLogger(__name__)


class ProducerCore:
    """What tasks and callbacks refer to. None of it refers to the :class:`aioprod.Producer`: that
    is how one that is dropped is noticed.

    Args:
        config: the producer's settings.
        clock: seconds since 1970.
        rng: source of all random choices.

    Attributes:
        started: whether ``start`` has succeeded.
        closing: why nothing is taken any more; None before ``close``.
        lost: records that were accepted and not delivered, because the producer broke.
        released: whether it is closed, or on its way to it, which needs no caller any more.
        is_plain: whether a record of bytes needs no other code: no serializer, partitioner or
            interceptor is there.
    """

    def __init__(
        self, config: ProducerConfig, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.config = config
        self.home = Home(f"producer {config.client_id!r}")
        self.metrics = ProducerMetrics(config.metrics_sample_window_ms, config.metrics_num_samples)
        self.observers = Observers(config.observers)
        self.interceptors = InterceptorChain(config.interceptors)
        self.pool = BufferPool(config.buffer_memory, config.batch_size)
        self.pool.on_waited = lambda seconds: self.metrics.buffer_waited(seconds, self.now())
        self.pool.on_exhausted = lambda: self.metrics.buffer_exhausted(self.now())
        state = ProducerState()
        self.brokers = Brokers(
            config,
            rng,
            on_change=lambda: self._wake(0.0),
            on_connection=self._connection_changed,
            on_silence=lambda: self.metadata.broker_silent(),
        )
        self.metadata = Metadata(config, self.brokers, rng, create_topics=True)
        self.accumulator = RecordAccumulator(config, self.pool, state, rng, self._wake)
        self.transactions = (
            self._transaction_manager(state, rng) if config.transactional_id is not None else None
        )
        self.compressor = Compressor(lambda: self._wake(0.0))
        self.accumulator.is_compressed = self.compressor.is_ready
        self.sender = Sender(
            config,
            self.accumulator,
            self.metadata,
            self.brokers,
            state,
            rng,
            self.metrics,
            self.observers,
            self.transactions,
        )
        self.sender.on_fatal = self._fatal
        self.intake = RecordIntake(
            config,
            self.metadata,
            self.accumulator,
            self.interceptors,
            self.metrics,
            clock=clock,
            check_open=self.check_open,
            transaction=self._transaction,
            wake=self.sender.wake,
            on_refused=self._refused,
        )
        self.is_plain = _is_plain(config) and not self.interceptors
        self.bulk = BulkIntake(
            self.intake, is_plain=self.is_plain, may_append=self._may_append, clock=clock
        )
        self.accumulator.keep_records = self.interceptors.wants_records
        reporter = BatchReporter(self.metrics, self.observers, self.interceptors)
        self.accumulator.on_end = reporter.ended
        self.accumulator.on_dropped = reporter.dropped
        self.home.on_fork = self.intake.gate.fast.clear  # the fast path of send asks only there
        self.started = False
        self.closing: KafkaError | None = None
        self.lost = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        self._close_limit: asyncio.Timeout | None = (
            None  # of the close under way, for another one to shorten it
        )
        self._closed: asyncio.Future[None] | None = None
        self.released = False
        self._parts_closed = False

    def _transaction_manager(self, state: ProducerState, rng: random.Random) -> TransactionManager:
        transactions = TransactionManager(
            self.config,
            state,
            Coordinators(self.config, self.brokers, rng),
            rng,
            wake=lambda: self._wake(0.0),
            drop_unsent=self._drop_unsent,
            wait_for_sent=self.accumulator.flush,
            on_fatal=self._fatal,
        )
        self.accumulator.on_open = self._batch_opened
        self.accumulator.may_drain = transactions.may_send
        return transactions

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See :meth:`aioprod.Producer.start`."""
        self.home.check()
        async with self._starting:
            if self.closing is not None:
                raise self.closing.with_traceback(None)
            if not self.started:
                await self._start()

    async def _start(self) -> None:
        if self._loop is None and self.observers:
            observed = ObservedProducer(
                self.config.client_id, self.snapshot, self.snapshot_by_topic, self.snapshot_by_node
            )
            self.observers.on_start(observed)
        self._loop = asyncio.get_running_loop()
        async with self.home.starting(lambda: self.closing, self.brokers.close):
            self.brokers.open()
            await self.metadata.first((), "max_block_ms", "request_timeout_ms")
            await self._take_identity()
        self.metadata.on_update = self._take_over
        self.metadata.on_fault = self._fatal
        self.metadata.start()
        self.sender.start()
        self.started = True

    async def _take_identity(self) -> None:
        """Fence off an older producer with the same transactional id, and have its open transaction
        aborted.
        """
        if self.transactions is None:
            return
        begun = self.now()
        try:
            await self.transactions.start()
        finally:
            self.metrics.transaction_step("init", self.now() - begun)

    def check_close(self, timeout_ms: float | None) -> None:
        """Whether :meth:`close` may be called so, here. Where the event loop is closed there is
        nothing to wait for, so any will do.
        """
        check_limit_ms(timeout_ms)
        if not self.home.is_gone:
            self.home.check()

    async def close(self, timeout_ms: float | None) -> None:
        """See :meth:`aioprod.Producer.close`; :meth:`check_close` comes first."""
        limit = self.config.delivery_timeout_ms if timeout_ms is None else timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit / 1000
        if self._closed is not None and not self.home.is_gone:
            bring_forward(self._close_limit, deadline)
            await asyncio.shield(self._closed)
            return
        closed = self._closed = loop.create_future()
        self.closing = self.closing or ProducerClosedError("the producer is closed")
        if self.home.is_gone:
            self._fail_pending(self.closing)
            self._close_parts()
            self.released = True
            self.home.leave()
            closed.set_result(None)
            return
        self.home.end_start()
        try:
            if self.started and limit > 0:
                async with asyncio.timeout_at(deadline) as self._close_limit:
                    await self._finish()
        except TimeoutError:
            pass
        finally:
            self._close_limit = None
            self._stop(
                ProducerClosedError(
                    f"not delivered before the producer closed (close timeout {limit:.0f} ms)"
                )
            )
            # Whatever happens to the caller now: nothing is left open.
            self.released = True
            release = loop.create_task(self._release(), name="aioprod-close")
            release.add_done_callback(lambda _: closed.set_result(None))
            await asyncio.shield(release)

    async def _finish(self) -> None:
        """Bring what was sent to its end; a transaction that nobody ends is aborted."""
        if self.transactions is not None:
            try:
                await self.transactions.settle()
            except KafkaError as error:
                log.warning(
                    "transactional_id=%r is left to the coordinator to abort: %s",
                    self.config.transactional_id,
                    error,
                )
        if self.accumulator.closed is None:
            await self.accumulator.flush()

    def _stop(self, error: KafkaError) -> None:
        """Send nothing any more; what has no outcome fails with ``error``."""
        if self.transactions is not None:
            self.transactions.stop()
        self.accumulator.abort(error)
        self.intake.appender.wake_all()

    async def _release(self) -> None:
        if self.transactions is not None:
            await self.transactions.close()
        await self.sender.close()
        await self.compressor.close()
        await self.metadata.close()
        await self.brokers.close()
        self._close_parts()
        self.home.leave()

    def _close_parts(self) -> None:
        if self._parts_closed:
            return
        self._parts_closed = True
        self.interceptors.close()
        close_plugins(
            (self.config.key_serializer, self.config.value_serializer, self.config.partitioner)
        )
        self.observers.close()

    # -- forgotten ---------------------------------------------------------------------------------

    def loss(self) -> str:
        """What is lost now that the Producer is dropped without close, for its warning; empty where
        nothing is.
        """
        undelivered = self.lost + self._undelivered()
        if self.home.is_gone:
            self._fail_pending(ProducerClosedError("the producer was dropped without close()"))
            self._close_parts()
        lost = (
            [f"{undelivered} records that it has accepted are not delivered"] if undelivered else []
        )
        transactions = self.transactions
        if (
            transactions is not None
            and transactions.holds_up_readers
            and not isinstance(transactions.error, ProducerFencedError)
        ):
            limit = f"transaction_timeout_ms={self.config.transaction_timeout_ms}"
            lost.append(
                f"its transaction holds up readers until the coordinator aborts it, after {limit}"
            )
        return ": " + ", and ".join(lost) if lost else ""

    def abandon(self) -> Coroutine[Any, Any, None]:
        """End it at once; what is returned closes all connections."""
        self.closing = self.closing or ProducerClosedError(
            "the producer was dropped without close()"
        )
        self._stop(self.closing)
        self._close_parts()  # the event loop may end before the rest is done
        return self._release()

    def _fail_pending(self, error: KafkaError) -> None:
        """The event loop is closed: nothing can be awaited any more, but outcomes can be
        looked at.
        """
        for batch in list(self.accumulator.incomplete):
            if batch.state is BatchState.PENDING:
                batch.fail(error, BatchState.ABORTED)
        self.accumulator.incomplete.clear()

    # -- figures -----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, float]:
        """See :meth:`aioprod.Producer.metrics`."""
        gauges = {
            "buffer-total-bytes": float(self.pool.total),
            "buffer-available-bytes": float(self.pool.available),
            "waiting-threads": float(self.intake.appender.waiting),
            "requests-in-flight": float(self.sender.in_flight),
            "connection-count": float(self.brokers.connected),
            "metadata-age": self.now() - self.metadata.refreshed_at,
        }
        return self.metrics.snapshot(self.now(), gauges)

    def snapshot_by_topic(self) -> dict[str, dict[str, float]]:
        """See :meth:`aioprod.Producer.metrics_by_topic`."""
        return self.metrics.snapshot_by_topic(self.now())

    def snapshot_by_node(self) -> dict[int, dict[str, float]]:
        """See :meth:`aioprod.Producer.metrics_by_node`."""
        return self.metrics.snapshot_by_node(self.now())

    def now(self) -> float:
        """Seconds of the event loop's clock; 0 before the start."""
        return self._loop.time() if self._loop is not None else 0.0

    # -- checks ------------------------------------------------------------------------------------

    def check_running(self) -> None:
        """Raise unless the producer is started and open, and this is its event loop."""
        self.home.check()
        error = self.closing or self.accumulator.closed
        if error is None and not self.started:
            error = ProducerClosedError(
                "the producer is not started: use 'async with Producer(...)' or await start()"
            )
        if error is not None:
            raise error.with_traceback(None)

    def check_open(self, transaction: int | None) -> None:
        """Raise unless a record may be taken now, in the transaction of this number."""
        self.check_running()
        if self.transactions is not None:
            self.transactions.check_may_send()
            if transaction != self.transactions.number:
                raise TransactionStateError(
                    "send() waited until its transaction had ended: await all sends before "
                    "commit or abort"
                )

    def _transaction(self) -> int | None:
        return None if self.transactions is None else self.transactions.number

    def _may_append(self, transaction: int | None) -> bool:
        if self.transactions is None:
            return self.closing is None
        is_same = transaction == self.transactions.number
        return self.closing is None and self.transactions.may_append and is_same

    # -- links between the parts -------------------------------------------------------------------

    def _refused(self, tp: TopicPartition, error: KafkaError) -> None:
        if self.transactions is not None:
            self.transactions.batch_failed(tp, error)

    def _fatal(self, error: KafkaError) -> None:
        # First, or a commit under way would take the end of its batches for success.
        if self.transactions is not None:
            self.transactions.fail(error)  # which says so; nothing of the transaction will be seen
        elif undelivered := self._undelivered():
            self.lost += undelivered
            log.error(
                "%s: %d records that it has accepted are not delivered: %s",
                self.home.client,
                undelivered,
                error,
            )
        self.accumulator.abort(error)
        self.intake.appender.wake_all()

    def _undelivered(self) -> int:
        return sum(batch.count for batch in list(self.accumulator.incomplete))

    def _connection_changed(
        self, node_id: int, address: str, opened: bool, error: KafkaError | None
    ) -> None:
        if opened:
            self.metrics.connection_opened(self.now())
        else:
            self.metrics.connection_closed(self.now())
        self.observers.on_connection(node_id, address, opened, error)

    def _take_over(self, snapshot: ClusterSnapshot) -> None:
        self.accumulator.update(snapshot)
        self.intake.gate.update()
        self.sender.leaders_changed()

    def _wake(self, at: float) -> None:
        self.sender.wake(at)

    def _batch_opened(self, tp: TopicPartition) -> None:
        assert self.transactions is not None
        self.sender.handler.giving_up = None
        self.transactions.partition_used(tp)

    def _drop_unsent(self, error: KafkaError) -> None:
        self.sender.handler.giving_up = error
        self.accumulator.drop_unsent(error)


def _is_plain(config: ProducerConfig) -> bool:
    serializers = config.key_serializer, config.value_serializer
    return (
        serializers == (None, None)
        and config.partitioner is None
        and not config.partitioner_ignore_keys
    )
