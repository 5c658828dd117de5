"""Notes brokers that are far away, and limits the requests in flight to them. No I/O."""

from __future__ import annotations

from aioprod.config.producer import ProducerConfig
from aioprod.config.setting import is_default
from aioprod.net.distance import is_far

# The last batch that may be sent before a response lingers for this part of the round trip, up to
# _LAST_LINGERS_S.
_LAST_LINGERS = 0.2
_LAST_LINGERS_S = 0.1
# Requests of 1 MiB, the default max_request_size, then fill the default buffer_memory.
_MOST_IN_FLIGHT = 32


class FarBrokers:
    """The brokers that are far away, as of their last responses to Produce.

    To a far broker, the default ``max_in_flight_requests_per_connection`` is not the limit: the
    batches of more partitions are in flight than five requests carry. Idempotence limits the
    batches of each partition, whatever the number of requests. Without it, more requests could
    change the order of more records.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._far: dict[int, float] = {}  # how long the last response took
        self._timeout_ms = config.request_timeout_ms
        self._fill = is_default(config, "linger_ms")
        self._usual = self._most = config.max_in_flight_requests_per_connection
        if config.enable_idempotence and is_default(
            config, "max_in_flight_requests_per_connection"
        ):
            self._most = _MOST_IN_FLIGHT

    def note_response(self, node_id: int, took_s: float) -> None:
        """Note how long a node has taken to answer a request."""
        if is_far(took_s, self._timeout_ms):
            self._far[node_id] = took_s
        elif self._far:
            self._far.pop(node_id, None)

    def most_in_flight(self, node_id: int) -> int:
        """Return how many requests to a node may be in flight."""
        return self._most if node_id in self._far else self._usual

    def linger_s(self, node_id: int, *, is_last: bool) -> float | None:
        """Return how long a full batch for a node lingers at least; None if it does not linger.

        With the default ``linger_ms``, one for a far broker lingers for that time or longer: small
        batches would take the places of larger ones until the first response.

        Args:
            is_last: whether the partition can send no other batch before the next response.
        """
        took_s = self._far.get(node_id) if self._fill else None
        if took_s is None:
            return None
        return min(took_s * _LAST_LINGERS, _LAST_LINGERS_S) if is_last else 0.0

    @property
    def any(self) -> bool:
        """True if a broker is far away."""
        return bool(self._far)
