"""Handles the end of each attempt to send a batch: the batch is done, retried, split or failed.
Changes the accumulator and the sequence numbers; does no I/O.
"""

from __future__ import annotations

import random
from functools import partial

from aioprod.cluster.metadata import Metadata
from aioprod.config.producer import ProducerConfig
from aioprod.counts import counted
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
from aioprod.logs import Logger, get_logger
from aioprod.metrics import ProducerMetrics
from aioprod.net.backoff import Backoff
from aioprod.net.refusals import explain
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.outcomes import Facts, Outcome, leaves_doubt, outcome_of
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.transactions.gate import Transactions
from aioprod.protocol.messages.produce import PartitionProduceResponse

log: Logger = get_logger(__name__)

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
        self._transactional = transactions.transactional
        self._metadata = metadata
        self._metrics = metrics
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._last_error: KafkaError | None = None  # for the text of DeliveryTimeoutError

    # -- ends of attempts --------------------------------------------------------------------------

    def unreachable(self, error: KafkaError | None) -> None:
        """Note why a node can't be reached."""
        self._last_error = error or self._last_error

    def not_sent(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch that the broker's version of Produce can't carry."""
        if self._accumulator.attempt_ended(batch) is not None:
            self.fail(batch, error)

    def unanswered(
        self, batch: ProducerBatch, now: float, error: KafkaError, *, new_leader: bool = False
    ) -> None:
        """Handle a batch whose request failed with ``error``: whether it is stored is unknown.

        Args:
            new_leader: another node leads the partition now.
        """
        self._last_error = error
        queue = self._accumulator.attempt_ended(batch, unanswered_at=now)
        if queue is not None:
            outcome = outcome_of(None, self._facts(batch, queue, now))
            self._do(outcome, batch, error, now, at_once=new_leader)

    def stored(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float
    ) -> None:
        """Handle a batch that the broker says it has stored."""
        if batch.state is BatchState.PENDING:
            self.succeed(batch, base_offset, log_append_time, now)

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
        code = ErrorCode.of(answer.error_code)
        queue = self._accumulator.attempt_ended(batch, now if leaves_doubt(code) else None)
        if queue is None:
            return
        outcome = outcome_of(code, self._facts(batch, queue, now))
        if outcome is Outcome.STORED:
            # If an earlier attempt has stored it, whose response was lost, its offset is unknown.
            known = code == ErrorCode.NONE
            base_offset = answer.base_offset if known else -1
            self.succeed(batch, base_offset, answer.log_append_time_ms, now)
            return
        if outcome is Outcome.SPLIT:
            self._split(batch, queue, now)
            return
        error = self._error(batch, code, _reason(answer), fatal=outcome is Outcome.FATAL)
        self._last_error = error
        if code.refresh_metadata and not new_leader:
            self._metadata.request_update()
        if outcome is Outcome.REWRITE or outcome is Outcome.SEQUENCE_LOST:
            queue.lose_sequence(batch, code)
        self._do(outcome, batch, error, now, at_once=new_leader)

    def _facts(self, batch: ProducerBatch, queue: PartitionQueue, now: float) -> Facts:
        waited_s = now - batch.unanswered_at
        # A late copy of a failed request might arrive after the abort's marker, and become part of
        # the next transaction. In protocol v2 the broker refuses it for its epoch.
        abort_waits = (
            batch.may_be_stored
            and not queue.is_broken
            and not self._transactions.produce_adds_partitions
        )
        return Facts(
            idempotent=batch.identity is not None,
            transactional=self._transactions.transactional,
            several_records=batch.count > 1,
            first_unresolved=queue.is_first_unresolved(batch),
            may_be_stored=batch.may_be_stored or batch.in_doubt,
            late_copies=not batch.in_doubt and waited_s < self._config.request_timeout_ms / 1000,
            aborted=self._accumulator.aborting is not None and not abort_waits,
            retries_left=batch.attempts <= self._config.retries,
        )

    def _do(
        self,
        outcome: Outcome,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        *,
        at_once: bool,
    ) -> None:
        """Send the batch again, or end it."""
        if outcome is Outcome.RETRY or outcome is Outcome.REWRITE:
            self._metrics.batch_retried(batch.tp.topic, batch.count, now)
            # If an earlier batch has to be retried first, the backoff of that one counts.
            self._accumulator.put_back(
                batch, 0.0 if at_once else now + self._backoff.seconds(batch.attempts)
            )
        elif outcome is Outcome.ABORT:
            assert self._accumulator.aborting is not None
            self.fail(batch, self._accumulator.aborting, BatchState.ABORTED)
        elif outcome is Outcome.FATAL:
            self._transactions.batch_failed(batch, error)
            self._transactions.fail(error)
        else:
            self.fail(batch, error)

    def _split(self, batch: ProducerBatch, queue: PartitionQueue, now: float) -> None:
        topic = queue.topic
        if not topic.split_noted and not batch.grown:
            topic.split_noted = True
            log.warning(
                (
                    "%s: topic %r: the broker refused a batch of %d bytes as too large; sending it "
                    "in smaller batches. Raise the topic's max.message.bytes, or lower "
                    "batch_size=%d (logged once)"
                ),
                self._config.client_id,
                topic.name,
                len(batch.encoded or b""),
                self._config.batch_size,
            )
        self._metrics.batch_split(now)
        self._accumulator.split(batch)

    # -- ends of batches ---------------------------------------------------------------------------

    def succeed(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float
    ) -> None:
        """End a batch that is stored."""
        # As end_by() does, without objects for the steps: that takes 1 us for a record that is
        # awaited alone.
        try:
            try:
                self._accumulator.stored(batch, now)
            finally:
                try:
                    if self._transactional:
                        self._transactions.batch_stored()
                finally:
                    batch.succeed(base_offset, log_append_time)
        except BaseException as bug:
            batch.fail_by(bug)
            raise

    def fail(
        self, batch: ProducerBatch, error: KafkaError, state: BatchState = BatchState.FAILED
    ) -> None:
        """End a batch that is not sent again."""
        batch.end_by(
            partial(self._transactions.batch_failed, batch, error),
            partial(self._accumulator.given_up, batch),
            partial(batch.fail, error, state),
        )

    def expire(self, batch: ProducerBatch, now: float, reason: KafkaError | None) -> None:
        """End a batch after its ``delivery_timeout_ms``; ``reason`` is the cause, if known."""
        because = self._last_error or reason
        error = DeliveryTimeoutError(
            f"{_records_of(batch)} not acknowledged after {(now - batch.created_at) * 1000:.0f} ms "
            f"(delivery_timeout_ms={self._config.delivery_timeout_ms}, "
            f"{counted(batch.attempts, 'attempt')})" + (f": {because}" if because else "")
        )
        self.fail(batch, error)

    def _error(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None, *, fatal: bool
    ) -> KafkaError:
        where = _records_of(batch) + (f" ({message})" if message else "")
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


def _records_of(batch: ProducerBatch) -> str:
    return f"{counted(batch.count, 'record')} to {batch.tp.topic}-{batch.tp.partition}"


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
        reasons.append(counted(len(answer.record_errors) - _RECORD_ERRORS_SHOWN, "more record"))
    return "; ".join(reasons) or None
