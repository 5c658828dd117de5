"""Which partition a record goes to."""

from __future__ import annotations

import random
from typing import Protocol

from murmurhash2 import murmurhash2

# The seed of Kafka's own murmur2: another one would send keys elsewhere than Java does.
_SEED = 0x9747B28C


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner takes for ``key``."""
    return (murmurhash2(key, _SEED) & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    """A custom choice of partitions (``partitioner.class``)."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        """A number from 0 to ``partitions`` - 1."""
        ...


class StickyPartition:
    """The partition that keyless records of one topic stick to (KIP-794).

    It changes after about ``batch_size`` bytes, to another one that has a leader, so batches are full and the load is even.
    """

    __slots__ = ("_batch_size", "_bytes", "_rng", "current")

    def __init__(self, batch_size: int, rng: random.Random) -> None:
        self._batch_size = batch_size
        self._rng = rng
        self._bytes = 0
        self.current = -1

    def used(self, size: int, available: list[int]) -> None:
        """Note that a batch of ``size`` bytes was sent there; after ``batch_size`` bytes another partition is due."""
        self._bytes += size
        if self._bytes >= self._batch_size:
            self.switch(available)

    def switch(self, available: list[int]) -> int:
        """Choose another partition of those available."""
        self._bytes = 0
        if len(available) > 1:
            others = [partition for partition in available if partition != self.current]
            self.current = self._rng.choice(others)
        else:
            self.current = available[0]
        return self.current
