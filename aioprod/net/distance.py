"""Distinguishes brokers that are far away from near and slow ones."""

from __future__ import annotations

# At this distance, each round trip should carry more than to a near broker.
FAR_S = 0.05
# A response that takes more than this part of its time limit is slow: larger requests or responses
# might exceed the limit.
_SLOW = 0.1


def is_far(took_s: float, timeout_ms: float) -> bool:
    """Return whether a broker that takes ``took_s`` to answer is far away.

    Args:
        timeout_ms: the time limit of requests.
    """
    return took_s >= FAR_S and not is_slow(took_s, timeout_ms)


def is_slow(took_s: float, timeout_ms: float) -> bool:
    """Return whether a broker that takes ``took_s`` to answer is slow, or the network to it."""
    return took_s > timeout_ms / 1000 * _SLOW
