"""Pushes the metrics of a client to brokers that ask for them (KIP-714).

Nothing runs until a broker announces the APIs; then one task asks for the subscription, and pushes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Mapping

from aioprod._version import __version__
from aioprod.cluster.telemetry_plan import PERSISTENT, Step, Subscription, TelemetryPlan
from aioprod.config.client import ClientConfig
from aioprod.errors import (
    BrokerConnectionError,
    ConfigError,
    KafkaError,
    UnsupportedVersionError,
    copy_of,
)
from aioprod.logs import get_logger
from aioprod.metrics.telemetry import Ledger, MetricValue, TelemetrySource
from aioprod.net.bounds import TimeLimit
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.protocol.compression import compress
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest
from aioprod.protocol.otlp import MetricsEncoder, Point
from aioprod.protocol.primitives import ZERO_UUID

log = get_logger(__name__)

#: The longest wait for the last push, when a client closes.
LAST_PUSH_MS = 500
#: The most bytes of a push before compression; further metrics, those of topics, are left out.
MAX_UNCOMPRESSED_BYTES = 2 << 20
#: After this number of metrics other tasks run.
_PORTION = 200


class Telemetry:
    """The subscription of one client, and the task that pushes its metrics.

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
        self._source = source
        self._plan = TelemetryPlan(rng, config.retry_backoff_ms)
        self._ledger = Ledger(time.time_ns())
        self._instance_id: uuid.UUID | None = None
        self._last_labels: Mapping[str, str] | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._closing = asyncio.Event()
        self._known = asyncio.Event()
        self._problem_logged = False

    def start(self) -> None:
        """Begin as soon as a broker announces the APIs."""
        self._started = True
        self.connections_changed()

    def connections_changed(self) -> None:
        """Begin if there is a connection to a broker that announces the APIs."""
        if (
            self._started
            and self._task is None
            and self._source is not None
            and any(map(_announces, self._brokers.open_connections))
        ):
            self._begin(self._source)

    def _begin(self, source: TelemetrySource) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(source), name="aioprod-telemetry")
        self._task.add_done_callback(self._ended)

    def client_closes(self) -> None:
        """Keep the client's labels for the last push: a consumer leaves its group before."""
        if self._task is not None and self._source is not None:
            self._last_labels = self._source.labels()

    async def finish(self) -> None:
        """Push a last time what has not been pushed, for at most ``LAST_PUSH_MS``."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_PUSH_MS / 1000)

    async def close(self) -> None:
        """End the task."""
        self._started = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        self._known.set()

    async def instance_id(self, limit_ms: float, limit_name: str) -> uuid.UUID:
        """Return the id that a broker has given the client; see
        :meth:`aioprod.Producer.client_instance_id`.
        """
        if self._source is None:
            raise ConfigError(
                "enable_metrics_push=False: the client gets no instance id; set it to True "
                "(enable.metrics.push)"
            )
        if self._instance_id is None:
            what = "asking for the client instance id"
            async with TimeLimit(limit_ms, what, limit_name, lambda: self._plan.problem):
                if self._task is None:
                    _check_announced(await self._brokers.any())
                    self.connections_changed()
                await self._known.wait()
        if self._instance_id is None:
            problem = self._plan.problem
            raise (
                copy_of(problem)
                if problem is not None
                else KafkaError(
                    "the client instance id is not known, and the client's telemetry task has ended"
                )
            )
        return self._instance_id

    # -- the task ----------------------------------------------------------------------------------

    async def _run(self, source: TelemetrySource) -> None:
        plan = self._plan
        while plan.step is not Step.STOP:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(plan.pause_s):
                    await self._closing.wait()
            if self._closing.is_set():
                break
            await self._attempt(source)
        if plan.step is Step.PUSH and self._closing.is_set():
            await self._attempt(source, last=True)

    async def _attempt(self, source: TelemetrySource, *, last: bool = False) -> None:
        """Make the next request; ``last`` marks the client's last push."""
        plan = self._plan
        try:
            connection = await self._connect()
            if plan.step is Step.SUBSCRIBE or plan.subscription is None:
                await self._subscribe(connection)
            else:
                await self._push(connection, source, plan.subscription, last)
        except KafkaError as error:
            plan.failed(error)
        self._report_problem()

    async def _connect(self) -> Connection:
        """Return the connection of the last request if it is open and of use, else another one to
        a broker that announces the APIs.
        """
        last = self._connection
        if last is None or last.closed or last.silent or self._plan.elsewhere:
            avoid = () if last is None else (last,)
            announcing = filter(_announces, self._brokers.open_connections)
            others = [each for each in announcing if each not in avoid and not each.silent]
            found = min(others, key=lambda each: each.in_flight, default=None)
            last = self._connection = found or await self._brokers.any(avoid)
            _check_announced(last)
        return last

    async def _subscribe(self, connection: Connection) -> None:
        known = self._instance_id or ZERO_UUID
        reply = await connection.request(GetTelemetrySubscriptionsRequest(known))
        if not reply.error_code and self._instance_id is None:
            if reply.client_instance_id == ZERO_UUID:
                self._plan.nameless(connection.address)
                return
            self._instance_id = reply.client_instance_id
            self._known.set()
        self._plan.subscribed(reply)

    async def _push(
        self,
        connection: Connection,
        source: TelemetrySource,
        subscription: Subscription,
        last: bool,
    ) -> None:
        assert self._instance_id is not None
        time_ns = time.time_ns()
        data, reported = await self._payload(source, subscription, time_ns)
        reply = await connection.request(
            PushTelemetryRequest(self._instance_id, subscription.id, last, subscription.codec, data)
        )
        if not reply.error_code:
            self._ledger.acknowledged(reported, time_ns)
            self._ledger.trim()
        self._plan.pushed(reply.error_code)

    async def _payload(
        self, source: TelemetrySource, subscription: Subscription, time_ns: int
    ) -> tuple[bytes, list[MetricValue]]:
        """Return what to push, and the metrics in it: as many as the limits allow."""
        limit = MAX_UNCOMPRESSED_BYTES
        while True:
            encoder, reported = await self._encoder(source, subscription, time_ns, limit)
            data = compress(subscription.codec, encoder.encoded())
            if len(data) <= subscription.max_bytes or not reported:
                return data, reported
            limit = encoder.size // 2

    async def _encoder(
        self, source: TelemetrySource, subscription: Subscription, time_ns: int, limit: int
    ) -> tuple[MetricsEncoder, list[MetricValue]]:
        """Encode metrics until ``limit`` bytes are reached, in turns with other tasks."""
        delta, wanted = subscription.delta, subscription.selection
        labels = source.labels() if self._last_labels is None else self._last_labels
        encoder = MetricsEncoder(labels, ("aioprod", __version__), time_ns, delta=delta)
        reported: list[MetricValue] = []
        for metric in source.metrics(wanted):
            if encoder.size >= limit:
                return encoder, reported
            value, start_ns = self._ledger.count(metric, delta=delta)
            if start_ns is not None:
                start_ns = min(start_ns, time_ns)  # the clock may have been set back
            encoder.add(Point(metric.name, value, metric.labels, start_ns))
            reported.append(metric)
            if len(reported) % _PORTION == 0:
                await asyncio.sleep(0)
        self._ledger.keep(reported, wanted)
        return encoder, reported

    # -- the log -----------------------------------------------------------------------------------

    def _report_problem(self) -> None:
        plan = self._plan
        if plan.problem is None:
            if self._problem_logged:
                self._problem_logged = False
                log.info("%s: metrics are pushed to brokers again", self._config.client_id)
            return
        if plan.step is Step.STOP:
            log.warning(
                "%s: metrics are not pushed to brokers any more: %s",
                self._config.client_id,
                plan.problem,
            )
        elif (
            plan.failures >= PERSISTENT
            and not self._problem_logged
            # Connections log which broker can't be reached.
            and not isinstance(plan.problem, BrokerConnectionError | UnsupportedVersionError)
        ):
            self._problem_logged = True
            log.warning(
                "%s: metrics can't be pushed to brokers: %s; retrying, further failures are not "
                "logged until it succeeds",
                self._config.client_id,
                plan.problem,
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._known.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("the telemetry task failed; metrics are not pushed any more", exc_info=fault)


def _announces(connection: Connection) -> bool:
    return GetTelemetrySubscriptionsRequest.API_KEY in connection.versions


def _check_announced(connection: Connection) -> None:
    if not _announces(connection):
        raise UnsupportedVersionError(
            f"{connection.address} takes no metrics of clients: it needs Kafka 3.7 or newer, and a "
            "metrics reporter with a ClientTelemetry receiver (KIP-714)"
        )
