"""The measured rows by fault and client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aioprod.testing.jars import KAFKA_VERSIONS
from tests.anomalies.clients import CLIENTS
from tests.anomalies.faults import FAULTS
from tests.anomalies.row import Row


@dataclass(frozen=True)
class Cell:
    """All rows of a client under a fault.

    Attributes:
        gap_s: the longest gap.
    """

    gap_s: float
    anomalies: Mapping[str, int]

    @property
    def found(self) -> str:
        """The anomalies in words."""
        return ", ".join(f"{count} {kind}" for kind, count in self.anomalies.items())


@dataclass(frozen=True)
class Table:
    """The measured clients, and the cells of each fault by client.

    Attributes:
        operations: their number for each client.
    """

    clients: Sequence[str]
    lines: Mapping[str, Mapping[str, Cell]]
    operations: Mapping[str, int]


def arranged(rows: Sequence[Row]) -> Table:
    """Arrange rows: faults and clients as they are listed, those with an older Kafka at the end."""
    clients = [name for name in CLIENTS if any(each.client == name for each in rows)]
    lines: dict[str, Mapping[str, Cell]] = {}
    for kafka in KAFKA_VERSIONS:
        suffix = "" if kafka == KAFKA_VERSIONS[0] else f" (Kafka {kafka})"
        for name, fault in FAULTS.items():
            of_fault = [each for each in rows if (each.fault, each.kafka) == (name, kafka)]
            if of_fault:
                lines[fault.what + suffix] = _cells(of_fault)
    operations = Counter[str]()
    for each in rows:
        operations[each.client] += each.operations
    return Table(clients, lines, operations)


def _cells(rows: Sequence[Row]) -> dict[str, Cell]:
    found: dict[str, list[Row]] = {}
    for each in rows:
        found.setdefault(each.client, []).append(each)
    return {client: _cell(some) for client, some in found.items()}


def _cell(rows: Sequence[Row]) -> Cell:
    anomalies: Counter[str] = Counter()
    for each in rows:
        anomalies.update(each.anomalies)
    return Cell(max(each.longest_gap_s for each in rows), anomalies)
