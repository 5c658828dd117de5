"""Builds the collaborators of a producer, starts and closes them, and cleans up a producer that was
dropped without close.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aioprod.closing import close_in_turn
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.runtime import ClientKind, ClientLifecycle, ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.codecs import Codec
from aioprod.config.plugins import close_plugins
from aioprod.config.producer import ProducerConfig
from aioprod.counts import counted
from aioprod.errors import KafkaError, ProducerClosedError
from aioprod.interceptors import InterceptorChain
from aioprod.logs import Logger, get_logger
from aioprod.metrics import ObservedProducer, ProducerMetrics, ProducerObservers
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.admission import Admission
from aioprod.producer.appender import Appender
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.bulk import BulkIntake
from aioprod.producer.compressor import Compressor
from aioprod.producer.fast_path import FastPath
from aioprod.producer.intake import RecordIntake
from aioprod.producer.partition_choice import PartitionChoice
from aioprod.producer.partition_queue import Topic
from aioprod.producer.reporting import BatchReporter, ConnectionReporter, RequestReporter
from aioprod.producer.responses import ProduceResponseHandler
from aioprod.producer.sender import Sender
from aioprod.producer.sequences import ProducerState
from aioprod.producer.topic_gate import TopicGate
from aioprod.producer.transactions.gate import Transactions, make_transactions
from aioprod.producer.wakeup import SenderWakeup
from aioprod.protocol.record_encoder import encode_headers

if TYPE_CHECKING:
    from aioprod.metrics.telemetry import MetricValue, Selection

log: Logger = get_logger(__name__)

Clock = Callable[[], float]


class ProducerCore(ClientLifecycle):
    """The collaborators of a :class:`aioprod.Producer`. None refers to the Producer, so that it is
    garbage-collected, with a warning, when the application drops it.

    Args:
        config: the producer's settings.
        clock: seconds since 1970.
        rng: source of all random choices.

    Attributes:
        runtime: the connections, metadata and state of the producer.
        fast_topics: topics whose records need not wait.
        fast_path: takes records of bytes that need not wait, nor a serializer, partitioner or
            interceptor.
    """

    metrics: ProducerMetrics
    observers: ProducerObservers
    interceptors: InterceptorChain
    runtime: ClientRuntime
    metadata: Metadata
    producer_state: ProducerState
    pool: BufferPool
    compressor: Compressor
    accumulator: RecordAccumulator
    transactions: Transactions
    sender: Sender
    admission: Admission
    appender: Appender
    gate: TopicGate
    intake: RecordIntake
    fast_path: FastPath
    bulk: BulkIntake

    def __init__(self, config: ProducerConfig, clock: Clock, rng: random.Random) -> None:
        """Make all collaborators, each from earlier ones; docs/architecture.md has a diagram."""
        self.config = config

        # Metrics and observers.
        windows = config.metrics_sample_window_ms, config.metrics_num_samples
        self.metrics = metrics = ProducerMetrics(*windows)
        self.observers = observers = ProducerObservers(config.observers)
        self.interceptors = interceptors = InterceptorChain(config.interceptors)
        events = BatchReporter(config.client_id, metrics, observers, interceptors)
        connections = ConnectionReporter(metrics, observers, self.now)

        # Shared state, and the cluster.
        self.fast_topics: dict[str, Topic] = {}
        wakeup = SenderWakeup()
        self.runtime = runtime = ClientRuntime(
            config,
            rng,
            ClientKind("producer", ProducerClosedError),
            create_topics=True,
            on_change=wakeup.wake,
            on_connection=connections.changed,
            on_fork=self.fast_topics.clear,
            telemetry=self._telemetry(),
        )
        self.metadata = metadata = runtime.metadata
        transactional = config.transactional_id is not None
        self.producer_state = state = ProducerState(config.client_id, transactional=transactional)

        # Batches, from memory to the broker.
        self.pool = pool = BufferPool(config.buffer_memory, config.batch_size, metrics)
        self.compressor = compressor = Compressor(map(Codec.from_name, config.codecs), wakeup.wake)
        self.accumulator = accumulator = RecordAccumulator(
            config, pool, state, compressor, events, rng, wakeup.wake
        )
        self.transactions = transactions = make_transactions(
            config, state, runtime, accumulator, metrics, rng, wakeup.wake
        )
        handler = ProduceResponseHandler(config, accumulator, transactions, metadata, metrics, rng)
        requests = RequestReporter(metrics, observers)
        self.sender = Sender(config, accumulator, transactions, handler, runtime, wakeup, requests)

        # Records, from the call to their batch.
        self.admission = admission = Admission(runtime, accumulator, transactions)
        choice = PartitionChoice(config, accumulator.switch_sticky)
        self.appender = appender = Appender(
            config, accumulator, pool, transactions, admission, choice, wakeup
        )
        self.gate = gate = TopicGate(
            config, self.fast_topics, accumulator.topics, appender, admission, metadata, metrics
        )
        self.intake = intake = RecordIntake(
            config, gate, appender, admission, transactions, interceptors, events, clock
        )
        plain = _is_plain(config) and not interceptors
        topics, check = self.fast_topics if plain else {}, runtime.loop_binding.check
        status = transactions.status if transactional else None
        self.fast_path = FastPath(topics, clock, check, status, encode_headers, intake.take_first)
        self.bulk = BulkIntake(intake, gate, admission, transactions, clock, is_plain=plain)

    # -- life --------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Get the metadata and, with ``transactional_id``, the producer id."""
        if self.observers:
            observed = ObservedProducer(
                self.config.client_id, self.snapshot, self.snapshot_by_topic, self.snapshot_by_node
            )
            self.observers.start(observed)
        await self.metadata.first((), "max_block_ms", "request_timeout_ms")
        await self.transactions.start()

    def begin(self) -> None:
        """Start the tasks of metadata and sender."""
        self.metadata.start(on_update=self._take_over, on_fault=self.transactions.fail)
        self.sender.start()
        self.runtime.connect_ahead()

    async def finish(self, deadline: float) -> None:
        """Deliver the accepted records; abort a transaction that the application has not ended."""
        if asyncio.get_running_loop().time() >= deadline:
            return
        try:
            await self.transactions.end_transaction()
        except KafkaError as error:
            log.warning(
                "%s: transactional_id=%r: closing without ending the transaction; the coordinator "
                "aborts it after transaction_timeout_ms: %s",
                self.config.client_id,
                self.config.transactional_id,
                error,
            )
        if self.accumulator.closed is None:
            await self.accumulator.flush()

    def stop(self, error: KafkaError) -> None:
        """Stop sending; fail every batch without an outcome with ``error``."""
        if self.runtime.loop_binding.loop_closed:
            self.accumulator.fail_pending(error)
            return
        self.transactions.stop()
        self.accumulator.abort(error)

    async def release(self) -> None:
        """End all tasks."""
        await close_in_turn(self.transactions.close, self.sender.close, self.compressor.close)

    def close_plugins(self) -> None:
        """Close serializers, partitioner, interceptors and observers."""
        self.interceptors.close()
        close_plugins(
            (self.config.key_serializer, self.config.value_serializer, self.config.partitioner)
        )
        self.observers.close()

    def loss(self) -> str:
        """Return what is lost by dropping the Producer without close, for the warning."""
        undelivered = self.transactions.lost + self.accumulator.undelivered
        lost = [f"not delivered: {counted(undelivered, 'accepted record')}"] if undelivered else []
        if self.transactions.blocks_readers:
            limit = f"transaction_timeout_ms={self.config.transaction_timeout_ms}"
            lost.append(
                f"its transaction blocks consumers until the coordinator aborts it, after {limit}"
            )
        return ": " + ", and ".join(lost) if lost else ""

    # -- metrics -----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, float]:
        """See :meth:`aioprod.Producer.metrics`."""
        gauges = {
            "buffer-total-bytes": float(self.pool.total),
            "buffer-available-bytes": float(self.pool.available),
            "waiting-threads": float(self.appender.waiting),
            "requests-in-flight": float(self.sender.in_flight),
            "connection-count": float(self.runtime.brokers.connected),
            "metadata-age": self.now() - self.metadata.refreshed_at,
        }
        return self.metrics.snapshot(self.now(), gauges)

    def snapshot_by_topic(self) -> dict[str, dict[str, float]]:
        """See :meth:`aioprod.Producer.metrics_by_topic`."""
        return self.metrics.snapshot_by_topic(self.now())

    def snapshot_by_node(self) -> dict[int, dict[str, float]]:
        """See :meth:`aioprod.Producer.metrics_by_node`."""
        return self.metrics.snapshot_by_node(self.now())

    def _telemetry(self) -> TelemetrySource | None:
        if not self.config.enable_metrics_push:
            return None
        transactional_id = self.config.transactional_id
        labels = {} if transactional_id is None else {"transactional_id": transactional_id}
        return TelemetrySource(lambda: labels, self._pushed)

    def _pushed(self, wanted: Selection) -> Iterable[MetricValue]:
        from aioprod.metrics.telemetry import producer_telemetry  # few brokers ask for metrics

        return producer_telemetry(
            wanted,
            self.snapshot,
            self.snapshot_by_node,
            lambda: self.metrics.each_topic(self.now()),
        )

    def now(self) -> float:
        """Return the event loop's time in seconds; 0 before the start."""
        return self.runtime.now()

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
