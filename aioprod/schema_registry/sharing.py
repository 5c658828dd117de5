"""Shared work of concurrent calls: requests in progress, and results, within limits."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from aioprod.errors import KafkaError, copy_of
from aioprod.running_loop import running_loop, start_task
from aioprod.schema_registry.schemas import SchemaRegistryError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of the entries that were used last.

    Args:
        limit: the maximum number of entries.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry; None if it is missing."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        """Add an entry; if the cache is full, evict the one that was unused for longest."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Evict the entries with these keys."""
        for key in [key for key in self._entries if unwanted(key)]:
            del self._entries[key]


class SingleFlight:
    """Concurrent calls for a key share one task, which continues if a caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def run(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of ``make``, or of the call in progress for ``key`` if there is one.

        Raises:
            KafkaError: raised by ``make``; each caller gets a separate one.
        """
        task: asyncio.Task[V] | None = self._tasks.get(key)
        if task is None:
            running_loop()  # raises under trio, before a coroutine is created
            task = start_task(make(), name="aioprod-schema-registry")
            self._tasks[key] = task
            task.add_done_callback(partial(self._ended, key))
        await asyncio.wait((task,))
        if task.cancelled():
            raise SchemaRegistryError("the schema registry's client was closed during the call")
        error = task.exception()
        if isinstance(error, KafkaError):
            raise copy_of(error)
        return task.result()

    async def close(self) -> None:
        """Cancel the calls in progress, and wait for their end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # perhaps no caller waits any more
