"""The one task that moves batches: ready, connect, drain, one request per node, and what its answer means.

All decisions are synchronous functions over (state, now); the task only waits, for work, for an answer or for a moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable

from aioprod.cluster.metadata import Metadata
from aioprod.config import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    ProtocolError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.producer.accumulator import NEVER, RecordAccumulator
from aioprod.producer.batch import BatchState, Identity, ProducerBatch
from aioprod.producer.outcomes import Outcome, judge
from aioprod.producer.sequences import ProducerState
from aioprod.protocol.compression import Codec
from aioprod.protocol.message import Message
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from aioprod.protocol.produce_encoder import encode_produce_request

log = logging.getLogger(__name__)

_NO_ID = uuid.UUID(int=0)
# From version 13 on a produce request names topics by their id (KIP-516).
_LAST_VERSION_BY_NAME = 12
# Without acknowledgements only the socket says when it is enough.
_MAX_UNSENT_BYTES = 1024 * 1024


class Sender:
    """Sends what the accumulator holds.

    Args:
        config: the producer's settings.
        accumulator, metadata, brokers: what it works on.
        producer: the identity for idempotence.
        rng: jitter.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        brokers: Brokers,
        producer: ProducerState,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._metadata = metadata
        self._brokers = brokers
        self._producer = producer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._codec = Codec.from_name(config.compression_type)
        self._in_flight: dict[int, int] = {}
        self._throttled_until: dict[int, float] = {}
        self._asking_identity: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._last_error: KafkaError | None = None
        self._wake_at = NEVER
        self._alarm: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.on_fatal: Callable[[KafkaError], None] = accumulator.abort

    # -- the task ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aioprod-sender")
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End the task; what has no outcome keeps none, so abort the accumulator first or after."""
        tasks = [task for task in (self._task, self._asking_identity, self._draining) if task is not None]
        for task in tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        if self._alarm is not None:
            self._alarm.cancel()

    def wake(self, at: float = 0.0) -> None:
        """Look again at loop time ``at``, or sooner."""
        if at >= self._wake_at:
            return
        self._wake_at = at
        if self._waiting is None:
            return  # the task runs, and will see it before it sleeps
        loop = asyncio.get_running_loop()
        if at <= loop.time():
            self._ring()
        else:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Cancelled from outside, or a fault of ours: whoever waits must hear of it, and later sends too.
        reason = "was cancelled from outside" if task.cancelled() else f"failed: {task.exception()!r}"
        if not task.cancelled():
            log.error("the sender task failed; the producer can't go on", exc_info=task.exception())
        self.on_fatal(KafkaError(f"the producer's sender task {reason}; close it and make a new one"))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake_at = NEVER
            look_again_at = self._run_once(loop.time())
            self._wake_at = min(self._wake_at, look_again_at)
            # A turn for everybody else, also when there is more to do at once.
            if self._wake_at <= loop.time():
                await asyncio.sleep(0)
                continue
            self._waiting = loop.create_future()
            if self._wake_at < NEVER:
                self._alarm = loop.call_at(self._wake_at, self._ring)
            try:
                await self._waiting
            finally:
                self._waiting = None
                if self._alarm is not None:
                    self._alarm.cancel()
                    self._alarm = None

    def _run_once(self, now: float) -> float:
        """Send what can be sent; returns when to look again without being woken."""
        for batch in self._accumulator.expired(now):
            self._expire(batch, now)
        if self._config.enable_idempotence and self._producer.identity is None:
            self._ask_identity()
        ready = self._accumulator.ready(now)
        if ready.leaderless:
            self._metadata.request_update()
        look_again_at = min(ready.look_again_at, self._accumulator.next_expiry())
        for node_id in ready.nodes:
            look_again_at = min(look_again_at, self._serve(node_id, now))
        return look_again_at

    def _serve(self, node_id: int, now: float) -> float:
        """Send to one node as much as it may have in flight; returns when to look at it again."""
        connection = self._brokers.live(node_id)
        if connection is None:
            self._brokers.start_connecting(node_id)
            retry_at = self._brokers.retry_at(node_id)
            if retry_at <= now:
                return NEVER  # under way: the end of it wakes this task
            # It can't be reached: somebody else may lead by now.
            self._last_error = self._brokers.last_error(node_id) or self._last_error
            self._metadata.request_update()
            return retry_at
        throttled = self._throttled_until.get(node_id, 0.0)
        if throttled > now:
            return throttled
        while self._in_flight.get(node_id, 0) < self._config.max_in_flight_requests_per_connection:
            if self._config.acks == 0 and connection.unsent_bytes > _MAX_UNSENT_BYTES:
                self._wake_when_drained(connection)
                break
            batches = self._accumulator.drain(node_id, now)
            if not batches:
                break
            self._send(node_id, connection, batches)
        return NEVER

    def _wake_when_drained(self, connection: Connection) -> None:
        if self._draining is None or self._draining.done():
            self._draining = asyncio.get_running_loop().create_task(connection.drained(), name="aioprod-drain")
            self._draining.add_done_callback(lambda _: self.wake())

    # -- requests ------------------------------------------------------------------------------------------------

    def _send(self, node_id: int, connection: Connection, batches: list[ProducerBatch]) -> None:
        topics: dict[str, list[ProducerBatch]] = {}
        for batch in batches:
            topics.setdefault(batch.tp.topic, []).append(batch)
            batch.in_flight = True
            batch.attempts += 1
            if self._config.max_in_flight_requests_per_connection == 1:
                self._accumulator.incomplete[batch].muted = True
        known = self._metadata.snapshot.topics
        ids = {name: known[name].topic_id if name in known else _NO_ID for name in topics}
        try:
            version = connection.pick_version(ProduceRequest, _LAST_VERSION_BY_NAME if _NO_ID in ids.values() else None)
        except UnsupportedVersionError as error:
            self._fail_all(batches, error)
            return
        parts = [(name, ids[name], [(batch.tp.partition, self._encode(batch)) for batch in listed]) for name, listed in topics.items()]
        correlation_id = connection.next_correlation_id()
        acks = int(self._config.acks)
        buffers = encode_produce_request(version, correlation_id, connection.client_id, None, acks, self._config.request_timeout_ms, parts)
        if acks == 0:
            connection.write(buffers)
            for batch in batches:
                self._succeed(batch, -1, -1)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        reply = connection.send(buffers, ProduceRequest, version, correlation_id)
        names = {topic_id: name for name, topic_id in ids.items()} if version > _LAST_VERSION_BY_NAME else {}
        reply.add_done_callback(lambda future: self._replied(node_id, batches, names, future))

    def _encode(self, batch: ProducerBatch) -> bytes:
        if batch.encoded is None:
            producer_id, epoch = batch.identity if batch.identity is not None else (-1, -1)
            batch.encoded = batch.writer.build(
                codec=self._codec,
                level=self._config.compression_level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.base_sequence,
            )
        return batch.encoded

    def _replied(self, node_id: int, batches: list[ProducerBatch], names: dict[uuid.UUID, str], future: asyncio.Future[Message]) -> None:
        self._in_flight[node_id] -= 1
        now = asyncio.get_running_loop().time()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self._last_error = error if isinstance(error, KafkaError) else None
            self._metadata.request_update()
            for batch in batches:
                self._unanswered(batch, now)
        else:
            reply = future.result()
            assert isinstance(reply, ProduceResponse)
            if reply.throttle_time_ms > 0:
                self._throttled_until[node_id] = now + reply.throttle_time_ms / 1000
            answers = {(names.get(t.topic_id, t.name), p.index): p for t in reply.responses for p in t.partition_responses}
            for batch in batches:
                answer = answers.get((batch.tp.topic, batch.tp.partition))
                if answer is None:
                    self._last_error = ProtocolError(f"the broker's reply leaves out {batch.tp}")
                    self._unanswered(batch, now)
                else:
                    self._answered(batch, answer, now)
        self.wake()

    # -- what an answer means ------------------------------------------------------------------------------------

    def _landed(self, batch: ProducerBatch) -> bool:
        """Note the end of an attempt; False when the batch has ended meanwhile."""
        batch.in_flight = False
        if batch.state is not BatchState.PENDING:
            return False
        self._accumulator.incomplete[batch].muted = False
        return True

    def _unanswered(self, batch: ProducerBatch, now: float) -> None:
        if self._landed(batch):
            batch.may_be_stored = True
            self._retry(batch, now)

    def _answered(self, batch: ProducerBatch, answer: PartitionProduceResponse, now: float) -> None:
        if not self._landed(batch):
            return
        code = ErrorCode.of(answer.error_code)
        sequence = self._accumulator.incomplete[batch].sequence
        outcome = judge(code, idempotent=self._config.enable_idempotence, first_unresolved=sequence.is_first_unresolved(batch))
        if outcome is Outcome.SUCCESS:
            duplicate = code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            self._succeed(batch, -1 if duplicate else answer.base_offset, answer.log_append_time_ms)
            return
        error = self._error(batch, code, answer.error_message)
        self._last_error = error
        if code.refresh_metadata:
            self._metadata.request_update()
        if outcome is Outcome.FAIL:
            self._fail(batch, error)
            return
        if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            batch.may_be_stored = True
        if outcome is Outcome.REWRITE:
            log.info("%s refused sequence %d of %s: going on with a new producer epoch", batch.tp, batch.base_sequence, batch.identity)
            sequence.rewrite(batch)
        self._retry(batch, now)

    def _error(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> KafkaError:
        where = f"{batch.count} records to {batch.tp.topic}-{batch.tp.partition}"
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            return RecordTooLargeError(
                f"{where}: the broker refused a batch of {batch.writer.size} bytes; raise its max.message.bytes, "
                f"or lower batch_size={self._config.batch_size}"
            )
        return BrokerError(code, where + (f" ({message})" if message else ""))

    def _retry(self, batch: ProducerBatch, now: float) -> None:
        # Behind an earlier one that must go again first, the pause is that one's.
        self._accumulator.put_back(batch, now + self._backoff.seconds(batch.attempts))

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        queue = self._accumulator.complete(batch)
        queue.sequence.stored(batch)
        batch.succeed(base_offset, log_append_time)

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        queue = self._accumulator.complete(batch)
        queue.muted = False
        queue.sequence.given_up(batch)
        batch.fail(error)

    def _fail_all(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            batch.in_flight = False
            self._fail(batch, error)

    def _expire(self, batch: ProducerBatch, now: float) -> None:
        because = self._last_error or self._metadata.last_error
        self._fail(
            batch,
            DeliveryTimeoutError(
                f"{batch.count} records to {batch.tp.topic}-{batch.tp.partition} not acknowledged after {(now - batch.created_at) * 1000:.0f} ms "
                f"(delivery_timeout_ms={self._config.delivery_timeout_ms}, {batch.attempts} attempts)" + (f": {because}" if because else "")
            ),
        )

    # -- identity ------------------------------------------------------------------------------------------------

    def _ask_identity(self) -> None:
        if self._asking_identity is None or self._asking_identity.done():
            self._asking_identity = asyncio.get_running_loop().create_task(self._init_producer_id(), name="aioprod-producer-id")
            self._asking_identity.add_done_callback(lambda task: self.wake() if task.cancelled() or not task.exception() else self._ended(task))

    async def _init_producer_id(self) -> None:
        failures = 0
        while True:
            try:
                connection = await self._brokers.any()
                reply = await connection.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            except KafkaError as error:
                self._last_error = error
            else:
                code = ErrorCode.of(reply.error_code)
                if code == ErrorCode.NONE:
                    self._producer.identity = Identity((reply.producer_id, reply.producer_epoch))
                    return
                if not code.retriable:
                    self.on_fatal(FatalProducerError(code, "no producer id was granted; set enable_idempotence=False or ask for the right to it"))
                    return
                self._last_error = BrokerError(code, "InitProducerId")
            failures += 1
            await asyncio.sleep(self._backoff.seconds(failures))
