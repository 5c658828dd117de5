"""Counts in time windows, as in Kafka's metrics: totals, and rates and averages of the last few
windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar


@dataclass(slots=True)
class Sample:
    """Counts since ``started_at``. Fields that end in ``_max`` are maxima, all others are sums."""

    started_at: float = 0.0


@dataclass(slots=True)
class ProducerSample(Sample):
    """Counts of a producer."""

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
    """Counts of a producer for a topic."""

    records_sent: int = 0
    records_acknowledged: int = 0
    records_retried: int = 0
    records_failed: int = 0
    batches: int = 0
    batch_bytes: int = 0
    ratios: float = 0.0


@dataclass(slots=True)
class NodeSample(Sample):
    """Counts of a producer for a broker."""

    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = 0
    answers: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    throttle_ms: int = 0
    throttle_ms_max: int = 0


@dataclass(slots=True)
class ReadingSample(Sample):
    """Counts of a client that reads."""

    records: int = 0
    fetches: int = 0
    fetched_bytes: int = 0
    fetched_bytes_max: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    polls: int = 0
    poll_wait_s: float = 0.0
    intervals: int = 0
    interval_s: float = 0.0
    interval_s_max: float = 0.0
    rebalances: int = 0
    opened: int = 0
    closed: int = 0


@dataclass(slots=True)
class ConsumerSample(ReadingSample):
    """Counts of a consumer."""

    commits: int = 0
    commits_failed: int = 0
    commit_s: float = 0.0
    commit_s_max: float = 0.0
    rebalances_failed: int = 0
    rebalance_s: float = 0.0
    rebalance_s_max: float = 0.0
    partitions_lost: int = 0


@dataclass(slots=True)
class ShareConsumerSample(ReadingSample):
    """Counts of a share consumer."""

    fetched_records: int = 0
    fetched_records_max: int = 0
    throttle_ms: int = 0
    throttle_ms_max: int = 0
    acknowledgements: int = 0
    acknowledgements_failed: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    heartbeats: int = 0
    heartbeat_s_max: float = 0.0


@dataclass(slots=True)
class ConsumedTopicSample(Sample):
    """Counts of a client that reads, for a topic."""

    records: int = 0
    fetched_bytes: int = 0


@dataclass(slots=True)
class FetchedNodeSample(Sample):
    """Counts of a client that reads, for a broker."""

    fetches: int = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0


SampleT = TypeVar("SampleT", bound=Sample)
_KINDS: tuple[type[Sample], ...] = (
    ProducerSample,
    TopicSample,
    NodeSample,
    ConsumerSample,
    ShareConsumerSample,
    ConsumedTopicSample,
    FetchedNodeSample,
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
    """The last few windows, and the sum of all earlier ones.

    An event only adds to the current sample; ``read`` computes totals. ``_state`` is replaced as a
    whole, so other threads may read at any time.
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
        """Start a new window."""
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
        """Return the totals, the counts of the windows, and their duration in seconds."""
        past, samples = self._state
        live = [
            sample for sample in samples if now - sample.started_at < self._window_s * self._count
        ]
        elapsed = max(now - live[0].started_at, 0.0) if live else 0.0
        # As in Kafka, earlier windows count as full: otherwise the first events would be a huge
        # rate.
        missing = self._count - 1 - int(elapsed / self._window_s)
        elapsed += max(missing, 0) * self._window_s
        return _merged(self._kind, (past, *samples)), _merged(self._kind, live), max(elapsed, 1.0)
