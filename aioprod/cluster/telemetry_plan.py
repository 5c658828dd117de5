"""Decides when a client requests its telemetry subscription and pushes its metrics, and how each
response changes that (KIP-714). No I/O, and no clock.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, ProtocolError, UnsupportedVersionError
from aioprod.metrics.telemetry import Selection
from aioprod.net.backoff import Backoff
from aioprod.net.bounds import MAX_PUSH_INTERVAL_MS, MIN_PUSH_INTERVAL_MS, bounded
from aioprod.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
)

#: Pause if the interval of the broker is invalid, as in the Java client.
DEFAULT_INTERVAL_MS = 300_000
#: Limit if that of the broker is invalid: the default of its ``telemetry.max.bytes``.
DEFAULT_MAX_BYTES = 1 << 20
#: Consecutive failures after which a problem is reported.
PERSISTENT = 3

_AGAIN_LATER = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.TELEMETRY_TOO_LARGE)
_AGAIN_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of the brokers to metrics of this client.

    Attributes:
        id: changes with the content.
        interval_s: seconds between two pushes.
        max_bytes: the largest push, compressed.
        delta: True if sums count since the last push instead of the client's start.
        codec: the compression of the pushes.
        selection: the metrics to push.
    """

    id: int
    interval_s: float
    max_bytes: int
    delta: bool
    codec: Codec
    selection: Selection


def subscription_of(
    reply: GetTelemetrySubscriptionsResponse, refused: Collection[Codec]
) -> Subscription:
    """Return the subscription in a response. Its codec is the first one that the broker accepts,
    that this client has, and that is not in ``refused``; else none.
    """
    known = {codec.value: codec for codec in Codec}
    codecs = [known[each] for each in reply.accepted_compression_types if each in known]
    interval_ms = reply.push_interval_ms if reply.push_interval_ms > 0 else DEFAULT_INTERVAL_MS
    return Subscription(
        id=reply.subscription_id,
        interval_s=bounded(interval_ms, MIN_PUSH_INTERVAL_MS, MAX_PUSH_INTERVAL_MS),
        max_bytes=reply.telemetry_max_bytes if reply.telemetry_max_bytes > 0 else DEFAULT_MAX_BYTES,
        delta=reply.delta_temporality,
        codec=next((codec for codec in codecs if codec not in refused), Codec.NONE),
        selection=Selection(tuple(reply.requested_metrics)),
    )


class Step(Enum):
    """The step after the pause."""

    SUBSCRIBE = auto()
    PUSH = auto()
    STOP = auto()


class TelemetryPlan:
    """The next step, and the pause before it.

    Args:
        rng: source of jitter.
        first_backoff_ms: the pause after the first failure. It doubles with each further one, up to
            the push interval.

    Attributes:
        step: the next step.
        pause_s: how long to wait before that.
        subscription: the current subscription; None before the first.
        problem: why the last request failed; None if it succeeded.
        failures: number of consecutive requests that failed.
        elsewhere: whether to send the next request to another broker.
    """

    def __init__(self, rng: random.Random, first_backoff_ms: int) -> None:
        self.step: Step = Step.SUBSCRIBE
        self.pause_s: float = 0.0
        self.subscription: Subscription | None = None
        self.problem: KafkaError | None = None
        self.failures: int = 0
        self.elsewhere: bool = False
        self._rng = rng
        self._backoff = Backoff(first_backoff_ms, DEFAULT_INTERVAL_MS, rng)
        self._refused: set[Codec] = set()
        self._asked_at_once = False

    @property
    def interval_s(self) -> float:
        """Seconds between two requests."""
        if self.subscription is None:
            return DEFAULT_INTERVAL_MS / 1000
        return self.subscription.interval_s

    def subscribed(self, reply: GetTelemetrySubscriptionsResponse) -> None:
        """Handle the GetTelemetrySubscriptions response."""
        if reply.error_code:
            self.refused(reply.error_code, "GetTelemetrySubscriptions")
            return
        self._succeeded()
        self.subscription = subscription = subscription_of(reply, self._refused)
        if subscription.selection.prefixes:
            # Random, so that clients that start together do not push together.
            self._next(Step.PUSH, subscription.interval_s * self._rng.uniform(0.5, 1.5))
        else:
            self._next(Step.SUBSCRIBE, subscription.interval_s)

    def pushed(self, code: int) -> None:
        """Handle the error code of a PushTelemetry response."""
        if code:
            self.refused(code, "PushTelemetry")
            return
        self._succeeded()
        self._asked_at_once = False
        self._next(Step.PUSH, self.interval_s)

    def refused(self, number: int, request: str) -> None:
        """Handle the error code of a response."""
        code = ErrorCode.of(number)
        error = BrokerError(code, request)
        if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and self.subscription is not None:
            self._refused.add(self.subscription.codec)
        if code in _AGAIN_AT_ONCE:
            self._failed(error)
            at_once = self.step is Step.PUSH and not self._asked_at_once
            self._asked_at_once = True
            self._next(Step.SUBSCRIBE, 0.0 if at_once else self.interval_s)
        elif code in _AGAIN_LATER:
            self._failed(error)
            self._next(Step.SUBSCRIBE, self.interval_s)
        elif code.retriable:
            self.failed(error)
        else:
            self._failed(error)
            self._next(Step.STOP, 0.0)

    def failed(self, error: KafkaError) -> None:
        """Handle the failure of a request: retry it with another broker."""
        self._failed(error)
        self.elsewhere = True
        if isinstance(error, UnsupportedVersionError):
            # This broker has no receiver of metrics; another one may have one.
            self._next(self.step, DEFAULT_INTERVAL_MS / 1000)
        else:
            self._next(self.step, min(self._backoff.seconds(self.failures), self.interval_s))

    def nameless(self, address: str) -> None:
        """Handle a response without a client instance id."""
        self.failed(ProtocolError(f"{address}: GetTelemetrySubscriptions without an instance id"))

    def _succeeded(self) -> None:
        self.failures, self.problem, self.elsewhere = 0, None, False

    def _failed(self, error: KafkaError) -> None:
        self.failures += 1
        self.problem = error
        self.elsewhere = False

    def _next(self, step: Step, pause_s: float) -> None:
        self.step, self.pause_s = step, pause_s
