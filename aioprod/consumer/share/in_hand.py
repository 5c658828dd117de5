"""The records that the application has got and not acknowledged."""

from __future__ import annotations

from collections.abc import Collection

from aioprod.consumer.share.fetched import Delivered
from aioprod.consumer.share.renewals import Held, LockRenewal, Place
from aioprod.errors import ConfigError, ConsumerStateError, UnsupportedVersionError
from aioprod.foreign_text import shown
from aioprod.types import AcknowledgeType, ShareRecord, TopicPartition


class RecordsInHand:
    """Tracks delivered records until they are acknowledged, and passes acknowledgements on.

    Args:
        explicit: whether the application acknowledges each record
            (``share_acknowledgement_mode="explicit"``).
        renewal: renews the locks of records that it keeps while it asks for further ones, if it may
            keep them.
    """

    def __init__(self, *, explicit: bool, renewal: LockRenewal | None) -> None:
        self._explicit = explicit
        self._renewal = renewal
        self._unaccepted: list[Delivered] = []  # in implicit mode
        self._held: dict[Place, Held] = {}  # in explicit mode
        self._renewed: set[Place] = set()

    def __len__(self) -> int:
        """The number of records that are not acknowledged; one that is renewed counts."""
        return len(self._held) + sum(len(each.records) for each in self._unaccepted)

    def add(self, deliveries: Collection[Delivered]) -> list[ShareRecord]:
        """Note that the application gets records; return them."""
        if not self._explicit:
            self._unaccepted += deliveries
            return [record for delivered in deliveries for record in delivered.records]
        held = {
            record[:3]: Held(record, lock) for records, lock in deliveries for record in records
        }
        self._held |= held
        self._renewed -= held.keys()  # they are to be acknowledged again
        if self._renewal is not None:
            self._renewal.keep(held)
        return [each.record for each in held.values()]

    def renewed(self, tp: TopicPartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock."""
        place = (*tp, offset)
        held = self._held.get(place)
        if held is not None:
            self._held[place] = held = held._replace(lock=held.lock._replace(until=locked_until))
            if self._renewal is not None:
                self._renewal.renewed(place, held)

    def settle(self) -> None:
        """Prepare for further records.

        Raises:
            ConsumerStateError: if a record is not acknowledged in explicit mode.
        """
        if not self._explicit:
            self.accept_all()
            return
        if self._renewal is not None:
            return
        for topic, partition, offset in self._held:
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
        """Renew no lock any more."""
        if self._renewal is not None:
            self._renewal.stop()

    def acknowledge(self, record: object, kind: object) -> None:
        """Acknowledge one record.

        Raises:
            ConfigError: if an argument has another type.
            ConsumerStateError: if the record is not in hand, or in implicit mode.
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
        held = self._held.get(place)
        # The topic may have been created again, with another record in its place.
        if held is None or (held.record[:5], held.record.delivery_count) != (
            record[:5],
            record.delivery_count,
        ):
            raise ConsumerStateError(
                f"the record at offset {record.offset} of {record.topic}-{record.partition} is "
                "already acknowledged, or was not returned by this consumer"
            )
        if kind is AcknowledgeType.RENEW:
            if not held.lock.broker.supports_renewal:
                raise UnsupportedVersionError(
                    f"broker {held.lock.broker.node_id} can't renew locks: Kafka 4.2 is needed "
                    "(KIP-1222)"
                )
            self._renewed.add(place)
        else:
            del self._held[place]
            self._renewed.discard(place)
            if self._renewal is not None:
                self._renewal.drop(place)
        partition, broker, generation, until = held.lock
        broker.acknowledge(partition, (record.offset,), kind, generation, until)
