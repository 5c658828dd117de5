"""Numbers for default client ids, such as ``aioprod-producer-1``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


def new_counters() -> dict[str, Iterator[int]]:
    """Return a counter for each kind of client, each starting at 1."""
    return {kind: count(1) for kind in ("producer", "consumer", "admin")}


_counters = new_counters()


def next_client_number(kind: str) -> int:
    """Return the next number for a kind: ``"producer"``, ``"consumer"`` or ``"admin"``."""
    return next(_counters[kind])
