"""Load in transactions: most are committed, some aborted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from aioprod import AbortableTransactionError, KafkaError, KafkaTimeoutError, Producer
from tests.faults.harness.cluster_control import PARTITIONS
from tests.faults.harness.loads import AioprodLoad
from tests.simulation.history import TransactionOutcome, error_name

_RECORDS = 18
_PACE_SECONDS = 0.01
# The end of a transaction waits until each of its partitions has a leader.
_CALL_SECONDS = 60.0
_MAX_TRIES = 5


class TransactionLoad(AioprodLoad):
    """Runs transactions of one producer in sequence.

    Attributes:
        outcomes: the number of transactions by outcome.
    """

    def __init__(self, servers: str, topic: str, **settings: Any) -> None:
        super().__init__(servers, topic, transactional_id=topic, **settings)
        self.outcomes: Counter[str] = Counter()
        self._rng = random.Random(1)
        self._number = 0

    async def run(self, stop: asyncio.Event) -> None:
        await self.producer.start()
        try:
            await self._call_until_done("init", self.producer, "init_transactions")
            while not stop.is_set() and self.trace.fatal is None:
                await self._transact()
        finally:
            await self.close()

    async def _transact(self) -> None:
        if await self._call_until_done("begin", self.producer, "begin_transaction") is not None:
            return
        self._number += 1
        trace = self.history.begin(self.name, self._number)
        for number in range(_RECORDS):
            await self.send(number % PARTITIONS, self._number)
            await asyncio.sleep(_PACE_SECONDS)
        outcome = TransactionOutcome.ABORTED
        if self._rng.random() < 0.8:
            self.history.commit_called(trace)
            error = await self._call_until_done("commit", self.producer, "commit_transaction")
            outcome = TransactionOutcome.COMMITTED if error is None else TransactionOutcome.UNKNOWN
            self.outcomes["committed" if error is None else error_name(error)[:80]] += 1
            if isinstance(error, AbortableTransactionError):
                outcome = TransactionOutcome.ABORTED
        if (
            outcome is TransactionOutcome.ABORTED
            and await self._call_until_done("abort", self.producer, "abort_transaction") is not None
        ):
            outcome = TransactionOutcome.UNKNOWN
        self.outcomes[outcome.value] += outcome is not TransactionOutcome.COMMITTED
        self.history.end(trace, outcome)

    async def _call_until_done(
        self, name: str, producer: Producer, method: str
    ) -> KafkaError | None:
        """Repeat a call after timeouts; record a fatal error."""
        error: KafkaError | None = None
        for _ in range(_MAX_TRIES):
            work: Coroutine[Any, Any, Any] = getattr(producer, method)()
            error = await self.call(name, work, _CALL_SECONDS + 1.0)
            if not isinstance(error, KafkaTimeoutError):
                break
        if error is not None and not isinstance(error, AbortableTransactionError):
            self.trace.fatal = error_name(error)
        return error
