"""A client's history under a fault, in numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.anomalies.anomaly import PERMITTED, Anomaly
from tests.anomalies.checker import check
from tests.anomalies.history import History, Outcome

_EXAMPLES = 3
_ERRORS = 5
_ERROR_CHARACTERS = 160


@dataclass
class Row:
    """The result of one client under one fault.

    Attributes:
        version: the client's.
        kafka: the version of the brokers.
        seconds: the length of the fault.
        outcomes: the number of operations by outcome.
        longest_gap_s: the longest time in which no send was acknowledged.
        anomalies: their number by kind, without those that Kafka's protocol permits.
        examples: the first of each kind.
        errors: the number of the most frequent errors.
        steps: the faults of nodes and clients that were carried out.
        requests: the number of requests that got a fault.
        callers: the number of tasks that sent with the plain producer.
    """

    client: str
    version: str
    kafka: str
    fault: str
    seed: int
    seconds: float
    outcomes: dict[str, int] = field(default_factory=dict)
    longest_gap_s: float = 0.0
    anomalies: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    requests: int = 0
    callers: int = 2

    def as_json(self) -> dict[str, Any]:
        """Return the row for a JSON file."""
        return asdict(self)

    @property
    def operations(self) -> int:
        """The number of operations."""
        return sum(self.outcomes.values())


def judged(history: History) -> dict[str, Any]:
    """Judge a history, and return the attributes of its row."""
    found = [each for each in check(history) if each.kind not in PERMITTED]
    errors = Counter(
        f"{each.client.partition('-')[0]}: {each.error[:_ERROR_CHARACTERS]}"
        for each in history.operations
        if each.error
    )
    return {
        "outcomes": dict(Counter(str(each.outcome) for each in history.operations)),
        "longest_gap_s": round(longest_gap(history), 2),
        "anomalies": dict(Counter(str(each.kind) for each in found)),
        "examples": [each.detail for each in _first_of_each_kind(found)],
        "errors": dict(errors.most_common(_ERRORS)),
    }


def longest_gap(history: History) -> float:
    """Return the longest time without an acknowledged send, in seconds, up to the last one outside
    transactions: a transaction may stay open after the other callers have ended.
    """
    acknowledged = [
        (each.completed, each.transactional)
        for each in history.operations
        if each.completed is not None and each.sends and each.outcome is Outcome.OK
    ]
    last = max((at for at, transactional in acknowledged if not transactional), default=math.inf)
    moments = sorted(at for at, _ in acknowledged if at <= last)
    return max((later - at for at, later in itertools.pairwise(moments)), default=0.0)


def _first_of_each_kind(found: Sequence[Anomaly]) -> list[Anomaly]:
    by_kind: dict[str, list[Anomaly]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    return [each for some in by_kind.values() for each in some[:_EXAMPLES]]
