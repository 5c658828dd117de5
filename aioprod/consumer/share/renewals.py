"""Renews the locks of records that the application keeps (KIP-1222)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from aioprod.consumer.share.fetched import Lock
from aioprod.earliest_timer import EarliestTimer
from aioprod.net.bounds import MAX_LOCK_MS, MIN_LOCK_MS, bounded
from aioprod.types import AcknowledgeType, ShareRecord

# The topic, the partition and the offset of a record.
Place = tuple[str, int, int]


class Held(NamedTuple):
    """A record that the application has got, and who locks it."""

    record: ShareRecord
    lock: Lock


class LockRenewal:
    """Asks for a new lock when half of the present one is over.

    A renewal that the broker refuses, or whose session is lost, is not repeated: other members may
    have the record. The application learns that when it acknowledges it.

    Args:
        most_s: how long the lock of a record is renewed.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._kept: dict[Place, tuple[Held, float]] = {}  # with the end of its renewals
        self._asked: dict[Place, float] = {}  # the end of the lock for which a new one is asked for
        self._timer = EarliestTimer(self._look)

    def keep(self, records: Mapping[Place, Held]) -> None:
        """Renew the locks of these records, which the application has got just now."""
        until = asyncio.get_running_loop().time() + self._most_s
        for place, held in records.items():
            self._kept[place] = held, until
        self._timer.set(min(map(_due, {held.lock for held in records.values()})))

    def renewed(self, place: Place, held: Held) -> None:
        """Note the new end of a lock."""
        kept = self._kept.get(place)
        if kept is not None:
            self._kept[place] = held, kept[1]
            self._timer.set(_due(held.lock))

    def drop(self, place: Place) -> None:
        """Renew the lock of a record no longer: it is acknowledged."""
        self._kept.pop(place, None)
        self._asked.pop(place, None)

    def stop(self) -> None:
        """Renew no lock any more."""
        self._kept.clear()
        self._timer.stop()

    def _look(self, now: float) -> None:
        asked: list[Held] = []
        next_due = float("inf")
        for place, (held, until) in self._kept.items():
            due = _due(held.lock)
            if due >= until or self._asked.get(place) == held.lock.until:
                continue
            if due > now:
                next_due = min(next_due, due)
            elif now < held.lock.until:
                self._asked[place] = held.lock.until
                asked.append(held)
        _renew(asked)
        if next_due < float("inf"):
            self._timer.set(next_due)


def _due(lock: Lock) -> float:
    lock_s = bounded(lock.broker.session.lock_timeout_ms or 0, MIN_LOCK_MS, MAX_LOCK_MS)
    return lock.until - lock_s / 2


def _renew(records: Iterable[Held]) -> None:
    for (partition, broker, generation, until), together in groupby(
        records, lambda held: held.lock
    ):
        if generation == broker.session.generation:
            offsets = [held.record.offset for held in together]
            broker.acknowledge(partition, offsets, AcknowledgeType.RENEW, generation, until)
