"""The default partitioner, as in ``aiokafka.partitioner``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aioprod import partition_for_key

__all__ = ["DefaultPartitioner"]


class DefaultPartitioner:
    """Chooses the partition of a key as Java does, and a random available one without a key."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return one of the partitions."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[partition_for_key(key, len(all_partitions))]


class PartitionerOfKafkaPython:
    """Calls a partitioner of kafka-python 3, which is an object with a method ``partition``.

    Args:
        foreign: the partitioner.
        max_batch_size: after this many bytes of records without a key, its ``on_new_batch`` is
            called, if it has one.

    Raises:
        ValueError: if it has no method ``partition``.
    """

    def __init__(self, foreign: Any, max_batch_size: int) -> None:
        if isinstance(foreign, str | bytes) or not callable(getattr(foreign, "partition", None)):
            raise ValueError(
                f"partitioner={type(foreign).__name__}: must be a function of (key, all_partitions,"
                " available), or an object with the method partition, as kafka-python 3 has it"
            )
        self._foreign = foreign
        self._next_batch = getattr(foreign, "on_new_batch", None)
        self._most = max_batch_size
        self._sent: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        all_partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return one of the partitions."""
        cluster = _TopicOfCluster(topic, all_partitions, available)
        found: int = self._foreign.partition(
            topic, key, serialized_key, value, serialized_value, cluster
        )
        if self._next_batch is not None and serialized_key is None:
            sent = self._sent.get(topic, 0) + len(serialized_value or b"")
            if sent >= self._most:
                sent = 0
                self._next_batch(topic, cluster, found)
            self._sent[topic] = sent
        return found


class _TopicOfCluster:
    """The part of kafka-python's ClusterMetadata that partitioners use."""

    def __init__(self, topic: str, partitions: Sequence[int], available: Sequence[int]) -> None:
        self._topic = topic
        self._partitions = partitions
        self._available = available

    def topics(self) -> set[str]:
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions) if topic == self._topic else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._available) if topic == self._topic else None
