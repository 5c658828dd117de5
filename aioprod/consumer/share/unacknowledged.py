"""The records that the application has and has not acknowledged, and the renewal of their locks
(KIP-1222).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.share.buffer import Delivered, Lock
from aioprod.earliest_timer import EarliestTimer
from aioprod.errors import ConfigError, ConsumerStateError, UnsupportedVersionError
from aioprod.foreign_text import shown
from aioprod.net.bounds import MAX_LOCK_MS, MIN_LOCK_MS, bounded
from aioprod.types import AcknowledgeType, ShareRecord, TopicPartition

# The topic, the partition and the offset of a record.
Place = tuple[str, int, int]


class Unacknowledged(NamedTuple):
    """A record that was returned and is not acknowledged, and its lock."""

    record: ShareRecord
    lock: Lock


class UnacknowledgedRecords:
    """Tracks returned records until they are acknowledged, and passes acknowledgements on.

    Args:
        config: has the mode of acknowledgement, and how long locks are renewed of records that the
            application keeps while it requests further ones.
    """

    def __init__(self, config: ShareConsumerConfig) -> None:
        renewed_s = config.max_lock_renewal_ms / 1000
        self._explicit = config.share_acknowledgement_mode == "explicit"
        self._renewal = LockRenewal(renewed_s) if renewed_s else None
        self._unaccepted: list[Delivered] = []  # in implicit mode
        self._records: dict[Place, Unacknowledged] = {}  # in explicit mode
        self._renewed: set[Place] = set()

    def __len__(self) -> int:
        """The number of records that are not acknowledged; one that is renewed counts."""
        return len(self._records) + sum(len(each.records) for each in self._unaccepted)

    def add(self, deliveries: Collection[Delivered]) -> list[ShareRecord]:
        """Note that records are returned; return them."""
        if not self._explicit:
            self._unaccepted += deliveries
            return [record for delivered in deliveries for record in delivered.records]
        added = {
            record[:3]: Unacknowledged(record, lock)
            for records, lock in deliveries
            for record in records
        }
        self._records |= added
        self._renewed -= added.keys()  # they are to be acknowledged again
        if self._renewal is not None:
            self._renewal.keep(added)
        return [each.record for each in added.values()]

    def renewed(self, tp: TopicPartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock."""
        place = (*tp, offset)
        found = self._records.get(place)
        if found is not None:
            found = found._replace(lock=found.lock._replace(until=locked_until))
            self._records[place] = found
            if self._renewal is not None:
                self._renewal.renewed(place, found)

    def before_next(self) -> None:
        """Prepare for the next records: in implicit mode, accept those that were returned.

        Raises:
            ConsumerStateError: if a record is not acknowledged in explicit mode.
        """
        if not self._explicit:
            self.accept_all()
            return
        if self._renewal is not None:
            return
        for topic, partition, offset in self._records:
            if (topic, partition, offset) not in self._renewed:
                raise ConsumerStateError(
                    f"the record at offset {offset} of {topic}-{partition} is not "
                    'acknowledged: with share_acknowledgement_mode="explicit", acknowledge each '
                    "record before the next call for records"
                )

    def accept_all(self) -> None:
        """Accept all records, unless the application acknowledges them itself."""
        unaccepted, self._unaccepted = self._unaccepted, []
        for records, (partition, broker, generation, until) in unaccepted:
            offsets = [record.offset for record in records]
            broker.acknowledge(partition, offsets, AcknowledgeType.ACCEPT, generation, until)

    def close(self) -> None:
        """Do not renew any lock again."""
        if self._renewal is not None:
            self._renewal.stop()

    def acknowledge(self, record: object, kind: object) -> None:
        """Acknowledge one record.

        Raises:
            ConfigError: if an argument has another type.
            ConsumerStateError: if the record is not unacknowledged, or in implicit mode.
            UnsupportedVersionError: if the broker can't renew locks.
        """
        if not isinstance(record, ShareRecord):
            raise ConfigError(f"record={shown(record)}: must be a ShareRecord of this consumer")
        if not isinstance(kind, AcknowledgeType):
            raise ConfigError(f"kind={shown(kind)}: must be an AcknowledgeType")
        if not self._explicit:
            raise ConsumerStateError(
                'records are accepted by the next call; set share_acknowledgement_mode="explicit" '
                "to acknowledge each"
            )
        place = record[:3]
        found = self._records.get(place)
        # The topic may have been created again, with another record in its place.
        if found is None or (found.record[:5], found.record.delivery_count) != (
            record[:5],
            record.delivery_count,
        ):
            raise ConsumerStateError(
                f"the record at offset {record.offset} of {record.topic}-{record.partition} is "
                "already acknowledged, or was not returned by this consumer"
            )
        if kind is AcknowledgeType.RENEW:
            if not found.lock.broker.supports_renewal:
                raise UnsupportedVersionError(
                    f"broker {found.lock.broker.node_id} can't renew locks: Kafka 4.2 is needed "
                    "(KIP-1222)"
                )
            self._renewed.add(place)
        else:
            del self._records[place]
            self._renewed.discard(place)
            if self._renewal is not None:
                self._renewal.drop(place)
        partition, broker, generation, until = found.lock
        broker.acknowledge(partition, (record.offset,), kind, generation, until)


class LockRenewal:
    """Renews a lock when half of its time has passed.

    A renewal that the broker refuses, or whose session is lost, is not repeated: other members may
    have the record. The acknowledgement of the record then fails.

    Args:
        most_s: how long the lock of a record is renewed.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._kept: dict[Place, tuple[Unacknowledged, float]] = {}  # with the end of its renewals
        self._asked: dict[Place, float] = {}  # the end of the lock that is being renewed
        self._timer = EarliestTimer(self._look)

    def keep(self, records: Mapping[Place, Unacknowledged]) -> None:
        """Renew the locks of these records, which are being returned now."""
        until = asyncio.get_running_loop().time() + self._most_s
        for place, kept in records.items():
            self._kept[place] = kept, until
        self._timer.set(min(map(_due, {kept.lock for kept in records.values()})))

    def renewed(self, place: Place, renewed: Unacknowledged) -> None:
        """Note the new end of a lock."""
        kept = self._kept.get(place)
        if kept is not None:
            self._kept[place] = renewed, kept[1]
            self._timer.set(_due(renewed.lock))

    def drop(self, place: Place) -> None:
        """Do not renew the lock of a record again: it is acknowledged."""
        self._kept.pop(place, None)
        self._asked.pop(place, None)

    def stop(self) -> None:
        """Do not renew any lock again."""
        self._kept.clear()
        self._timer.stop()

    def _look(self, now: float) -> None:
        asked: list[Unacknowledged] = []
        next_due = float("inf")
        for place, (kept, until) in self._kept.items():
            due = _due(kept.lock)
            if due >= until or self._asked.get(place) == kept.lock.until:
                continue
            if due > now:
                next_due = min(next_due, due)
            elif now < kept.lock.until:
                self._asked[place] = kept.lock.until
                asked.append(kept)
        _renew(asked)
        if next_due < float("inf"):
            self._timer.set(next_due)


def _due(lock: Lock) -> float:
    lock_s = bounded(lock.broker.session.lock_timeout_ms or 0, MIN_LOCK_MS, MAX_LOCK_MS)
    return lock.until - lock_s / 2


def _renew(records: Iterable[Unacknowledged]) -> None:
    for (partition, broker, generation, until), together in groupby(
        records, lambda each: each.lock
    ):
        if generation == broker.session.generation:
            offsets = [each.record.offset for each in together]
            broker.acknowledge(partition, offsets, AcknowledgeType.RENEW, generation, until)
