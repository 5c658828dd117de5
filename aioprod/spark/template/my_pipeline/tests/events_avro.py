"""Events as producers write them, with a schema in the registry."""

from __future__ import annotations

import asyncio
import decimal
import itertools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from aioprod.schema_registry import AvroSerializer, Schema, SchemaRegistry

Event = Callable[..., bytes]

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "price", "type": PRICE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SHOP = {"name": "shop", "type": "string", "default": ""}
NEWER = {**SCHEMA, "fields": [*SCHEMA["fields"], SHOP]}


@pytest.fixture
def event(schema_registry: Any, monkeypatch: pytest.MonkeyPatch) -> Event:
    """Return a function that encodes an event: its time of day, its item, and other fields."""
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", schema_registry.url)

    async def serialize(fields: dict[str, Any]) -> bytes:
        schema = NEWER if "shop" in fields else SCHEMA
        async with SchemaRegistry(schema_registry.url) as registry:
            await registry.register("sales-value", Schema(json.dumps(schema)))
            data, _ = await AvroSerializer(registry, json.dumps(schema)).serialize("sales", fields)
            assert data is not None
            return data

    ids = itertools.count(1)

    def encode(time: str, item: str | None = "tea", **changes: Any) -> bytes:
        at = f"2026-01-31T{time}Z"
        fields = {"id": str(next(ids)), "item": item, "price": 4.5, "at": at, **changes}
        price = decimal.Decimal(fields["price"]).quantize(decimal.Decimal("0.01"))
        moment = datetime.fromisoformat(fields["at"])
        return asyncio.run(serialize({**fields, "price": price, "at": moment}))

    return encode


def malformed(event: Event) -> dict[bytes, str]:
    """Return values that are not events, with the reasons."""
    return {
        b"no avro": "not of the schema",
        event("10:00:00")[:-1]: "not of the schema",
        event("10:00:00", item=None): "item missing",
        event("10:00:00", at="9999-01-01T00:00:00Z"): "at is in the future",
    }


def with_more_fields(event: Event, time: str) -> bytes:
    """Return an event of a newer producer."""
    return event(time, shop="Berlin")
