"""The task that pushes the metrics of a client to a broker (KIP-714)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Mapping

from aioprod._version import __version__
from aioprod.cluster.telemetry_brokers import announces, check_announced
from aioprod.cluster.telemetry_plan import PERSISTENT, Step, Subscription, TelemetryPlan
from aioprod.config.client import ClientConfig
from aioprod.errors import BrokerConnectionError, KafkaError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger
from aioprod.metrics.telemetry import Ledger, MetricValue
from aioprod.metrics.telemetry_source import TelemetrySource
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.protocol.compression import compress
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest
from aioprod.protocol.otlp import MetricsEncoder, Point
from aioprod.protocol.primitives import ZERO_UUID

log: Logger = get_logger(__name__)

#: Maximum size of a push before compression, in bytes. Further metrics, those of topics, are left
#: out.
MAX_UNCOMPRESSED_BYTES = 2 << 20
#: Number of metrics after which other tasks get a turn.
_PORTION = 200


class TelemetryPush:
    """The subscription of one client, and the pushes of its metrics.

    Args:
        config: the settings of the client.
        brokers: the connections.
        rng: source of jitter.
        source: the metrics.
        began_ns: when the client was created, in nanoseconds since 1970.
        known: event that is set when ``instance_id`` is known.

    Attributes:
        instance_id: the id that a broker has assigned to the client.
        closing: set for the last push.
    """

    def __init__(
        self,
        config: ClientConfig,
        brokers: Brokers,
        rng: random.Random,
        source: TelemetrySource,
        began_ns: int,
        known: asyncio.Event,
    ) -> None:
        self.instance_id: uuid.UUID | None = None
        self.closing: asyncio.Event = asyncio.Event()
        self._config = config
        self._brokers = brokers
        self._source = source
        self._known = known
        self._plan = TelemetryPlan(rng, config.retry_backoff_ms)
        self._ledger = Ledger(began_ns)
        self._last_labels: Mapping[str, str] | None = None
        self._connection: Connection | None = None
        self._problem_logged = False

    @property
    def problem(self) -> KafkaError | None:
        """The reason why no metrics are pushed; None if they are."""
        return self._plan.problem

    def keep_labels(self) -> None:
        """Keep the client's labels for the last push."""
        self._last_labels = self._source.labels()

    async def run(self) -> None:
        """Push until the plan or :attr:`closing` ends the task."""
        plan = self._plan
        while plan.step is not Step.STOP:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(plan.pause_s):
                    await self.closing.wait()
            if self.closing.is_set():
                break
            await self._attempt()
        if plan.step is Step.PUSH and self.closing.is_set():
            await self._attempt(last=True)

    async def _attempt(self, *, last: bool = False) -> None:
        """Make the next request; ``last`` marks the client's last push."""
        plan = self._plan
        try:
            connection = await self._connect()
            if plan.step is Step.SUBSCRIBE or plan.subscription is None:
                await self._subscribe(connection)
            else:
                await self._push(connection, plan.subscription, last)
        except KafkaError as error:
            plan.failed(error)
        self._report_problem()

    async def _connect(self) -> Connection:
        """Return the connection of the last request if it is open and can be used, else one to
        another broker that announces the APIs.
        """
        last = self._connection
        if last is None or last.closed or last.silent or self._plan.elsewhere:
            avoid = () if last is None else (last,)
            announcing = filter(announces, self._brokers.open_connections)
            others = [each for each in announcing if each not in avoid and not each.silent]
            found = min(others, key=lambda each: each.in_flight, default=None)
            last = self._connection = found or await self._brokers.any(avoid)
            check_announced(last)
        return last

    async def _subscribe(self, connection: Connection) -> None:
        known = self.instance_id or ZERO_UUID
        reply = await connection.request(GetTelemetrySubscriptionsRequest(known))
        if not reply.error_code and self.instance_id is None:
            if reply.client_instance_id == ZERO_UUID:
                self._plan.nameless(connection.address)
                return
            self.instance_id = reply.client_instance_id
            self._known.set()
        self._plan.subscribed(reply)

    async def _push(
        self,
        connection: Connection,
        subscription: Subscription,
        last: bool,
    ) -> None:
        assert self.instance_id is not None
        time_ns = time.time_ns()
        data, reported = await self._payload(subscription, time_ns)
        reply = await connection.request(
            PushTelemetryRequest(self.instance_id, subscription.id, last, subscription.codec, data)
        )
        if not reply.error_code:
            self._ledger.acknowledged(reported, time_ns)
            self._ledger.trim()
        self._plan.pushed(reply.error_code)

    async def _payload(
        self, subscription: Subscription, time_ns: int
    ) -> tuple[bytes, list[MetricValue]]:
        """Return the encoded metrics to push, and these metrics: as many as the limits allow."""
        limit = MAX_UNCOMPRESSED_BYTES
        while True:
            encoder, reported = await self._encoder(subscription, time_ns, limit)
            data = compress(subscription.codec, encoder.encoded())
            if len(data) <= subscription.max_bytes or not reported:
                return data, reported
            limit = encoder.size // 2

    async def _encoder(
        self, subscription: Subscription, time_ns: int, limit: int
    ) -> tuple[MetricsEncoder, list[MetricValue]]:
        """Encode metrics until ``limit`` bytes are reached; other tasks run in between."""
        delta, wanted = subscription.delta, subscription.selection
        labels = self._source.labels() if self._last_labels is None else self._last_labels
        encoder = MetricsEncoder(labels, ("aioprod", __version__), time_ns, delta=delta)
        reported: list[MetricValue] = []
        for metric in self._source.metrics(wanted):
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
                "%s: metrics are no longer pushed to brokers: %s",
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
