"""Decides how many bytes of each partition a Fetch asks for. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from aioprod.config.consumer import ConsumerConfig
from aioprod.config.setting import grown_limit
from aioprod.consumer.subscription import PartitionState

# By default. Larger responses carry more from a far broker, and each costs the same work; but those
# of 8 MiB leave the processor's cache before they are read, and cost more than those of 1 MiB.
_LARGEST_BYTES = 4 << 20
# From a broker that is farther away than _FAR_S, a request asks for as many bytes as an application
# reads during the round trip, up to _LARGEST_FAR_BYTES.
_FAR_S = 0.01
_BYTES_PER_S = 160 << 20
_LARGEST_FAR_BYTES = 16 << 20


class FetchSizes:
    """Sizes that grow while responses are full, from ``max_partition_fetch_bytes`` on."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._least = config.max_partition_fetch_bytes
        self._largest, self._largest_far = (
            grown_limit(
                config, "max_partition_fetch_bytes", "largest_partition_fetch_bytes", by_default
            )
            for by_default in (_LARGEST_BYTES, _LARGEST_FAR_BYTES)
        )

    def of(self, states: Sequence[PartitionState], round_trip_s: float) -> list[int]:
        """Return for how many bytes of each partition a request asks.

        From a far broker, only partitions whose last responses were full share the larger size: the
        others may have few records, and each request takes long.

        Args:
            states: the partitions of the request.
            round_trip_s: the distance of the broker; 0 if the network is slow.
        """
        least = self._least
        sharing, largest = len(states), self._largest
        if round_trip_s >= _FAR_S:
            sharing = max(1, sum(state.fetch_bytes > least for state in states))
            during = int(round_trip_s * _BYTES_PER_S)
            largest = min(max(largest, during), self._largest_far)
        most = largest // sharing
        if most <= least:
            return [least] * len(states)
        return [max(least, min(state.fetch_bytes, most)) for state in states]
