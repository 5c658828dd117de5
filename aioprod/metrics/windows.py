"""Counts in windows of time, as Kafka's metrics keep them: what is asked for is a rate or an
average of the last few windows, and a total.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar


@dataclass(slots=True)
class Sample:
    """What was counted since ``started_at``; fields that end in ``_max`` are maxima, all others are
    sums.
    """

    started_at: float = 0.0


@dataclass(slots=True)
class ProducerSample(Sample):
    """What a producer counts in all."""

    records_sent: int = 0
    records_acknowledged: int = 0
    records_retried: int = 0
    records_failed: int = 0
    batches: int = 0
    batch_bytes: int = 0
    batch_bytes_max: int = 0
    uncompressed_bytes: int = 0
    ratios: float = 0.0
    queue_s: float = 0.0
    queue_s_max: float = 0.0
    splits: int = 0
    requests: int = 0
    request_records: int = 0
    request_bytes: int = 0
    request_bytes_max: int = 0
    answers: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    throttle_ms: int = 0
    throttle_ms_max: int = 0
    buffer_wait_s: float = 0.0
    buffer_exhausted: int = 0
    opened: int = 0
    closed: int = 0


@dataclass(slots=True)
class TopicSample(Sample):
    """What it counts by topic."""

    records_sent: int = 0
    records_acknowledged: int = 0
    records_retried: int = 0
    records_failed: int = 0
    batches: int = 0
    batch_bytes: int = 0
    ratios: float = 0.0


@dataclass(slots=True)
class NodeSample(Sample):
    """What it counts by broker."""

    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = 0
    answers: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    throttle_ms: int = 0
    throttle_ms_max: int = 0


@dataclass(slots=True)
class ConsumerSample(Sample):
    """What a consumer counts in all."""

    records: int = 0
    fetches: int = 0
    fetched_bytes: int = 0
    fetched_bytes_max: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    polls: int = 0
    poll_wait_s: float = 0.0


@dataclass(slots=True)
class ConsumedTopicSample(Sample):
    """What it counts by topic."""

    records: int = 0
    fetched_bytes: int = 0


SampleT = TypeVar("SampleT", bound=Sample)
_KINDS: tuple[type[Sample], ...] = (
    ProducerSample,
    TopicSample,
    NodeSample,
    ConsumerSample,
    ConsumedTopicSample,
)
_SUMS = {
    kind: tuple(
        field.name
        for field in fields(kind)
        if field.name != "started_at" and not field.name.endswith("_max")
    )
    for kind in _KINDS
}
_MAXIMA = {
    kind: tuple(field.name for field in fields(kind) if field.name.endswith("_max"))
    for kind in _KINDS
}


def _merged(kind: type[SampleT], samples: Iterable[SampleT]) -> SampleT:
    total = kind()
    sums, maxima = _SUMS[kind], _MAXIMA[kind]
    for sample in samples:
        for name in sums:
            setattr(total, name, getattr(total, name) + getattr(sample, name))
        for name in maxima:
            setattr(total, name, max(getattr(total, name), getattr(sample, name)))
    return total


class Windows(Generic[SampleT]):
    """The last few windows of one thing's counts, and the sum of all that went before.

    An event costs an addition in the current sample and nothing else: totals are summed up when
    somebody asks. ``_state`` is only ever replaced as a whole, so another thread may read at any
    time.
    """

    __slots__ = ("_count", "_kind", "_state", "_window_s", "current", "ends_at")

    def __init__(self, kind: type[SampleT], window_s: float, count: int) -> None:
        self._kind = kind
        self._window_s = window_s
        self._count = count
        self._state: tuple[SampleT, tuple[SampleT, ...]] = (kind(), ())
        self.current = kind()
        self.ends_at = float("-inf")

    def turn(self, now: float) -> SampleT:
        """Begin a new window."""
        past, samples = self._state
        kept = samples[max(0, len(samples) - self._count + 1) :]
        dropped = samples[: len(samples) - len(kept)]
        self.current = self._kind(started_at=now)
        self.ends_at = now + self._window_s
        self._state = (
            _merged(self._kind, (past, *dropped)) if dropped else past,
            (*kept, self.current),
        )
        return self.current

    def read(self, now: float) -> tuple[SampleT, SampleT, float]:
        """Everything since the beginning, what the windows hold, and the seconds that these stand
        for.
        """
        past, samples = self._state
        live = [
            sample for sample in samples if now - sample.started_at < self._window_s * self._count
        ]
        elapsed = max(now - live[0].started_at, 0.0) if live else 0.0
        # As in Kafka: all windows but the current one count as full, or the first events would make
        # an absurd rate.
        missing = self._count - 1 - int(elapsed / self._window_s)
        elapsed += max(missing, 0) * self._window_s
        return _merged(self._kind, (past, *samples)), _merged(self._kind, live), max(elapsed, 1.0)
