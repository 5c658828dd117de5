"""The records that the application has got and not acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aioprod.consumer.share.fetched import Delivery
from aioprod.errors import ConfigError, ConsumerStateError, UnsupportedVersionError
from aioprod.types import AcknowledgeType, ShareRecord, TopicPartition


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    locked_until: float
    renewed: bool = False


class RecordsInHand:
    """Tracks delivered records until they are acknowledged, and passes acknowledgements on.

    Args:
        explicit: whether the application acknowledges each record
            (``share_acknowledgement_mode="explicit"``).
    """

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        self._held: dict[tuple[TopicPartition, int], _Held] = {}

    def add(self, deliveries: Iterable[Delivery]) -> list[ShareRecord]:
        """Note that the application gets records; return them."""
        records = []
        for delivery in deliveries:
            record = delivery.record
            self._held[delivery.partition.tp, record.offset] = _Held(
                delivery, delivery.locked_until
            )
            records.append(record)
        return records

    def renewed(self, tp: TopicPartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock."""
        held = self._held.get((tp, offset))
        if held is not None:
            held.locked_until = locked_until

    def settle(self) -> None:
        """Prepare for further records.

        Raises:
            ConsumerStateError: if a record is not acknowledged in explicit mode.
        """
        if not self._explicit:
            self.accept_all()
            return
        for (tp, offset), held in self._held.items():
            if not held.renewed:
                raise ConsumerStateError(
                    f"the record at offset {offset} of {tp.topic}-{tp.partition} is not "
                    'acknowledged: with share_acknowledgement_mode="explicit", acknowledge each '
                    "record before the next call for records"
                )

    def accept_all(self) -> None:
        """Accept all records, unless the application acknowledges them itself."""
        if not self._explicit:
            held, self._held = self._held, {}
            for each in held.values():
                _pass_on(each, AcknowledgeType.ACCEPT)

    def acknowledge(self, record: object, kind: object) -> None:
        """Acknowledge one record.

        Raises:
            ConfigError: if an argument has another type.
            ConsumerStateError: if the record is not in hand, or in implicit mode.
            UnsupportedVersionError: if the broker can't renew locks.
        """
        if not isinstance(record, ShareRecord):
            raise ConfigError(f"record={record!r}: must be a ShareRecord of this consumer")
        if not isinstance(kind, AcknowledgeType):
            raise ConfigError(f"kind={kind!r}: must be an AcknowledgeType")
        if not self._explicit:
            raise ConsumerStateError(
                'records are accepted by the next call; set share_acknowledgement_mode="explicit" '
                "to acknowledge each"
            )
        tp = TopicPartition(record.topic, record.partition)
        held = self._held.get((tp, record.offset))
        if held is None or held.delivery.record.delivery_count != record.delivery_count:
            raise ConsumerStateError(
                f"the record at offset {record.offset} of {tp.topic}-{tp.partition} is already "
                "acknowledged, or was not returned by this consumer"
            )
        if kind is AcknowledgeType.RENEW:
            broker = held.delivery.broker
            if not broker.supports_renewal:
                raise UnsupportedVersionError(
                    f"broker {broker.node_id} can't renew locks: Kafka 4.2 is needed (KIP-1222)"
                )
            held.renewed = True
        else:
            del self._held[tp, record.offset]
        _pass_on(held, kind)


def _pass_on(held: _Held, kind: AcknowledgeType) -> None:
    delivery = held.delivery
    delivery.broker.acknowledge(
        delivery.partition,
        delivery.record.offset,
        kind,
        delivery.generation,
        held.locked_until,
    )
