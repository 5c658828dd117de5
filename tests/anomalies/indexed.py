"""A history with what several checks look up."""

from __future__ import annotations

from typing import NamedTuple

from tests.anomalies.history import Entry, History, Operation, Partition, Send


class Sent(NamedTuple):
    """A send with its operation."""

    operation: Operation
    send: Send


class Place(NamedTuple):
    """A record of the log."""

    partition: Partition
    entry: Entry


class Indexed:
    """A history and its values.

    Attributes:
        sent: each value's send.
        places: where the log has each value, in the order of offsets.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.sent: dict[int, Sent] = {}
        self.places: dict[int, list[Place]] = {}
        for operation in history.operations:
            for send in operation.sends:
                if send.value in self.sent:
                    raise ValueError(f"the value {send.value} is sent twice")
                self.sent[send.value] = Sent(operation, send)
        for partition, entries in history.log.items():
            for entry in entries:
                self.places.setdefault(entry.value, []).append(Place(partition, entry))

    def committed(self, value: int) -> Place | None:
        """Return the first committed record with a value."""
        return next((each for each in self.places.get(value, ()) if each.entry.committed), None)
