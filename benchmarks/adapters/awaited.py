"""The send loop of clients whose ``send`` is awaited and returns an awaitable delivery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice

from benchmarks.adapters.settings import Load

Send = Callable[..., Awaitable[Awaitable[object]]]
"""The ``send`` method of a client: takes topic, value, key and ``headers``, returns a delivery."""


async def send_in_groups(
    send: Send, load: Load, *, flush: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Send the records, with as few arguments as possible, and await their deliveries in groups.
    Raises if one fails.

    Args:
        flush: called before deliveries are awaited.
    """
    topic = load.topic
    records, values = load.keyed_values(), load.values()
    headers = load.each_headers()
    for first in range(0, load.records, load.group):
        count = min(load.group, load.records - first)
        deliveries: list[Awaitable[object]] = []
        keep = deliveries.append
        if headers:
            for key, value in islice(records, count):
                keep(await send(topic, value, key, headers=headers))
        elif load.keys:
            for key, value in islice(records, count):
                keep(await send(topic, value, key))
        else:
            for value in islice(values, count):
                keep(await send(topic, value))
        if flush is not None:
            await flush()
        for delivery in deliveries:
            await delivery
