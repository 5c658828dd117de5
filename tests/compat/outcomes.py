"""The outcomes by which two clients are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any


async def outcome(call: Awaitable[Any]) -> object:
    """Return the result of a call, or the type of its exception."""
    try:
        found = await asyncio.wait_for(asyncio.ensure_future(call), 20)
        if isinstance(found, asyncio.Future):
            found = await asyncio.wait_for(found, 20)
    except Exception as error:
        return "raised", type(error).__name__
    return "returned", found


def outcome_of(call: Callable[[], Any]) -> object:
    """The same for a plain function."""
    try:
        return "returned", call()
    except Exception as error:
        return "raised", type(error).__name__


def record(found: Any) -> tuple[Any, ...]:
    """Return the fields of a record that are equal for both clients."""
    sizes = found.serialized_key_size, found.serialized_value_size
    headers = tuple(found.headers)
    return (found.topic, found.partition, found.offset, found.key, found.value, *sizes, headers)


async def stored(
    client: ModuleType, servers: str, topic: str, **settings: Any
) -> list[tuple[Any, ...]]:
    """The records of a topic, by partition."""
    async with client.AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", **settings
    ) as consumer:
        found: list[tuple[Any, ...]] = []
        ends = await consumer.end_offsets(consumer.assignment())
        while [tp for tp in ends if await consumer.position(tp) < ends[tp]]:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [record(each) for each in records]
    return sorted(found, key=lambda each: each[:3])
