"""Renews the locks of records that the application keeps (KIP-1222)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import groupby

from aioprod.consumer.share.fetched import Delivery
from aioprod.net.bounds import MAX_LOCK_MS, MIN_LOCK_MS, bounded
from aioprod.types import AcknowledgeType

# The topic, the partition and the offset of a record.
Place = tuple[str, int, int]


class LockRenewal:
    """Asks for a new lock when half of the present one is over.

    A renewal that the broker refuses, or whose session is lost, is not repeated: other members may
    have the record. The application learns that when it acknowledges it.

    Args:
        most_s: how long the lock of a record is renewed.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._kept: dict[Place, tuple[Delivery, float]] = {}  # with the end of its renewals
        self._asked: dict[Place, float] = {}  # the end of the lock for which a new one is asked for
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, deliveries: Collection[Delivery]) -> None:
        """Renew the locks of these records, which the application has got just now."""
        until = asyncio.get_running_loop().time() + self._most_s
        for delivery in deliveries:
            self._kept[delivery.record[:3]] = delivery, until
        self._look_at(min(map(_due, deliveries)))

    def renewed(self, place: Place, delivery: Delivery) -> None:
        """Note the new end of a lock."""
        kept = self._kept.get(place)
        if kept is not None:
            self._kept[place] = delivery, kept[1]
            self._look_at(_due(delivery))

    def drop(self, place: Place) -> None:
        """Renew the lock of a record no longer: it is acknowledged."""
        self._kept.pop(place, None)
        self._asked.pop(place, None)

    def stop(self) -> None:
        """Renew no lock any more."""
        self._kept.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        asked: list[Delivery] = []
        next_due = float("inf")
        for place, (delivery, until) in self._kept.items():
            due = _due(delivery)
            if due >= until or self._asked.get(place) == delivery.locked_until:
                continue
            if due > now:
                next_due = min(next_due, due)
            elif now < delivery.locked_until:
                self._asked[place] = delivery.locked_until
                asked.append(delivery)
        _renew(asked)
        if next_due < float("inf"):
            self._look_at(next_due)


def _due(delivery: Delivery) -> float:
    lock_s = bounded(delivery.broker.lock_timeout_ms or 0, MIN_LOCK_MS, MAX_LOCK_MS)
    return delivery.locked_until - lock_s / 2


def _renew(deliveries: Iterable[Delivery]) -> None:
    for (partition, broker, generation, locked_until), together in groupby(
        deliveries, lambda delivery: delivery[1:]
    ):
        if generation == broker.session.generation:
            offsets = [delivery.record.offset for delivery in together]
            broker.acknowledge(partition, offsets, AcknowledgeType.RENEW, generation, locked_until)
