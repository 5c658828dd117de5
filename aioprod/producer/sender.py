"""Sends batches: finds the nodes with batches to send, connects, and sends one request per node.

All decisions are synchronous functions over (state, now). They run in callbacks of the event loop:
when there is work, and when a reply arrives. A task lives as long as the sender, and shows its end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.codecs import Codec
from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, KafkaError, ProtocolError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger
from aioprod.net.brokers import BrokerAddress
from aioprod.net.connection import Connection
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.reporting import RequestReporter
from aioprod.producer.responses import ProduceResponseHandler
from aioprod.producer.transactions.gate import Transactions
from aioprod.producer.wakeup import NEVER, SenderWakeup
from aioprod.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.protocol.produce_decoder import StoredBatches, decode_produce_response
from aioprod.protocol.produce_encoder import encode_produce_request
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.running_loop import start_task
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)

# From version 13 on, Produce names topics by id (KIP-516).
_LAST_VERSION_BY_NAME = 12
_LAST_VERSION_BEFORE_TV2 = 11
_NOT_THE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_Answers = dict[tuple[str, int], PartitionProduceResponse]
# Only the socket's buffer limits what is sent without acknowledgements, or to a far broker.
_MAX_UNSENT_BYTES = 1024 * 1024


class _Attempt:
    """A request in flight, with its batches.

    Attributes:
        topics: the topics of ``batches`` in the request: the bytes of the id, or the name.
    """

    __slots__ = ("_sender", "batches", "node_id", "sent_at", "topics")

    def __init__(
        self,
        sender: Sender,
        node_id: int,
        batches: list[ProducerBatch],
        topics: Mapping[str, str | bytes],
        sent_at: float,
    ) -> None:
        self._sender = sender
        self.node_id: int = node_id
        self.batches: list[ProducerBatch] = batches
        self.topics: Mapping[str, str | bytes] = topics
        self.sent_at: float = sent_at

    def topic_id(self, name: str) -> uuid.UUID:
        """Return the id that the request has of a topic; zero if it has the name."""
        sent = self.topics.get(name)
        return uuid.UUID(bytes=sent) if isinstance(sent, bytes) else ZERO_UUID

    def replied(self, reply: StoredBatches | ProduceResponse, now: float) -> None:
        """Handle the reply in the callback of the transport that has received it."""
        self._sender.replied(self, reply, now)

    def failed(self, error: KafkaError) -> None:
        """Handle the error in the next turn of the event loop: the connection is closing, perhaps
        by code that looks at the requests in flight.
        """
        self._sender.fail_soon(self, error)


class Sender:
    """Sends the accumulator's batches.

    Args:
        handler: handles the ends of attempts and batches.
        wakeup: wakes the sender's task.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        transactions: Transactions,
        handler: ProduceResponseHandler,
        runtime: ClientRuntime,
        wakeup: SenderWakeup,
        reporter: RequestReporter,
    ) -> None:
        self._config = config
        self._acks = int(config.acks)
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._accumulator = accumulator
        self._far_brokers = accumulator.far_brokers
        self._transactions = transactions
        self._transactional = transactions.transactional
        self._may_send = transactions.may_send if transactions.transactional else None
        self._handler = handler
        self._metadata = runtime.metadata
        self._brokers = runtime.brokers
        self._wakeup = wakeup
        self._reporter = reporter
        self._in_flight: dict[int, dict[_Attempt, None]] = {}
        # Converting a UUID for each request takes 0.4 us.
        self._snapshot: ClusterSnapshot | None = None
        self._topic_ids: dict[str, bytes] = {}  # of topics in that snapshot
        self._draining: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """The number of produce requests without a response."""
        return sum(map(len, self._in_flight.values()))

    # -- the task ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the task."""
        self._task = start_task(self._wakeup.run(self._run_once), name="aioprod-sender")
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End the task. It completes no batch: abort the accumulator as well."""
        tasks = [task for task in (self._task, self._draining) if task is not None]
        for task in tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Cancelled from outside, or a bug: waiting callers and later ones have to get an error.
        reason = (
            "was cancelled from outside" if task.cancelled() else f"failed: {task.exception()!r}"
        )
        error = KafkaError(
            f"the producer's sender task {reason}; close the producer and create a new one"
        )
        try:
            if not task.cancelled():
                log.error(
                    "%s: the sender task failed; the producer can't continue",
                    self._config.client_id,
                    exc_info=task.exception(),
                )
        finally:
            self._transactions.fail(error)

    def _run_once(self, now: float) -> float:
        """Send the batches that can be sent; return the loop time at which to run again."""
        self._transactions.ensure_producer_id()
        if not self._accumulator.incomplete:
            return NEVER  # as usual after the last reply
        expiry = self._accumulator.next_expiry()
        if expiry <= now:
            self._expire(now)
            expiry = self._accumulator.next_expiry()
        look_again_at = min(expiry, self._accumulator.advance(now))
        for node_id in self._accumulator.leaders():
            if node_id >= 0:
                look_again_at = min(look_again_at, self._serve(node_id, now))
            elif self._accumulator.is_ready(node_id, now):
                self._metadata.request_update()
        return look_again_at

    def _expire(self, now: float) -> None:
        for batch in self._accumulator.expired(now):
            if batch.state is not BatchState.PENDING:
                # It ended with the previous one: an abort drops the batches after a gap.
                continue
            reason = self._transactions.producer_id_error or self._metadata.last_error
            self._handler.expire(batch, now, reason)

    def _serve(self, node_id: int, now: float) -> float:
        """Send a node as many requests as may be in flight; return when to check it again."""
        connection = self._brokers.live(node_id)
        if connection is None:
            ready = self._accumulator.is_ready(node_id, now)
            return self._connect(node_id, now) if ready else NEVER
        if connection.throttled_until > now:
            return connection.throttled_until
        in_flight = self._in_flight.get(node_id)
        if in_flight is None:
            in_flight = self._in_flight[node_id] = {}
            self._far_brokers.note_response(node_id, connection.round_trip_s)
        self._accumulator.note_in_flight(node_id, len(in_flight))
        most = self._far_brokers.most_in_flight(node_id)
        while len(in_flight) < most:
            unlimited = self._acks == 0 or len(in_flight) >= self._max_in_flight
            if unlimited and connection.unsent_bytes > _MAX_UNSENT_BYTES:
                self._wake_when_drained(connection)
                break
            batches = self._accumulator.drain(node_id, now, self._may_send)
            if not batches:
                break
            self._send(node_id, connection, batches, now)
            if not self._accumulator.has_due(node_id):
                break
        else:
            if self._accumulator.is_ready(node_id, now):
                self._accumulator.note_stalled(node_id, now)
        return NEVER

    def _connect(self, node_id: int, now: float) -> float:
        """Connect to a node that has batches; return when to check it again."""
        self._accumulator.note_stalled(node_id, now)
        self._accumulator.note_unconnected(node_id)
        if not self._brokers.knows(node_id):
            # The leader has left the cluster, and the new one is not known yet.
            self._metadata.request_update()
            return NEVER
        self._brokers.start_connecting(node_id)
        if self._acks == 0 and self._brokers.last_error(node_id) is not None:
            # With acks=0, a broker that lost the leadership can only close the connection.
            self._metadata.request_update()
        retry_at = self._brokers.retry_at(node_id)
        if retry_at <= now:
            return NEVER  # the end of the attempt wakes this task
        # The node can't be reached: another one may lead by now.
        self._handler.unreachable(self._brokers.last_error(node_id))
        self._metadata.request_update()
        return retry_at

    def _wake_when_drained(self, connection: Connection) -> None:
        if self._draining is None or self._draining.done():
            self._draining = start_task(connection.drained(), name="aioprod-drain")
            self._draining.add_done_callback(lambda _: self._wakeup.wake())

    def leaders_changed(self) -> None:
        """After new metadata, send batches that a silent node has not acknowledged to the new
        leader.

        Otherwise a frozen node would delay them until ``request_timeout_ms``. The sequence numbers
        stay the same, so no record is stored twice.
        """
        for node_id, requests in self._in_flight.items():
            connection = self._brokers.live(node_id)
            if connection is None or not connection.silent:
                continue
            moved = next(
                (
                    batch.tp
                    for attempt in requests
                    for batch in attempt.batches
                    if self._has_other_leader(batch, node_id)
                ),
                None,
            )
            if moved is not None:
                leads = (
                    f"broker {self._accumulator.leader_of(moved)} leads "
                    f"{moved.topic}-{moved.partition} now"
                )
                connection.abort(
                    BrokerConnectionError(f"{connection.address}: no reply, and {leads}")
                )
        self._wakeup.wake()

    # -- requests ----------------------------------------------------------------------------------

    def _send(
        self, node_id: int, connection: Connection, batches: list[ProducerBatch], now: float
    ) -> None:
        by_topic: dict[str, list[tuple[int, bytes | memoryview]]] = {}
        for batch in batches:
            if self._transactional:
                self._transactions.batch_sent(batch.tp)
            partitions = by_topic.get(batch.topic)
            if partitions is None:
                partitions = by_topic[batch.topic] = []
            partitions.append((batch.partition, self._encode(batch)))
        ids = self._ids_of(by_topic)
        try:
            version = connection.pick_version(
                ProduceRequest, self._newest_version(have_ids=ids is not None)
            )
        except UnsupportedVersionError as error:
            for batch in batches:
                self._handler.not_sent(batch, error)
            return
        topics: Mapping[str, str | bytes] = (
            {name: name for name in by_topic}
            if ids is None or version <= _LAST_VERSION_BY_NAME
            else ids
        )
        correlation_id = connection.next_correlation_id()
        buffers = encode_produce_request(
            version,
            correlation_id,
            connection.client_id,
            self._config.transactional_id,
            self._acks,
            self._config.request_timeout_ms,
            [(topics[name], partitions) for name, partitions in by_topic.items()],
        )
        # Report it when it is written: the broker works on it meanwhile.
        if self._acks == 0:
            connection.write(buffers)
            self._reporter.sent(node_id, batches, buffers, now)
            for batch in batches:
                self._handler.succeed(batch, -1, -1, now)
            return
        attempt = _Attempt(self, node_id, batches, topics, now)
        in_flight = self._in_flight[node_id]
        in_flight[attempt] = None
        self._accumulator.note_in_flight(node_id, len(in_flight))
        connection.post(
            buffers,
            ProduceRequest,
            version,
            correlation_id,
            attempt,
            decode=decode_produce_response,
        )
        self._reporter.sent(node_id, batches, buffers, now)

    def _ids_of(self, topics: Iterable[str]) -> dict[str, bytes] | None:
        """Return the ids of topics; None if the id of one is not known."""
        snapshot = self._metadata.snapshot
        if snapshot is not self._snapshot:
            self._snapshot, self._topic_ids = snapshot, {}
        ids: dict[str, bytes] = {}
        for name in topics:
            topic_id = self._topic_ids.get(name)
            if topic_id is None:
                info = snapshot.topics.get(name)
                if info is None or not info.topic_id.int:
                    return None
                topic_id = self._topic_ids[name] = info.topic_id.bytes
            ids[name] = topic_id
        return ids

    def _newest_version(self, *, have_ids: bool) -> int | None:
        newest = None if have_ids else _LAST_VERSION_BY_NAME
        if self._transactions.produce_adds_partitions:
            return newest
        # From version 12 on a broker adds the partition to the transaction (KIP-890). Older
        # versions require that the client has added it.
        return _LAST_VERSION_BEFORE_TV2

    def _encode(self, batch: ProducerBatch) -> bytes | memoryview:
        if batch.encoded is None:
            producer_id, epoch = batch.identity if batch.identity is not None else (-1, -1)
            topic = self._accumulator.topics[batch.tp.topic]
            batch.encoded = batch.writer.build_in_place(
                codec=batch.codec,
                level=topic.level,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.base_sequence,
                transactional=self._transactional,
            )
            if batch.codec is not Codec.NONE:
                topic.observe_ratio((len(batch.encoded) - HEADER_SIZE) / batch.writer.size)
        return batch.encoded

    # -- responses ---------------------------------------------------------------------------------

    def replied(
        self, attempt: _Attempt, reply: StoredBatches | ProduceResponse, now: float
    ) -> None:
        """Handle the reply to a request."""
        try:
            node_id = attempt.node_id
            self._free(attempt)
            self._far_brokers.note_response(node_id, now - attempt.sent_at)
            self._reporter.replied(node_id, attempt.sent_at, reply.throttle_time_ms, now)
            if isinstance(reply, StoredBatches):
                self._stored(attempt, reply, now)
                if self._in_flight[node_id] and not self._accumulator.any_due:
                    # The next batch wakes the sender, in time for the records of a whole turn of
                    # the event loop. After the last reply, a task that sends one record after the
                    # other would need another turn for each.
                    return
            else:
                self._answered(attempt, reply, now)
        except Exception as bug:
            self._wakeup.fail(bug)
        self._wakeup.wake()

    def fail_soon(self, attempt: _Attempt, error: KafkaError) -> None:
        """Handle the end of a request without a reply, in the next turn of the event loop."""
        attempt.batches[0].loop.call_soon(self._unanswered, attempt, error)

    def _unanswered(self, attempt: _Attempt, error: KafkaError) -> None:
        node_id, now = attempt.node_id, asyncio.get_running_loop().time()
        try:
            self._free(attempt)
            self._reporter.failed(node_id, attempt.sent_at, error, now)
            self._metadata.request_update()
            for batch in attempt.batches:
                new_leader = self._has_other_leader(batch, node_id)
                self._handler.unanswered(batch, now, error, new_leader=new_leader)
        except Exception as bug:
            self._wakeup.fail(bug)
        self._wakeup.wake()

    def _free(self, attempt: _Attempt) -> None:
        """Take a request that has ended out of those in flight."""
        in_flight = self._in_flight[attempt.node_id]
        del in_flight[attempt]
        self._accumulator.note_in_flight(attempt.node_id, len(in_flight))

    def _stored(self, attempt: _Attempt, reply: StoredBatches, now: float) -> None:
        topics = attempt.topics
        for batch in attempt.batches:
            place = reply.places.get((topics[batch.topic], batch.partition))
            if place is None:
                self._left_out(batch, now)
            else:
                self._handler.stored(batch, *place, now)

    def _left_out(self, batch: ProducerBatch, now: float) -> None:
        where = f"{batch.tp.topic}-{batch.tp.partition}"
        self._handler.unanswered(batch, now, ProtocolError(f"the broker's reply lacks {where}"))

    def _answered(self, attempt: _Attempt, reply: ProduceResponse, now: float) -> None:
        names = {topic_id: name for name, topic_id in attempt.topics.items()}
        answers: _Answers = {}
        refused = False
        for topic in reply.responses:
            name = names.get(topic.topic_id.bytes, topic.name)
            for each in topic.partition_responses:
                answers[name, each.index] = each
                refused = refused or each.error_code != 0
        if refused:
            self._take_leaders(attempt, answers, reply)
        for batch in attempt.batches:
            answer = answers.get(batch.tp)
            if answer is None:
                self._left_out(batch, now)
            else:
                new_leader = refused and self._has_other_leader(batch, attempt.node_id)
                self._handler.answered(batch, answer, now, new_leader=new_leader)

    def _has_other_leader(self, batch: ProducerBatch, node_id: int) -> bool:
        return self._accumulator.leader_of(batch.tp) not in (node_id, -1)

    def _take_leaders(self, attempt: _Attempt, answers: _Answers, reply: ProduceResponse) -> None:
        """Use the leaders that the broker names in its reply (KIP-951), but not those of a topic
        that was created again: their epochs would count as newer.
        """
        named = {
            TopicPartition(*tp): (
                answer.current_leader.leader_id,
                answer.current_leader.leader_epoch,
            )
            for tp, answer in answers.items()
            if answer.error_code in _NOT_THE_LEADER
            and answer.current_leader.leader_id >= 0
            and not self._metadata.snapshot.has_other_topic(tp[0], attempt.topic_id(tp[0]))
        }
        if named:
            self._metadata.take_leaders(
                named,
                [BrokerAddress(end.node_id, end.host, end.port) for end in reply.node_endpoints],
            )
