"""The subscription to metrics of clients, the validation of pushes, and the pushed metrics
(KIP-714).
"""

from __future__ import annotations

import asyncio
import math
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aioprod.codecs import TELEMETRY_CODECS, Codec
from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, CorruptRecordError
from aioprod.protocol.compression import decompress
from aioprod.protocol.messages.push_telemetry import PushTelemetryRequest
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.public_module import set_module
from aioprod.testing.broker.telemetry.otlp_reader import PushedMetric, read_metrics

#: The maximum number of pushes that are kept.
MAX_PUSHES = 1_000
CODEC_NAMES = tuple(codec.label for codec in TELEMETRY_CODECS)


@set_module("aioprod.testing")
@dataclass(frozen=True, slots=True)
class MetricsPush:
    """Metrics that a client has pushed to a broker (KIP-714).

    Attributes:
        client_id: the ``client_id`` of the client.
        client_instance_id: the id that the broker has assigned to it.
        node_id: the node that received the push.
        terminating: True if it is the client's last push.
        compression: the codec, such as ``"zstd"``; ``"none"`` for none.
        size_bytes: the (compressed) size of the push.
        labels: the labels that identify the client, such as ``{"group_id": "g"}``.
        metrics: the values.
    """

    client_id: str
    client_instance_id: uuid.UUID
    node_id: int
    terminating: bool
    compression: str
    size_bytes: int
    labels: dict[str, str] = field(default_factory=dict)
    metrics: list[PushedMetric] = field(default_factory=list)

    def value(self, name: str, **labels: str) -> float:
        """Return the value with exactly these labels.

        Raises:
            KeyError: if the push has no such value.
        """
        for metric in self.metrics:
            if metric.name == name and metric.labels == labels:
                return metric.value
        raise KeyError(f"{name} {labels}: not pushed")


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """The metrics to request from all clients: the fields of a response to
    GetTelemetrySubscriptions.
    """

    metrics: tuple[str, ...] = ()
    push_interval_ms: int = 300_000
    delta: bool = True
    max_bytes: int = 1 << 20
    compression_types: tuple[str, ...] = CODEC_NAMES

    @property
    def codecs(self) -> list[int]:
        """The numbers of the accepted codecs."""
        return [Codec.from_name(name).value for name in self.compression_types]

    def id_for(self, client: uuid.UUID) -> int:
        """Return the id, which changes with the content."""
        return zlib.crc32(repr(self).encode() + client.bytes) & 0x7FFFFFFF


@dataclass(slots=True)
class _Client:
    subscription: MetricsSubscription
    got_at: float = -math.inf
    pushed_at: float = -math.inf
    terminating: bool = False


class TelemetryReceiver:
    """The receiver of a cluster, like a ClientTelemetry plugin of Kafka's brokers.

    Args:
        is_announced: True if the brokers announce the APIs.
        new_id: a function that creates ids for clients.

    Attributes:
        subscription: the metrics that are currently requested from clients.
        pushes: the last accepted pushes, oldest first.
    """

    def __init__(self, is_announced: bool, new_id: Callable[[], uuid.UUID]) -> None:
        self.is_announced = is_announced
        self.subscription: MetricsSubscription = MetricsSubscription()
        self.pushes: deque[MetricsPush] = deque(maxlen=MAX_PUSHES)
        self._new_id = new_id
        self._clients: dict[uuid.UUID, _Client] = {}

    def subscribe_to_metrics(
        self,
        metrics: Iterable[str] = ("*",),
        *,
        push_interval_ms: int = 300_000,
        delta: bool = True,
        max_bytes: int = 1 << 20,
        compression_types: Iterable[str] = CODEC_NAMES,
    ) -> None:
        """Ask all clients to push metrics (KIP-714). The cluster must be created with
        ``client_metrics=True``.

        Args:
            metrics: prefixes of the names of metrics; ``"*"`` for all. Empty for none.
            push_interval_ms: the time between two pushes of a client.
            delta: True if sums count since the last push, False if since the client's start.
            max_bytes: the maximum size of a push (broker setting telemetry.max.bytes).
            compression_types: the accepted codecs, the preferred one first.

        Raises:
            ConfigError: if the cluster has no receiver, or an argument is invalid.
        """
        if not self.is_announced:
            raise ConfigError("client_metrics=False: must be True to subscribe to metrics")
        if push_interval_ms < 1 or max_bytes < 1:
            raise ConfigError(
                f"push_interval_ms={push_interval_ms}, max_bytes={max_bytes}: must be at least 1"
            )
        asked = MetricsSubscription(
            tuple(metrics), push_interval_ms, delta, max_bytes, tuple(compression_types)
        )
        _ = asked.codecs  # raises if one is unknown
        self.subscription = asked

    def get(self, client_id: uuid.UUID) -> tuple[uuid.UUID, ErrorCode]:
        """Return the id of a client, and an error if its requests are too frequent."""
        if client_id == ZERO_UUID:
            client_id = self._new_id()
        client = self._client(client_id)
        now = asyncio.get_running_loop().time()
        if now - max(client.got_at, client.pushed_at) < client.subscription.push_interval_ms / 1000:
            return client_id, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        client.got_at = now
        return client_id, ErrorCode.NONE

    def push(self, request: PushTelemetryRequest, client_id: str, node_id: int) -> ErrorCode:
        """Store the metrics of a valid push; return the error code of an invalid one."""
        if request.client_instance_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        client = self._client(request.client_instance_id)
        code = self._check(request, client)
        client.terminating = request.terminating
        if code:
            return code
        codec = Codec(request.compression_type)
        try:
            labels, metrics = read_metrics(decompress(codec, request.metrics))
        except (ValueError, CorruptRecordError):
            return ErrorCode.INVALID_RECORD
        self.pushes.append(
            MetricsPush(
                client_id,
                request.client_instance_id,
                node_id,
                request.terminating,
                codec.label,
                len(request.metrics),
                labels,
                metrics,
            )
        )
        return ErrorCode.NONE

    def _check(self, request: PushTelemetryRequest, client: _Client) -> ErrorCode:
        """Check a push in Kafka's order."""
        now = asyncio.get_running_loop().time()
        asked = client.subscription
        if client.terminating:
            return ErrorCode.INVALID_REQUEST
        in_time = (
            client.got_at > client.pushed_at
            or now - client.pushed_at >= asked.push_interval_ms / 1000
        )
        if in_time:
            client.pushed_at = now
        elif not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != asked.id_for(request.client_instance_id):
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in (Codec.NONE, *asked.codecs):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > asked.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _client(self, client_id: uuid.UUID) -> _Client:
        client = self._clients.get(client_id)
        if client is None or client.subscription != self.subscription:
            client = self._clients[client_id] = _Client(self.subscription)
        return client
