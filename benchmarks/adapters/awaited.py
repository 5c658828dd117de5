"""The loop that all clients have whose ``send`` is awaited and gives something to be awaited
later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.adapters.settings import Load

Send = Callable[..., Awaitable[Awaitable[object]]]
"""A client's own method, so that nothing is measured beside it: takes topic, value, key and
``headers``, gives the record's delivery.
"""


async def send_each(send: Send, load: Load) -> list[Awaitable[object]]:
    """Send the records, with no argument that they don't need; gives their deliveries, not looked
    at.
    """
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
    """Wait for every delivery; raises where one failed."""
    for delivery in deliveries:
        await delivery
