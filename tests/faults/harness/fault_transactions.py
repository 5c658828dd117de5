"""Load in transactions: several are committed, some aborted, and whoever fails is followed by a new
producer of the same id.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from aioprod import AbortableTransactionError, KafkaError, KafkaTimeoutError, Producer
from tests.faults.harness.fault_load import PARTITIONS, AioprodLoad
from tests.simulation.history import TransactionOutcome, error_name

_RECORDS = 18
_PACE_SECONDS = 0.01
# A transaction's end waits for markers in all its partitions: as long as any of them has no leader.
_CALL_SECONDS = 60.0
_MOST_TRIES = 5


class TransactionLoad(AioprodLoad):
    """One producer's transactions, one after another.

    Attributes:
        ends: how many ended how.
    """

    def __init__(self, servers: str, topic: str, **settings: Any) -> None:
        super().__init__(servers, topic, transactional_id=topic, **settings)
        self.ends: Counter[str] = Counter()
        self._rng = random.Random(1)
        self._number = 0

    async def run(self, stop: asyncio.Event) -> None:
        await self.producer.start()
        try:
            await self._persist("init", self.producer, "init_transactions")
            while not stop.is_set() and self.trace.fatal is None:
                await self._transact()
        finally:
            await self.close()

    async def _transact(self) -> None:
        if await self._persist("begin", self.producer, "begin_transaction") is not None:
            return
        self._number += 1
        trace = self.history.begin(self.name, self._number)
        for number in range(_RECORDS):
            await self.send(number % PARTITIONS, self._number)
            await asyncio.sleep(_PACE_SECONDS)
        outcome = TransactionOutcome.ABORTED
        if self._rng.random() < 0.8:
            self.history.commit_called(trace)
            error = await self._persist("commit", self.producer, "commit_transaction")
            outcome = TransactionOutcome.COMMITTED if error is None else TransactionOutcome.UNKNOWN
            self.ends["committed" if error is None else error_name(error)[:80]] += 1
            if isinstance(error, AbortableTransactionError):
                outcome = TransactionOutcome.ABORTED
        if (
            outcome is TransactionOutcome.ABORTED
            and await self._persist("abort", self.producer, "abort_transaction") is not None
        ):
            outcome = TransactionOutcome.UNKNOWN
        self.ends[outcome.value] += outcome is not TransactionOutcome.COMMITTED
        self.history.end(trace, outcome)

    async def _persist(self, name: str, producer: Producer, method: str) -> KafkaError | None:
        """Make a call, again after a time-out; a fatal error is noted as such."""
        error: KafkaError | None = None
        for _ in range(_MOST_TRIES):
            work: Coroutine[Any, Any, Any] = getattr(producer, method)()
            error = await self.call(name, work, _CALL_SECONDS + 1.0)
            if not isinstance(error, KafkaTimeoutError):
                break
        if error is not None and not isinstance(error, AbortableTransactionError):
            self.trace.fatal = error_name(error)
        return error
