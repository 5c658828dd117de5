"""The send loop of clients whose ``send`` is awaited and returns an awaitable delivery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.adapters.settings import Load

Send = Callable[..., Awaitable[Awaitable[object]]]
"""The ``send`` method of a client: takes topic, value, key and ``headers``, returns a delivery."""


async def send_each(send: Send, load: Load) -> list[Awaitable[object]]:
    """Send the records, with as few arguments as possible, and return their deliveries."""
    topic = load.topic
    deliveries: list[Awaitable[object]] = []
    keep = deliveries.append
    if load.headers:
        headers = load.each_headers()
        for key, value in load.keyed_values():
            keep(await send(topic, value, key, headers=headers))
    elif load.keys:
        for key, value in load.keyed_values():
            keep(await send(topic, value, key))
    else:
        for value in load.values():
            keep(await send(topic, value))
    return deliveries


async def await_each(deliveries: list[Awaitable[object]]) -> None:
    """Wait for all deliveries. Raises if one fails."""
    for delivery in deliveries:
        await delivery
