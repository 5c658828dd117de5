"""The metrics of an admin client. They are only pushed to brokers (KIP-714)."""

from __future__ import annotations


class AdminMetrics:
    """Totals, named as in Kafka's group ``admin-client-metrics``."""

    def __init__(self) -> None:
        self._opened = 0
        self._closed = 0

    def connection_changed(self, opened: bool) -> None:
        """Record that a connection was opened or closed."""
        if opened:
            self._opened += 1
        else:
            self._closed += 1

    def snapshot(self) -> dict[str, float]:
        """Return all metrics."""
        return {
            "connection-creation-total": float(self._opened),
            "connection-close-total": float(self._closed),
            "connection-count": float(self._opened - self._closed),
        }
