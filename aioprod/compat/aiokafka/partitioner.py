"""The default partitioner, as ``aiokafka.partitioner`` has it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aioprod import partition_for_key

__all__ = ["DefaultPartitioner"]


class DefaultPartitioner:
    """Chooses the partition as Java does for a key, else at random among the available ones."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return one of the partitions."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[partition_for_key(key, len(all_partitions))]
