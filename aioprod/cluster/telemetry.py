"""Pushes the metrics of a client to brokers that request them (KIP-714).

Until a broker announces the APIs, no task runs, and neither :mod:`aioprod.cluster.telemetry_push`
nor :mod:`aioprod.metrics.telemetry` is imported, as few brokers do. Then a task requests the
subscription and pushes metrics.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import TYPE_CHECKING

from aioprod.cluster.telemetry_brokers import announces, check_announced
from aioprod.config.client import ClientConfig
from aioprod.errors import ConfigError, KafkaError, copy_of
from aioprod.logs import Logger, get_logger
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.net.bounds import TimeLimit
from aioprod.net.brokers import Brokers
from aioprod.running_loop import start_task

if TYPE_CHECKING:
    from aioprod.cluster.telemetry_push import TelemetryPush

log: Logger = get_logger(__name__)

#: Limit on the last push, when a client closes.
LAST_PUSH_MS = 500


class Telemetry:
    """Starts and ends the task that pushes the metrics of one client.

    Args:
        config: the settings of the client.
        brokers: the connections.
        rng: source of jitter.
        source: the metrics; None if the client pushes none (``enable_metrics_push``).
    """

    def __init__(
        self,
        config: ClientConfig,
        brokers: Brokers,
        rng: random.Random,
        source: TelemetrySource | None,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._rng = rng
        self._source = source
        self._began_ns = time.time_ns()
        self._push: TelemetryPush | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._known = asyncio.Event()

    def start(self) -> None:
        """Start the task as soon as a broker announces the APIs."""
        self._started = True
        self.connections_changed()

    def connections_changed(self) -> None:
        """Start the task if there is a connection to a broker that announces the APIs."""
        if (
            self._started
            and self._push is None
            and self._source is not None
            and any(map(announces, self._brokers.open_connections))
        ):
            self._begin(self._source)

    def _begin(self, source: TelemetrySource) -> None:
        from aioprod.cluster.telemetry_push import TelemetryPush

        self._push = push = TelemetryPush(
            self._config, self._brokers, self._rng, source, self._began_ns, self._known
        )
        self._task = start_task(push.run(), name="aioprod-telemetry")
        self._task.add_done_callback(self._ended)

    def client_closes(self) -> None:
        """Keep the client's labels for the last push: a consumer leaves its group before it."""
        if self._push is not None:
            self._push.keep_labels()

    async def finish(self) -> None:
        """Push the metrics for the last time, for at most ``LAST_PUSH_MS``."""
        self._started = False
        if self._push is not None and self._task is not None:
            self._push.closing.set()
            await asyncio.wait([self._task], timeout=LAST_PUSH_MS / 1000)

    async def close(self) -> None:
        """End the task."""
        self._started = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        self._known.set()

    async def instance_id(self, limit_ms: float, limit_name: str) -> uuid.UUID:
        """Return the id that a broker has assigned to the client; see
        :meth:`aioprod.Producer.client_instance_id`.
        """
        if self._source is None:
            raise ConfigError(
                "enable_metrics_push=False: the client gets no instance id; set it to True "
                "(enable.metrics.push)"
            )
        known = self._push.instance_id if self._push is not None else None
        if known is None:
            what = "requesting the client instance id"
            async with TimeLimit(limit_ms, what, limit_name, lambda: self._problem):
                if self._push is None:
                    check_announced(await self._brokers.any())
                    self.connections_changed()
                await self._known.wait()
            known = self._push.instance_id if self._push is not None else None
        if known is None:
            problem = self._problem
            raise (
                copy_of(problem)
                if problem is not None
                else KafkaError(
                    "the client instance id is not known, and the client's telemetry task has ended"
                )
            )
        return known

    @property
    def _problem(self) -> KafkaError | None:
        """The reason why no metrics are pushed; None if they are, or before the task starts."""
        return self._push.problem if self._push is not None else None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._known.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error(
                "%s: the telemetry task failed; metrics are no longer pushed",
                self._config.client_id,
                exc_info=fault,
            )
