"""Records the operations of clients as a history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from tests.anomalies.history import (
    History,
    Operation,
    Outcome,
    Owner,
    Partition,
    Repositioned,
)

_CUT_S = 30.0
"""An operation that exceeds its limit by this time is cancelled."""


class Recorder:
    """Adds operations to a history at their invocation, and notes how they end.

    Args:
        clock: the clock of all clients, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self.clock = clock
        self._running: dict[str, int] = {}

    @asynccontextmanager
    async def operation(
        self,
        client: str,
        caller: int,
        limit: float,
        *,
        transactional: bool = False,
        lifecycle: bool = False,
    ) -> AsyncIterator[Operation]:
        """Record what the block does. An exception leaves the outcome unknown."""
        operation = self.began(client, self.clock(), limit)
        operation.caller = caller
        operation.transactional, operation.lifecycle = transactional, lifecycle
        outcome = Outcome.UNKNOWN
        try:
            async with asyncio.timeout(limit + _CUT_S):
                yield operation
            outcome = Outcome.OK
        except Exception as error:
            operation.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return
        finally:
            self.ended(operation, self.clock(), outcome)

    def began(self, client: str, at: float, limit: float) -> Operation:
        """Add an operation of a client's only caller, which began at this time."""
        number = len(self.history.operations)
        operation = Operation(number, client, 0, at, None, Outcome.OPEN, limit=limit)
        self.history.operations.append(operation)
        self._running[client] = number
        return operation

    def ended(self, operation: Operation, at: float, outcome: Outcome) -> None:
        """Note that an operation ended. An outcome that was noted before counts."""
        self._running.pop(operation.client, None)
        operation.completed = at
        if operation.outcome is Outcome.OPEN:
            operation.outcome = outcome

    def assigned(
        self, client: str, group: str, generation: int, partitions: Iterable[Partition]
    ) -> None:
        """Note that a member was assigned partitions, from the poll on that runs, if one does."""
        assigned = frozenset(partitions)
        number = self._running.get(client, len(self.history.operations))
        self.history.repositioned.append(Repositioned(number, client, assigned))
        self.history.owners += [
            Owner(group, generation, partition, client) for partition in assigned
        ]
