"""Events as producers write them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

Event = Callable[..., bytes]


@pytest.fixture
def event() -> Event:
    """Return a function that encodes an event: its time of day, its item, and other fields."""
    ids = itertools.count(1)

    def encode(time: str, item: str | None = "tea", **changes: Any) -> bytes:
        at = f"2026-01-31T{time}Z"
        fields = {"id": str(next(ids)), "item": item, "price": 4.5, "at": at, **changes}
        return json.dumps(fields).encode()

    return encode


def malformed(event: Event) -> dict[bytes, str]:
    """Return values that are not events, with the reasons."""
    return {
        b"no json": "not of the schema",
        event("10:00:00", price="dear"): "not of the schema",
        event("10:00:00", item=None): "item missing",
        event("10:00:00", at="9999-01-01T00:00:00Z"): "at is in the future",
    }


def with_more_fields(event: Event, time: str) -> bytes:
    """Return an event of a newer producer."""
    return event(time, shop="Berlin", price="4.50")
