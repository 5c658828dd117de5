"""What the end of an attempt means for its batches: done, again, split, given up. Acts on
accumulator and sequences; does no I/O.
"""

from __future__ import annotations

import logging
import random

from aioprod.cluster.metadata import Metadata
from aioprod.config.producer import ProducerConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerError,
    DeliveryTimeoutError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
)
from aioprod.metrics import ProducerMetrics
from aioprod.net.backoff import Backoff
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.outcomes import Outcome, judge
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.messages.produce import PartitionProduceResponse

log = logging.getLogger(__name__)

_RECORD_ERRORS_SHOWN = 3


class ProduceResponseHandler:
    """Ends attempts, and batches."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        transactions: Transactions,
        metadata: Metadata,
        metrics: ProducerMetrics,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._transactions = transactions
        self._metadata = metadata
        self._metrics = metrics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._last_error: KafkaError | None = None  # for the text of a delivery timeout

    # -- ends of attempts --------------------------------------------------------------------------

    def unreachable(self, error: KafkaError | None) -> None:
        """Note why a node can't be reached."""
        self._last_error = error or self._last_error

    def unanswered(
        self,
        batch: ProducerBatch,
        now: float,
        error: KafkaError | None,
        *,
        new_leader: bool = False,
    ) -> None:
        """The request broke, with ``error``: nobody knows whether the batch is stored.
        ``new_leader``: another node leads the partition by now.
        """
        self._last_error = error
        if self._landed(batch):
            _doubt(batch, now)
            self._retry(batch, now, at_once=new_leader)

    def answered(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now: float,
        *,
        new_leader: bool,
    ) -> None:
        """The broker has spoken. ``new_leader``: it, or another, has told meanwhile who leads the
        partition now (KIP-951).
        """
        if not self._landed(batch):
            return
        if not answer.error_code:
            self.succeed(batch, answer.base_offset, answer.log_append_time_ms)
            return
        code = ErrorCode.of(answer.error_code)
        sequence = self._accumulator.incomplete[batch].sequence
        outcome = judge(
            code,
            idempotent=batch.identity is not None,
            first_unresolved=sequence.is_first_unresolved(batch),
            may_split=batch.count > 1,
            transactional=self._transactions.transactional,
        )
        if outcome is Outcome.SUCCESS:
            # Stored before, by an attempt whose answer was lost: nobody knows where.
            self.succeed(batch, -1, answer.log_append_time_ms)
            return
        if outcome is Outcome.SPLIT:
            self._split(batch, now)
            return
        error = self._error(batch, code, _reason(answer), fatal=outcome is Outcome.FATAL)
        self._last_error = error
        if code.refresh_metadata and not new_leader:
            self._metadata.request_update()
        if outcome is Outcome.REWRITE and batch.may_be_stored:
            outcome = Outcome.RETRY if self._may_come_late(batch, code, now) else Outcome.FAIL
        if outcome is Outcome.FAIL or (outcome is Outcome.REWRITE and batch.in_doubt):
            self.fail(batch, error)
            return
        if outcome is Outcome.FATAL:
            self._transactions.batch_failed(batch, error)
            self._transactions.fail(error)
            return
        if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            _doubt(batch, now)
        if outcome is Outcome.REWRITE:
            if not sequence.refusal_noted:
                sequence.refusal_noted = True
                log.info(
                    "%s-%d refused sequence %d: going on with a new producer epoch",
                    *batch.tp,
                    batch.base_sequence,
                )
            sequence.rewrite(batch)
            if self._transactions.transactional:
                # Only the coordinator gives out epochs: the transaction can't be saved.
                self.fail(batch, error)
                return
        self._retry(batch, now, at_once=new_leader)

    def _may_come_late(self, batch: ProducerBatch, code: ErrorCode, now: float) -> bool:
        """Whether a batch of unknown fate, refused for its sequence, is to be asked about again.

        Refused because earlier ones are missing, it is still taken from a late copy of its
        unanswered attempt once late copies of those have come. Under other numbers it would be
        stored twice then. For a request's time the same question is put again; after that it has
        failed.
        """
        asked_long = now - batch.unanswered_at >= self._config.request_timeout_ms / 1000
        return code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not (
            asked_long or batch.in_doubt or self._transactions.transactional
        )

    def _landed(self, batch: ProducerBatch) -> bool:
        """Note the end of an attempt; False when the batch has ended meanwhile."""
        batch.in_flight = False
        if batch.state is not BatchState.PENDING:
            return False
        queue = self._accumulator.incomplete[batch]
        queue.muted = False
        return True

    def _retry(self, batch: ProducerBatch, now: float, *, at_once: bool = False) -> None:
        aborting = self._accumulator.aborting
        if aborting is not None and not self._must_be_settled(batch):
            self.fail(batch, aborting, BatchState.ABORTED)
            return
        if batch.attempts > self._config.retries:
            self.fail(
                batch,
                self._last_error
                or KafkaError(
                    f"{batch.tp}: no answer, and retries={self._config.retries} are used up"
                ),
            )
            return
        self._metrics.batch_retried(batch.tp.topic, batch.count, now)
        # Behind an earlier one that must go again first, the pause is that one's.
        self._accumulator.put_back(
            batch, 0.0 if at_once else now + self._backoff.seconds(batch.attempts)
        )

    def _must_be_settled(self, batch: ProducerBatch) -> bool:
        """Whether an abort has to wait for the broker's word on the batch.

        A late copy of a request that broke might arrive behind the abort's marker, and be taken for
        the next transaction's. Under protocol v2 its epoch gives it away.
        """
        broken = self._accumulator.incomplete[batch].sequence.broken
        return batch.may_be_stored and not broken and not self._transactions.produce_adds_partitions

    def _split(self, batch: ProducerBatch, now: float) -> None:
        topic = self._accumulator.incomplete[batch].topic
        if not topic.split_noted:
            topic.split_noted = True
            log.warning(
                (
                    "topic %r takes no batch of %d bytes: it is sent in parts; raise the topic's "
                    "max.message.bytes, or lower batch_size=%d (said once)"
                ),
                topic.name,
                len(batch.encoded or b""),
                self._config.batch_size,
            )
        self._metrics.batch_split(now)
        self._accumulator.split(batch)

    # -- ends of batches ---------------------------------------------------------------------------

    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """The broker has the batch."""
        queue = self._accumulator.complete(batch)
        queue.muted = False
        queue.sequence.stored(batch)
        self._transactions.batch_stored()
        batch.succeed(base_offset, log_append_time)

    def fail(
        self, batch: ProducerBatch, error: KafkaError, state: BatchState = BatchState.FAILED
    ) -> None:
        """The batch is given up."""
        queue = self._accumulator.complete(batch)
        queue.muted = False
        self._transactions.batch_failed(batch, error)
        queue.sequence.given_up(batch)
        aborting = self._accumulator.aborting
        if aborting is not None and queue.sequence.broken:
            # What waits behind the hole could be sent only under another epoch, and the transaction
            # has none.
            self._accumulator.drop_unsent(aborting)
        batch.fail(error, state)

    def expire(self, batch: ProducerBatch, now: float, reason: KafkaError | None) -> None:
        """The batch's time is up."""
        because = self._last_error or reason
        error = DeliveryTimeoutError(
            f"{batch.count} records to {batch.tp.topic}-{batch.tp.partition} not "
            f"acknowledged after {(now - batch.created_at) * 1000:.0f} ms "
            f"(delivery_timeout_ms={self._config.delivery_timeout_ms}, {batch.attempts} attempts)"
            + (f": {because}" if because else "")
        )
        self.fail(batch, error)

    def _error(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None, *, fatal: bool
    ) -> KafkaError:
        where = f"{batch.count} records to {batch.tp.topic}-{batch.tp.partition}" + (
            f" ({message})" if message else ""
        )
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            return RecordTooLargeError(
                f"{where}: the broker refused a batch of {len(batch.encoded or b'')} bytes "
                "that can't be split; "
                "raise the topic's max.message.bytes or the broker's message.max.bytes"
            )
        if not fatal:
            return BrokerError(code, where)
        if code == ErrorCode.PRODUCER_FENCED and self._transactions.transactional:
            return ProducerFencedError(
                code,
                (
                    f"{where}: another producer uses "
                    f"transactional_id={self._config.transactional_id!r}; close this one"
                ),
            )
        return FatalProducerError(
            code,
            (
                f"{where}: the broker takes nothing from this producer; get it the right to "
                "write, then make a new one"
            ),
        )


def _doubt(batch: ProducerBatch, now: float) -> None:
    batch.may_be_stored = True
    batch.unanswered_at = now


def _reason(answer: PartitionProduceResponse) -> str | None:
    """What the broker says of the batch, and of records in it that it finds fault with
    (KIP-467).
    """
    reasons = [answer.error_message] if answer.error_message else []
    if ErrorCode.of(answer.error_code) != answer.error_code:
        reasons.append(f"error code {answer.error_code}, which this version does not know")
    for fault in answer.record_errors[:_RECORD_ERRORS_SHOWN]:
        reasons.append(
            f"record {fault.batch_index}: {fault.batch_index_error_message or 'refused'}"
        )
    if len(answer.record_errors) > _RECORD_ERRORS_SHOWN:
        reasons.append(f"{len(answer.record_errors) - _RECORD_ERRORS_SHOWN} more records")
    return "; ".join(reasons) or None
