"""The common metrics of consumers and share consumers."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from aioprod.integrations.opentelemetry.conventions import (
    Attributes,
    duration_histogram,
    error_type,
    operation,
    server_attributes,
)
from aioprod.integrations.opentelemetry.received import client_attributes
from aioprod.metrics import ObservedConsumer, RequestDone

RECEIVE = operation("poll", "receive")


class ReadingMeasurements:
    """``messaging.client.operation.duration`` and ``messaging.client.consumed.messages`` of one
    client.

    Args:
        meter: has the instruments.
        partitions: give each partition its own series of consumed messages.

    Attributes:
        client: the labels that identify the client.
    """

    def __init__(self, meter: Meter, *, partitions: bool) -> None:
        self.client: Attributes = {}
        self._duration = duration_histogram(meter)
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )
        self._partitions = partitions
        self._addresses: dict[int, dict[str, str | int]] = {}

    def started(self, consumer: ObservedConsumer) -> None:
        """Note what identifies the client."""
        self.client = client_attributes(consumer.client_id, consumer.group_id)

    def connection_changed(self, node_id: int, address: str, opened: bool) -> None:
        """Note the address of a broker."""
        if opened:
            self._addresses[node_id] = server_attributes(address)

    def request_done(self, event: RequestDone, kind: Attributes) -> None:
        """Record the duration of a request; ``kind`` has the attributes of the operation."""
        attributes = {**kind, **self.group(), **self._addresses.get(event.node_id, {})}
        self.record(event.latency_s, attributes, event.error)

    def records_came(self, topic: str, partition: int, records: int) -> None:
        """Count records that the application got."""
        attributes = {**RECEIVE, **self.group(), "messaging.destination.name": topic}
        if self._partitions:
            attributes["messaging.destination.partition.id"] = str(partition)
        self._consumed.add(records, attributes)

    def group(self) -> Attributes:
        """Return the attribute of the group, if there is one."""
        name = "messaging.consumer.group.name"
        return {name: self.client[name]} if name in self.client else {}

    def record(self, seconds: float, attributes: Attributes, error: Exception | None) -> None:
        """Record the duration of an operation."""
        if error is not None:
            attributes["error.type"] = error_type(error)
        self._duration.record(seconds, attributes)
