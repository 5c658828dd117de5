"""Counts in time windows, as in Kafka's metrics: totals, and the counts of the last few windows for
rates and averages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Generic, TypeVar


class Sample:
    """Counts since ``started_at``. Fields that end in ``_max`` are maxima, all others are sums."""

    sums: ClassVar[tuple[str, ...]] = ()
    maxima: ClassVar[tuple[str, ...]] = ()

    def __init__(self, started_at: float = 0.0) -> None:
        self.started_at = started_at

    def __init_subclass__(cls) -> None:
        names = [name for name in vars(cls) if not name.startswith("_")]
        cls.sums += tuple(name for name in names if not name.endswith("_max"))
        cls.maxima += tuple(name for name in names if name.endswith("_max"))


class ProducerSample(Sample):
    """Counts of a producer."""

    records_sent = 0
    records_acknowledged = 0
    records_retried = 0
    records_failed = 0
    batches = 0
    batch_bytes = 0
    batch_bytes_max = 0
    uncompressed_bytes = 0
    ratios: float = 0.0
    queue_s: float = 0.0
    queue_s_max: float = 0.0
    splits = 0
    requests = 0
    request_records = 0
    request_bytes = 0
    request_bytes_max = 0
    answers = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    throttle_ms = 0
    throttle_ms_max = 0
    buffer_wait_s: float = 0.0
    buffer_exhausted = 0
    opened = 0
    closed = 0


class TopicSample(Sample):
    """Counts of a producer for a topic."""

    records_sent = 0
    records_acknowledged = 0
    records_retried = 0
    records_failed = 0
    batches = 0
    batch_bytes = 0
    ratios: float = 0.0


class NodeSample(Sample):
    """Counts of a producer for a broker."""

    requests = 0
    request_bytes = 0
    request_bytes_max = 0
    answers = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    throttle_ms = 0
    throttle_ms_max = 0


class ReadingSample(Sample):
    """Counts of a consumer or share consumer."""

    records = 0
    fetches = 0
    fetched_bytes = 0
    fetched_bytes_max = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0
    polls = 0
    poll_wait_s: float = 0.0
    intervals = 0
    interval_s: float = 0.0
    interval_s_max: float = 0.0
    rebalances = 0
    opened = 0
    closed = 0


class ConsumerSample(ReadingSample):
    """Counts of a consumer."""

    commits = 0
    commits_failed = 0
    commit_s: float = 0.0
    commit_s_max: float = 0.0
    rebalances_failed = 0
    rebalance_s: float = 0.0
    rebalance_s_max: float = 0.0
    partitions_lost = 0


class ShareConsumerSample(ReadingSample):
    """Counts of a share consumer."""

    fetched_records = 0
    fetched_records_max = 0
    throttle_ms = 0
    throttle_ms_max = 0
    acknowledgements = 0
    acknowledgements_failed = 0
    accepted = 0
    released = 0
    rejected = 0
    renewed = 0
    heartbeats = 0
    heartbeat_s_max: float = 0.0


class ConsumedTopicSample(Sample):
    """Counts of a consumer or share consumer for a topic."""

    records = 0
    fetched_bytes = 0


class FetchedNodeSample(Sample):
    """Counts of a consumer or share consumer for a broker."""

    fetches = 0
    latency_s: float = 0.0
    latency_s_max: float = 0.0


SampleT = TypeVar("SampleT", bound=Sample)


def _merged(kind: type[SampleT], samples: Iterable[SampleT]) -> SampleT:
    total = kind()
    for sample in samples:
        for name in kind.sums:
            setattr(total, name, getattr(total, name) + getattr(sample, name))
        for name in kind.maxima:
            setattr(total, name, max(getattr(total, name), getattr(sample, name)))
    return total


class Windows(Generic[SampleT]):
    """The last few windows, and the sum of all earlier ones.

    An event only updates the current sample; ``read`` computes totals. ``_state`` is replaced
    atomically, so other threads may read at any time.
    """

    __slots__ = ("_count", "_kind", "_state", "_window_s", "current", "ends_at")

    def __init__(self, kind: type[SampleT], window_s: float, count: int) -> None:
        self._kind = kind
        self._window_s = window_s
        self._count = count
        self._state: tuple[SampleT, tuple[SampleT, ...]] = (kind(), ())
        self.current: SampleT = kind()
        self.ends_at: float = float("-inf")

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
        # As in Kafka, missing earlier windows count as full; otherwise the first events would show
        # as a huge rate.
        missing = self._count - 1 - int(elapsed / self._window_s)
        elapsed += max(missing, 0) * self._window_s
        return _merged(self._kind, (past, *samples)), _merged(self._kind, live), max(elapsed, 1.0)
