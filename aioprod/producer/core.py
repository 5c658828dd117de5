"""The collaborators of a producer, and its life: start, close, and the end of a producer that was
dropped without close.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from aioprod.arguments import check_limit_ms
from aioprod.cluster.home import Home, bring_forward
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.plugins import close_plugins
from aioprod.config.producer import ProducerConfig
from aioprod.errors import KafkaError, ProducerClosedError
from aioprod.interceptors import InterceptorChain
from aioprod.metrics import ObservedProducer, Observers, ProducerMetrics
from aioprod.net.brokers import Brokers
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.admission import Admission
from aioprod.producer.appender import Appender
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.bulk import BulkIntake
from aioprod.producer.compressor import Compressor
from aioprod.producer.intake import RecordIntake
from aioprod.producer.partition_choice import PartitionChoice
from aioprod.producer.partition_queue import Topic
from aioprod.producer.reporting import BatchReporter, ConnectionReporter
from aioprod.producer.responses import ProduceResponseHandler
from aioprod.producer.sender import Sender
from aioprod.producer.sequences import ProducerState
from aioprod.producer.topic_gate import TopicGate
from aioprod.producer.transactions.gate import make_transactions
from aioprod.producer.wakeup import SenderWakeup

log = logging.getLogger(__name__)

Clock = Callable[[], float]


class ProducerCore:
    """Everything behind a :class:`aioprod.Producer`. Nothing here refers to the Producer, so that
    it is garbage-collected, and noticed, when the application drops it.

    Args:
        config: the producer's settings.
        clock: seconds since 1970.
        rng: source of all random choices.

    Attributes:
        fast_topics: topics whose records may take the fast path of ``send``.
        is_plain: whether no serializer, partitioner or interceptor has to see a record of bytes.
        released: whether it is closed, or closes without a caller.
    """

    released = False
    _loop: asyncio.AbstractEventLoop | None = None
    _closed: asyncio.Future[None] | None = None
    _close_limit: asyncio.Timeout | None = None  # lets a second close shorten the first
    _plugins_closed = False

    def __init__(self, config: ProducerConfig, clock: Clock, rng: random.Random) -> None:
        """Make all collaborators, each from those above it; docs/architecture.md has a diagram."""
        self.config = config
        self._starting = asyncio.Lock()

        # What observes.
        windows = config.metrics_sample_window_ms, config.metrics_num_samples
        self.metrics = metrics = ProducerMetrics(*windows)
        self.observers = observers = Observers(config.observers)
        self.interceptors = interceptors = InterceptorChain(config.interceptors)
        events = BatchReporter(metrics, observers, interceptors)
        links = ConnectionReporter(metrics, observers, self.now)

        # What the others share, and the cluster.
        self.fast_topics: dict[str, Topic] = {}
        self.home = home = Home(f"producer {config.client_id!r}", on_fork=self.fast_topics.clear)
        wakeup = SenderWakeup()
        transactional = config.transactional_id is not None
        self.producer_state = state = ProducerState(transactional=transactional)
        self.brokers = brokers = Brokers(
            config, rng, on_change=wakeup.wake, on_connection=links.changed, on_silence=self._silent
        )
        self.metadata = metadata = Metadata(config, brokers, rng, create_topics=True)

        # Batches, from memory to the broker.
        self.pool = pool = BufferPool(config.buffer_memory, config.batch_size, metrics)
        self.compressor = compressor = Compressor(wakeup.wake)
        self.accumulator = accumulator = RecordAccumulator(
            config, pool, state, compressor, events, rng, wakeup.wake
        )
        self.transactions = transactions = make_transactions(
            config, state, brokers, accumulator, metrics, rng, wakeup.wake
        )
        handler = ProduceResponseHandler(config, accumulator, transactions, metadata, metrics, rng)
        self.sender = Sender(
            config,
            accumulator,
            transactions,
            handler,
            metadata,
            brokers,
            wakeup,
            metrics,
            observers,
        )

        # Records, from the call to their batch.
        self.admission = admission = Admission(home, accumulator, transactions)
        choice = PartitionChoice(config, accumulator.switch_sticky)
        self.appender = appender = Appender(
            config, accumulator, pool, transactions, admission, choice, wakeup
        )
        self.gate = gate = TopicGate(
            config, self.fast_topics, accumulator.topics, appender, admission, metadata, metrics
        )
        self.intake = intake = RecordIntake(
            config, gate, appender, admission, transactions, interceptors, events, metrics, clock
        )
        self.is_plain = plain = _is_plain(config) and not interceptors
        self.bulk = BulkIntake(intake, gate, admission, transactions, clock, is_plain=plain)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See :meth:`aioprod.Producer.start`."""
        self.home.check()
        async with self._starting:
            if self.admission.closing is not None:
                raise self.admission.closing.with_traceback(None)
            if not self.admission.started:
                await self._start()

    async def _start(self) -> None:
        if self._loop is None and self.observers:
            observed = ObservedProducer(
                self.config.client_id, self.snapshot, self.snapshot_by_topic, self.snapshot_by_node
            )
            self.observers.on_start(observed)
        self._loop = asyncio.get_running_loop()
        async with self.home.starting(lambda: self.admission.closing, self.brokers.close):
            self.brokers.open()
            await self.metadata.first((), "max_block_ms", "request_timeout_ms")
            await self.transactions.start()
        self.metadata.start(on_update=self._take_over, on_fault=self.transactions.fail)
        self.sender.start()
        self.admission.open()

    def check_close(self, timeout_ms: float | None) -> None:
        """Check the arguments of :meth:`close` and the event loop. If the producer's event loop is
        closed, there is nothing to wait for, and every other one will do.
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
        reason = self.admission.close(ProducerClosedError("the producer is closed"))
        if self.home.is_gone:
            self.accumulator.fail_pending(reason)
            self._close_plugins()
            self.released = True
            self.home.leave()
            closed.set_result(None)
            return
        self.home.end_start()
        try:
            if self.admission.started and limit > 0:
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
            # Nothing stays open, also if the caller is cancelled now.
            self.released = True
            release = loop.create_task(self._release(), name="aioprod-close")
            release.add_done_callback(lambda _: closed.set_result(None))
            await asyncio.shield(release)

    async def _finish(self) -> None:
        """Deliver what was sent; abort a transaction that the application has not ended."""
        try:
            await self.transactions.settle()
        except KafkaError as error:
            log.warning(
                "transactional_id=%r: closing without ending the transaction; the coordinator "
                "aborts it after transaction_timeout_ms: %s",
                self.config.transactional_id,
                error,
            )
        if self.accumulator.closed is None:
            await self.accumulator.flush()

    def _stop(self, error: KafkaError) -> None:
        """Stop sending; fail every batch without an outcome with ``error``."""
        self.transactions.stop()
        self.accumulator.abort(error)

    async def _release(self) -> None:
        await self.transactions.close()
        await self.sender.close()
        await self.compressor.close()
        await self.metadata.close()
        await self.brokers.close()
        self._close_plugins()
        self.home.leave()

    def _close_plugins(self) -> None:
        if self._plugins_closed:
            return
        self._plugins_closed = True
        self.interceptors.close()
        close_plugins(
            (self.config.key_serializer, self.config.value_serializer, self.config.partitioner)
        )
        self.observers.close()

    # -- dropped without close ---------------------------------------------------------------------

    def loss(self) -> str:
        """Return what is lost by dropping the Producer without close, for the warning."""
        undelivered = self.transactions.lost + self.accumulator.undelivered
        if self.home.is_gone:
            self.accumulator.fail_pending(
                ProducerClosedError("the producer was dropped without close()")
            )
            self._close_plugins()
        lost = [f"{undelivered} accepted records are not delivered"] if undelivered else []
        if self.transactions.holds_up_readers:
            limit = f"transaction_timeout_ms={self.config.transaction_timeout_ms}"
            lost.append(
                f"its transaction holds up readers until the coordinator aborts it, after {limit}"
            )
        return ": " + ", and ".join(lost) if lost else ""

    def abandon(self) -> Coroutine[Any, Any, None]:
        """Stop at once; return a coroutine that closes all connections."""
        self._stop(
            self.admission.close(ProducerClosedError("the producer was dropped without close()"))
        )
        self._close_plugins()  # the event loop may end before the rest is done
        return self._release()

    # -- figures -----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, float]:
        """See :meth:`aioprod.Producer.metrics`."""
        gauges = {
            "buffer-total-bytes": float(self.pool.total),
            "buffer-available-bytes": float(self.pool.available),
            "waiting-threads": float(self.appender.waiting),
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

    def _silent(self) -> None:
        self.metadata.broker_silent()

    def _take_over(self, snapshot: ClusterSnapshot) -> None:
        self.accumulator.update(snapshot)
        self.gate.update()
        self.sender.leaders_changed()


def _is_plain(config: ProducerConfig) -> bool:
    serializers = config.key_serializer, config.value_serializer
    return (
        serializers == (None, None)
        and config.partitioner is None
        and not config.partitioner_ignore_keys
    )
