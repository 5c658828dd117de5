"""Micro-batches for the tests of the page, its metrics and the alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from aioprod.spark import QueryProgress, QuerySigns

BEGAN_AT = 1_800_000_000.0
NUMBERS, REJECTED = "flights: delays", "flights: dead letters"


def batch(number: int = 0, query: str = NUMBERS, **changes: Any) -> QueryProgress:
    """A micro-batch of two partitions; ``changes`` are fields of `QueryProgress`."""
    fields: dict[str, Any] = {
        "query": query,
        "run_id": UUID(int=1),
        "started_at": BEGAN_AT + number,
        "batch_id": number,
        "rows": 1_000,
        "rows_per_second": 800.0,
        "batch_ms": 1_250,
        "phases_ms": {"latestOffset": 10, "addBatch": 900, "walCommit": 40, "commitBatch": 5},
        "lag": 30,
        "lag_by_partition": {"flights": {"0": 10, "1": 20}},
        "state_rows": 7,
        "state_bytes": 4_096,
        "late_rows": 2,
        "observed": {},
    }
    return QueryProgress(**{**fields, **changes})


def sample(reason: str, offset: int = 0, value: str = "no event") -> str:
    """A sample of a micro-batch's dead letters, as Spark reports it."""
    place = {"topic": "flights", "partition": 1, "offset": offset, "timestamp": 1_800_000_000_000}
    return json.dumps({"reason": reason, "value": value, **place})


def rejected(
    number: int = 0, count: int = 3, samples: Sequence[str | None] = (), **changes: Any
) -> QueryProgress:
    """A micro-batch of the query that counts dead letters."""
    observed = {"dead letters": {"rows": count, "samples": list(samples)}}
    return batch(number, REJECTED, observed=observed, state_rows=0, state_bytes=0, **changes)


def signs_of(clock: Callable[[], float], limit_s: float | None = 30) -> QuerySigns:
    """Reports of queries with a clock of the test."""
    signs = QuerySigns(limit_s)
    signs._clock = clock
    return signs
