"""Handles the end of each attempt to send a batch: the batch is done, retried, split or failed.
Changes the accumulator and the sequence numbers; does no I/O.
"""

from __future__ import annotations

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
from aioprod.foreign_text import reason_of
from aioprod.logs import get_logger
from aioprod.metrics import ProducerMetrics
from aioprod.net.backoff import Backoff
from aioprod.net.refusals import explain
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import BatchState, ProducerBatch, place_of
from aioprod.producer.outcomes import Outcome, outcome_of
from aioprod.producer.sequences import PartitionSequence
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.messages.produce import PartitionProduceResponse

log = get_logger(__name__)

_RECORD_ERRORS_SHOWN = 3


class ProduceResponseHandler:
    """Handles the ends of attempts, and of batches."""

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
        self._last_error: KafkaError | None = None  # for the text of DeliveryTimeoutError

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
        """Handle a batch whose request failed with ``error``: whether it is stored is unknown.

        Args:
            new_leader: another node leads the partition now.
        """
        self._last_error = error
        if self._attempt_ended(batch):
            _mark_unanswered(batch, now)
            self._retry(batch, now, at_once=new_leader)

    def stored(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """Handle a batch that the broker says it has stored."""
        if self._attempt_ended(batch):
            self.succeed(batch, base_offset, log_append_time)

    def answered(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now: float,
        *,
        new_leader: bool,
    ) -> None:
        """Handle a batch for which the broker has replied, perhaps with an error.

        Args:
            new_leader: another node leads the partition now (KIP-951).
        """
        if not self._attempt_ended(batch):
            return
        if not answer.error_code:
            self.succeed(batch, answer.base_offset, answer.log_append_time_ms)
            return
        code = ErrorCode.of(answer.error_code)
        sequence = self._accumulator.incomplete[batch].sequence
        outcome = outcome_of(
            code,
            idempotent=batch.identity is not None,
            first_unresolved=sequence.is_first_unresolved(batch),
            may_split=batch.count > 1,
            transactional=self._transactions.transactional,
        )
        if outcome is Outcome.SUCCESS:
            # An earlier attempt, whose answer was lost, has stored it at an unknown offset.
            self.succeed(batch, -1, answer.log_append_time_ms)
            return
        if outcome is Outcome.SPLIT:
            self._split(batch, now)
            return
        error = self._error(batch, code, _reason(answer), fatal=outcome is Outcome.FATAL)
        self._last_error = error
        if code.refresh_metadata and not new_leader:
            self._metadata.request_update()
        if (
            outcome is Outcome.REWRITE
            and batch.may_be_stored
            and self._may_come_late(batch, code, now)
        ):
            outcome = Outcome.RETRY
        if outcome in (Outcome.REWRITE, Outcome.EPOCH_LOST):
            if batch.may_be_stored or batch.in_doubt:
                outcome = Outcome.FAIL
            else:
                self._lose_sequence(batch, sequence, code)
        if outcome in (Outcome.FAIL, Outcome.EPOCH_LOST):
            self.fail(batch, error)
        elif outcome is Outcome.FATAL:
            self._transactions.batch_failed(batch, error)
            self._transactions.fail(error)
        else:
            if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                _mark_unanswered(batch, now)
            self._retry(batch, now, at_once=new_leader)

    def _lose_sequence(
        self, batch: ProducerBatch, sequence: PartitionSequence, code: ErrorCode
    ) -> None:
        new_id = code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not sequence.refusal_noted:
            sequence.refusal_noted = True
            log.info(
                "%s-%d refused sequence number %d (%s); continuing with a new producer %s",
                *batch.tp,
                batch.base_sequence,
                code.name,
                "id" if new_id else "epoch",
            )
        sequence.rewrite(batch, new_id=new_id)

    def _may_come_late(self, batch: ProducerBatch, code: ErrorCode, now: float) -> bool:
        """Return whether to retry unchanged a batch that may be stored and was refused for its
        sequence number.

        It was refused because earlier batches are missing. Late copies of those may still arrive,
        and after them a late copy of this one, which the broker then stores. With other sequence
        numbers it would be stored twice. So it is retried unchanged until ``request_timeout_ms``
        is over; then it fails.
        """
        asked_long = now - batch.unanswered_at >= self._config.request_timeout_ms / 1000
        return code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not (asked_long or batch.in_doubt)

    def _attempt_ended(self, batch: ProducerBatch) -> bool:
        """Note the end of an attempt; return False if the batch has ended already."""
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
                    f"{place_of(batch.tp)}: no reply after retries={self._config.retries} retries"
                ),
            )
            return
        self._metrics.batch_retried(batch.tp.topic, batch.count, now)
        # If an earlier batch has to be retried first, the backoff of that one counts.
        self._accumulator.put_back(
            batch, 0.0 if at_once else now + self._backoff.seconds(batch.attempts)
        )

    def _must_be_settled(self, batch: ProducerBatch) -> bool:
        """Return whether an abort has to wait for the outcome of the batch.

        A late copy of a failed request might arrive after the abort's marker, and become part of
        the next transaction. In protocol v2 the broker refuses it for its epoch.
        """
        broken = self._accumulator.incomplete[batch].sequence.broken
        return batch.may_be_stored and not broken and not self._transactions.produce_adds_partitions

    def _split(self, batch: ProducerBatch, now: float) -> None:
        topic = self._accumulator.incomplete[batch].topic
        if not topic.split_noted and not batch.grown:
            topic.split_noted = True
            log.warning(
                (
                    "topic %r: the broker refused a batch of %d bytes as too large; sending it in "
                    "smaller batches. Raise the topic's max.message.bytes, or lower batch_size=%d "
                    "(logged once)"
                ),
                topic.name,
                len(batch.encoded or b""),
                self._config.batch_size,
            )
        self._metrics.batch_split(now)
        self._accumulator.split(batch)

    # -- ends of batches ---------------------------------------------------------------------------

    def succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """End a batch that is stored."""
        queue = self._accumulator.complete(batch)
        queue.muted = False
        queue.sequence.stored(batch)
        self._transactions.batch_stored()
        batch.succeed(base_offset, log_append_time)

    def fail(
        self, batch: ProducerBatch, error: KafkaError, state: BatchState = BatchState.FAILED
    ) -> None:
        """End a batch that is not sent again."""
        queue = self._accumulator.complete(batch)
        queue.muted = False
        self._transactions.batch_failed(batch, error)
        queue.sequence.given_up(batch)
        aborting = self._accumulator.aborting
        if aborting is not None and queue.sequence.broken:
            # Later batches could only be sent under another epoch, which is not assigned within a
            # transaction.
            self._accumulator.drop_unsent(aborting)
        batch.fail(error, state)

    def expire(self, batch: ProducerBatch, now: float, reason: KafkaError | None) -> None:
        """End a batch whose ``delivery_timeout_ms`` is over; ``reason`` is the cause, if known."""
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
            return explain(BrokerError(code, where), "Produce", self._metadata.snapshot.principal)
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
                f"{where}: the broker accepts nothing more from this producer; close it and create "
                "a new one"
            ),
        )


def _mark_unanswered(batch: ProducerBatch, now: float) -> None:
    batch.may_be_stored = True
    batch.unanswered_at = now


def _reason(answer: PartitionProduceResponse) -> str | None:
    """Return the broker's message about the batch and about single records of it (KIP-467)."""
    reasons = [reason] if (reason := reason_of(answer.error_message)) else []
    if ErrorCode.of(answer.error_code) != answer.error_code:
        reasons.append(f"error code {answer.error_code}, unknown to this version of aioprod")
    for fault in answer.record_errors[:_RECORD_ERRORS_SHOWN]:
        reasons.append(
            f"record {fault.batch_index}: {reason_of(fault.batch_index_error_message) or 'refused'}"
        )
    if len(answer.record_errors) > _RECORD_ERRORS_SHOWN:
        reasons.append(f"{len(answer.record_errors) - _RECORD_ERRORS_SHOWN} more records")
    return "; ".join(reasons) or None
