"""Shared by all producers, readers and faults of a run: loop, cluster, history, and calls with a
time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from aioprod.errors import KafkaError
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation.loop import SimulatedLoop
from tests.simulation.history import CANCELLED, OK, History, error_name

# A call that exceeds its limit by this is cancelled and reported as hanging.
_HANG_SECONDS = 60.0
# How long a cancelled call may take: `close` waits up to a second for its tasks, twice.
_CLEANUP_SECONDS = 2.5
_PAUSE_SECONDS = 0.1


class Startable(Protocol):
    """A client."""

    async def start(self) -> None:
        """Connect to a broker."""


async def start_client(client: Startable) -> None:
    """Start a client, as soon as a broker answers."""
    while True:
        try:
            await client.start()
        except KafkaError:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


class RunContext:
    """The loop, the cluster and the history of a run."""

    def __init__(self, loop: SimulatedLoop, cluster: EmbeddedCluster, history: History) -> None:
        self.loop = loop
        self.cluster = cluster
        self.history = history

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, including those that are down."""
        return ",".join(self.cluster.address(node) for node in self.cluster.node_ids)

    def start_on_host(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a client on its own host of the simulated network."""
        with self.loop.network.host(name):
            return self.loop.create_task(work, name=name)

    async def call(
        self,
        owner: str,
        name: str,
        work: Coroutine[Any, Any, Any],
        limit: float,
        *,
        cancel_after: float | None = None,
        must_succeed: bool = False,
    ) -> BaseException | None:
        """Make a call in a separate task, cancel it if requested, and return the error that it
        raised.

        Args:
            limit: the time limit in seconds.
            cancel_after: seconds after which the call is cancelled; None for never.
        """
        bound = limit if cancel_after is None else min(limit, cancel_after + _CLEANUP_SECONDS)
        trace = self.history.call(owner, name, bound, must_succeed=must_succeed)
        task = self.loop.create_task(work, name=f"{owner} {name}")
        alarm = None if cancel_after is None else self.loop.call_later(cancel_after, task.cancel)
        await asyncio.wait([task], timeout=limit + _HANG_SECONDS)
        if alarm is not None:
            alarm.cancel()
        if not task.done():
            self.history.note(f"{owner}: {name} hangs", owner)
            task.cancel()
            await asyncio.wait([task], timeout=_HANG_SECONDS)
            return TimeoutError(name)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.history.returned(
            trace, OK if error is None else CANCELLED if task.cancelled() else error_name(error)
        )
        if error is not None and not isinstance(
            error, KafkaError | TimeoutError | asyncio.CancelledError | OSError
        ):
            self.history.unexpected_log.append(f"{owner}: {name} raised {error!r}")
        return error
