"""Waits until the coordinator has ended the previous transaction, where that saves time.

In the second protocol (KIP-890) a commit returns before the coordinator has written the markers,
and a broker adds a partition to the next transaction when the first records arrive. If they arrive
too early, the broker tries again after 20 ms (``add.partitions.to.txn.retry.backoff.ms``), although
markers take less than one, and replicated ones a few. So after records that came too early, the
producer asks the coordinator before it sends the first records of a transaction. It learns how long
the markers take, so that one question is usually enough, and stops asking when many transactions in
a row had ended at the first question.
"""

from __future__ import annotations

import asyncio
import math

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.producer.transactions.calls import CoordinatorRequests
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest

# Less than the broker's pause, and more than what a marker takes.
_TOO_EARLY_S = 0.018
# The broker itself tries for 100 ms (add.partitions.to.txn.retry.backoff.max.ms).
_LIMIT_S = 0.1
# Between questions. The first repetition comes at once, as timers have whole milliseconds.
_PAUSES_S = (0.0, 0.001, 0.002, 0.004, 0.008)
# A question costs less than a tenth of the broker's pause.
_QUESTIONS = 16
_LONGEST_MARKERS_S = 0.008
_WEIGHT = 0.1
_ENDING = "Prepare"  # the first word of the states in which the coordinator writes markers


class PreviousEnd:
    """The end of a producer's previous transaction (second protocol).

    Attributes:
        awaited: whether the first records of a transaction have to wait for :meth:`wait`.
    """

    def __init__(self, transactional_id: str, coordinators: CoordinatorRequests) -> None:
        self.awaited: bool = False
        self._id = transactional_id
        self._coordinators = coordinators
        self._questions = 0  # transactions that are asked about, unless one has not ended
        self._markers_s = 0.0
        self._end_s = math.inf
        self._ended_at = -math.inf
        self._sent_at: float | None = None

    def ended(self, asked_at: float, now: float) -> None:
        """Note that the coordinator has answered the EndTxn that was sent at ``asked_at``."""
        self.awaited, self._sent_at = self._questions > 0, None
        self._end_s, self._ended_at = now - asked_at, now

    def first_sent(self, now: float) -> None:
        """Note that the first records of a transaction are sent."""
        self._sent_at = now

    def stored(self, now: float) -> None:
        """Note that records are stored: those of the first call after :meth:`first_sent` count."""
        if self._sent_at is not None:
            # Both requests wait for the coordinator's log, so only a pause makes them so different.
            if now - self._sent_at > self._end_s + _TOO_EARLY_S:
                self._questions = _QUESTIONS
            self._sent_at = None

    async def wait(self) -> None:
        """Return when the coordinator has ended the transaction, or after 0.1 s, or after an error:
        brokers check the next transaction themselves.
        """
        loop, repetitions = asyncio.get_running_loop(), 0
        try:
            async with asyncio.timeout(_LIMIT_S):
                await _sleep_whole_ms(self._ended_at + self._markers_s - loop.time())
                while await self._is_ending():
                    await asyncio.sleep(_PAUSES_S[min(repetitions, len(_PAUSES_S) - 1)])
                    repetitions += 1
        except (KafkaError, TimeoutError):
            self._questions = 0
        else:
            self._learn(repetitions, loop.time() - self._ended_at)
        self.awaited = False

    def _learn(self, repetitions: int, took_s: float) -> None:
        if repetitions:
            self._questions = _QUESTIONS
            self._markers_s += _WEIGHT * (min(took_s, _LONGEST_MARKERS_S) - self._markers_s)
        else:
            self._questions -= 1
            self._markers_s -= _WEIGHT * self._markers_s

    async def _is_ending(self) -> bool:
        reply = await self._coordinators.request(
            CoordinatorType.TRANSACTION,
            self._id,
            lambda peer: (
                DescribeTransactionsRequest([self._id]),
                peer.pick_version(DescribeTransactionsRequest),
            ),
        )
        for described in reply.transaction_states:
            if described.error_code:
                raise BrokerError(ErrorCode.of(described.error_code), "DescribeTransactions")
            if described.transaction_state.startswith(_ENDING):
                return True
        return False


async def _sleep_whole_ms(delay_s: float) -> None:
    """Sleep for the nearest number of milliseconds: event loops round up."""
    if (delay_ms := round(delay_s * 1000)) > 0:
        await asyncio.sleep(delay_ms / 1000)
