"""Waits until the coordinator has ended the previous transaction, where that saves time.

In the second protocol (KIP-890) a commit returns before the coordinator has written the markers,
and a broker adds a partition to the next transaction when the first records arrive. If they arrive
too early, the broker tries again after 20 ms (``add.partitions.to.txn.retry.backoff.ms``), although
replicated markers take only a few. So after records that came too early, the producer asks the
coordinator before it sends the first records of a transaction. It stops asking when the first
answer says that the previous transaction has ended.
"""

from __future__ import annotations

import asyncio
import math

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.errors import KafkaError
from aioprod.producer.transactions.calls import CoordinatorRequests
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest

# Less than the broker's pause, and more than what a marker takes.
_TOO_EARLY_S = 0.018
# The broker itself tries for 100 ms (add.partitions.to.txn.retry.backoff.max.ms).
_LIMIT_S = 0.1
_PAUSES_S = (0.002, 0.004, 0.008)
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
        self._too_early = False
        self._end_s = math.inf
        self._sent_at: float | None = None

    def ended(self, end_s: float) -> None:
        """Note that the coordinator has answered EndTxn, after ``end_s``."""
        self.awaited, self._end_s, self._sent_at = self._too_early, end_s, None

    def first_sent(self, now: float) -> None:
        """Note that the first records of a transaction are sent."""
        self._sent_at = now

    def stored(self, now: float) -> None:
        """Note that records are stored: those of the first call after :meth:`first_sent` count."""
        if self._sent_at is not None:
            # Both requests wait for the coordinator's log, so only a pause makes them so different.
            if now - self._sent_at > self._end_s + _TOO_EARLY_S:
                self._too_early = True
            self._sent_at = None

    async def wait(self) -> None:
        """Return when the coordinator has ended the transaction, or after 0.1 s, or after an error:
        brokers check the next transaction themselves.
        """
        requests = 0
        try:
            async with asyncio.timeout(_LIMIT_S):
                while await self._is_ending():
                    await asyncio.sleep(_PAUSES_S[min(requests, len(_PAUSES_S) - 1)])
                    requests += 1
        except (KafkaError, TimeoutError):
            requests = 0
        if not requests:
            self._too_early = False
        self.awaited = False

    async def _is_ending(self) -> bool:
        reply = await self._coordinators.request(
            CoordinatorType.TRANSACTION,
            self._id,
            lambda peer: (
                DescribeTransactionsRequest([self._id]),
                peer.pick_version(DescribeTransactionsRequest),
            ),
        )
        return any(
            not described.error_code and described.transaction_state.startswith(_ENDING)
            for described in reply.transaction_states
        )
