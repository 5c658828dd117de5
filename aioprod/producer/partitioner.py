"""Partitioners, which choose a record's partition."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Self, cast

from aioprod import native
from aioprod.producer.shared_fields import StickyFields
from aioprod.public_module import set_module
from aioprod.types import ProducerRecord

# The seed of Kafka's murmur2, so that keys go to the same partitions as in Java.
_SEED = 0x9747B28C
_MOST_KEYS = 16_384
_LONGEST_KEPT_KEY = 64
_NO_RECORD: Final = ProducerRecord("")


@native.accelerated
def murmur2(key: bytes) -> int:
    """Hash a key as Java's default partitioner does, without the sign."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = _SEED ^ len(key)
    whole = len(key) & ~3
    for word in struct.unpack(f"<{whole // 4}I", key[:whole]):
        word = word * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = (found * multiplier & mask) ^ word
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return (found ^ found >> 15) & 0x7FFFFFFF


class _KeyHashes(dict[bytes, int]):
    """Caches the hashes of recent keys, because :func:`murmur2` in Python takes 1.5 us for a key of
    16 bytes.
    """

    def __missing__(self, key: bytes) -> int:
        found = murmur2(key)
        if len(key) <= _LONGEST_KEPT_KEY:
            if len(self) >= _MOST_KEYS:
                self.clear()
            self[key] = found
        return found


key_hash: Final[Callable[[bytes], int]] = murmur2 if native.in_use else _KeyHashes().__getitem__
"""The fastest available function that hashes a key."""


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for ``key``."""
    return key_hash(key) % partitions


@set_module("aioprod.producer")
class Partitions(int):
    """The number of a topic's partitions, with the cluster's state and the record.

    Attributes:
        available: the partitions that have a leader, in order; may be empty.
        leaders: the node id of each partition's leader; -1 if it has none.
        record: the record after the interceptors and before serialization: ``record.key`` and
            ``record.value`` are the application's objects.
    """

    available: Sequence[int]
    leaders: Sequence[int]
    record: ProducerRecord

    def __new__(
        cls,
        count: int,
        available: Sequence[int],
        leaders: Sequence[int] = (),
        record: ProducerRecord = _NO_RECORD,
    ) -> Self:
        self = super().__new__(cls, count)
        self.available = available
        self.leaders = leaders
        self.record = record
        return self

    @property
    def count(self) -> int:
        """The number of partitions."""
        return int(self)


@set_module("aioprod.producer")
class Partitioner(Protocol):
    """A custom partitioner (``partitioner.class``). Only ``partition`` is required.

    It may also have

    - ``on_new_batch(topic, partition)``, called when the last batch of a partition is closed,
      because it was full or had lingered, and a record is about to open another one.
      The producer then calls ``partition`` again for that record, so that a sticky choice can
      change. (Not for records that have waited for buffer memory: they keep their partition, or
      they would lose their order.) Without this method, ``partition`` is called exactly once for
      each record.
    - ``configure(settings)``, called once if the producer made it from a class or an import path,
      and ``close()``.
    """

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions, /
    ) -> int:
        """Return the partition, from 0 to ``partitions`` - 1.

        Args:
            key: the serialized key, or the record's ``partition_key``.
            value: the serialized value.
            partitions: the number of partitions, with leaders and the record as attributes.
        """
        ...


def new_batch_hook(partitioner: Partitioner) -> Callable[[str, int], None] | None:
    """Return the partitioner's ``on_new_batch``, if it has one."""
    return cast("Callable[[str, int], None] | None", getattr(partitioner, "on_new_batch", None))


@set_module("aioprod.producer")
class RoundRobinPartitioner(Partitioner):
    """Sends each record to the next available partition, regardless of its key (Java's
    RoundRobinPartitioner).
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions, /
    ) -> int:
        """Return the next available partition, or the next of all if none is available."""
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        available = partitions.available
        return available[turn % len(available)] if available else turn % partitions


class StickyPartition(StickyFields):
    """The partition that keyless records of one topic stick to (KIP-794).

    It changes after about ``batch_size`` bytes to one that has a leader, so that batches are full
    and the load is even.

    Args:
        batch_size: bytes for one partition before it changes.
        rng: source of the choice.
        adaptive: prefer partitions whose queues are short
            (``partitioner.adaptive.partitioning.enable``).
    """

    __slots__ = ("_adaptive", "_batch_size", "_bytes", "_rng")

    def __init__(self, batch_size: int, rng: random.Random, adaptive: bool = True) -> None:
        self._batch_size = batch_size
        self._rng = rng
        self._adaptive = adaptive
        self._bytes = 0
        self.current: int = -1

    def used(self, size: int) -> bool:
        """Note a batch of ``size`` bytes that was sent there; return whether to switch, as after
        ``batch_size`` bytes.
        """
        self._bytes += size
        return self._bytes >= self._batch_size

    def switch(
        self,
        available: Sequence[int],
        queue_length: Callable[[int], int] | None = None,
        longest: int = 0,
    ) -> int:
        """Choose the next partition.

        If nothing is queued, or the choice is not adaptive, all other partitions are equally
        likely. Otherwise a partition has the weight ``longest + 1 - queue_length(partition)``, and
        the current one may be chosen again. If it were excluded, each of two partitions would get
        half of the records, regardless of their queues.

        Args:
            available: the partitions to choose from, at least one.
            queue_length: returns how many batches wait for a partition; None if nothing waits.
            longest: the largest of these numbers, or more.
        """
        self._bytes = 0
        if len(available) == 1:
            self.current = available[0]
        elif self._adaptive and queue_length is not None and longest > 0:
            self.current = self._by_weight(available, queue_length, longest + 1)
        else:
            self.current = self._another(available)
        return self.current

    def _another(self, available: Sequence[int]) -> int:
        count = len(available)
        while True:
            partition = available[int(self._rng.random() * count)]
            if partition != self.current:
                return partition

    def _by_weight(
        self, available: Sequence[int], queue_length: Callable[[int], int], most: int
    ) -> int:
        # Rejection sampling: a draw is kept with probability weight / most, without a sum over
        # thousands of partitions. If nearly all queues are long, it could take many draws; then the
        # sum is cheaper, and gives the same distribution.
        count = len(available)
        for _ in range(count):
            draw = self._rng.random() * count
            partition = available[int(draw)]
            if draw % 1 * most < max(most - queue_length(partition), 1):
                return partition
        weights = [max(most - queue_length(partition), 1) for partition in available]
        return self._rng.choices(available, weights)[0]
