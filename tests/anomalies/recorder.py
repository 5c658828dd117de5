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
        operation = Operation(
            len(self.history.operations),
            client,
            caller,
            self.clock(),
            None,
            Outcome.OPEN,
            transactional=transactional,
            limit=limit,
            lifecycle=lifecycle,
        )
        self.history.operations.append(operation)
        self._running[client] = operation.number
        outcome = Outcome.UNKNOWN
        try:
            async with asyncio.timeout(limit + _CUT_S):
                yield operation
            outcome = Outcome.OK
        except Exception as error:
            operation.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return
        finally:
            self._running.pop(client, None)
            operation.completed = self.clock()
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
