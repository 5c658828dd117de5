"""What all actors of a run share: the cluster, the history, chance, and calls with a limit on their
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aioprod.errors import KafkaError
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation.loop import SimulatedLoop
from tests.simulation.history import CANCELLED, OK, History, error_name

# So much later than it may be a call is given up as hanging.
_HOPELESS_SECONDS = 60.0
# What a cancelled call may take to clean up: closing gives its tasks a second, twice.
_CLEAN_UP_SECONDS = 2.5


class World:
    """One run.

    Attributes:
        loop: with its time, its network and its sources of chance.
    """

    def __init__(self, loop: SimulatedLoop, cluster: EmbeddedCluster, history: History) -> None:
        self.loop = loop
        self.cluster = cluster
        self.history = history

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, also those that are down: as an application's settings name them."""
        return ",".join(self.cluster.address(node) for node in self.cluster.node_ids)

    def start_on_host(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a client on a machine of its own, of which the network knows."""
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
        """Make a call in a task of its own, cancel it where asked, and return what it raised."""
        bound = limit if cancel_after is None else min(limit, cancel_after + _CLEAN_UP_SECONDS)
        trace = self.history.call(owner, name, bound, must_succeed=must_succeed)
        task = self.loop.create_task(work, name=f"{owner} {name}")
        alarm = None if cancel_after is None else self.loop.call_later(cancel_after, task.cancel)
        await asyncio.wait([task], timeout=limit + _HOPELESS_SECONDS)
        if alarm is not None:
            alarm.cancel()
        if not task.done():
            self.history.note(f"{owner}: {name} hangs", owner)
            task.cancel()
            await asyncio.wait([task], timeout=_HOPELESS_SECONDS)
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
