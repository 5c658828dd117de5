"""Changes as Debezium writes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

Event = Callable[..., bytes]


@pytest.fixture
def event() -> Event:
    """Return a function that encodes an inserted row: its time of day, its item, and other columns
    or another operation.
    """
    ids = itertools.count(1)

    def encode(time: str, item: str | None = "tea", op: str = "c", **changes: Any) -> bytes:
        at = f"2026-01-31T{time}Z"
        row = {"id": str(next(ids)), "item": item, "price": 4.5, "at": at, **changes}
        before = None if op in "cr" else row
        change = {"before": before, "after": None if op == "d" else row, "op": op, "ts_ms": 1}
        return json.dumps(change).encode()

    return encode


def malformed(event: Event) -> dict[bytes, str]:
    """Return values that are not changes, with the reasons."""
    return {
        b"no json": "not of the schema",
        b"{}": "op missing",
        event("10:00:00", item=None): "item missing",
        event("10:00:00", at="9999-01-01T00:00:00Z"): "at is in the future",
    }


def with_more_fields(event: Event, time: str) -> bytes:
    """Return a row of a table with one more column."""
    return event(time, shop="Berlin", price="4.50")
