"""The objects that a Python process of Spark keeps between tasks: a connected client and its event
loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aioprod.spark.worker_process import is_reused

# A client that was unused for longer is replaced, because brokers and tokens may have changed.
# Spark ends a process that is unused for a minute, and the client with it.
IDLE_LIMIT_S = 30.0


class Client(Protocol):
    """A client that can be kept."""

    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=Client)


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if it is installed: a task moves many bytes over one connection."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@dataclass(frozen=True, slots=True)
class _Kept(Generic[ClientT]):
    key: Any
    runner: asyncio.Runner
    client: ClientT
    unused_since: float

    def close(self) -> None:
        with self.runner:
            self.runner.run(self.client.close())


class KeptClient(Generic[ClientT]):
    """Keeps one client between uses, in processes that Spark reuses; in other processes each use
    creates one.

    The event loop does not run between uses. A client is kept only if the last use succeeded.

    Args:
        clock: a function that returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: _Kept[ClientT] | None = None

    @contextmanager
    def use(
        self, key: Any, start: Callable[[], Awaitable[ClientT]]
    ) -> Iterator[tuple[asyncio.Runner, ClientT]]:
        """Provide a started client, and a function that runs coroutines with it.

        Args:
            key: the settings of the client, whose repr shows no secrets; a client with other
                settings is closed.
            start: a function that returns a new, started client.

        Raises:
            Exception: if ``start`` raises it.
        """
        session, self._kept = self._kept, None
        if session is not None and not self._fits(session, key):
            session.close()
            session = None
        if session is None:
            session = _started(key, start)
        try:
            yield session.runner, session.client
        except BaseException:
            session.close()
            raise
        if is_reused() and self._kept is None:
            self._kept = _Kept(key, session.runner, session.client, self._clock())
        else:
            session.close()

    def _fits(self, session: _Kept[ClientT], key: Any) -> bool:
        return bool(session.key == key) and self._clock() - session.unused_since < IDLE_LIMIT_S


def _started(key: Any, start: Callable[[], Awaitable[ClientT]]) -> _Kept[ClientT]:
    runner = asyncio.Runner(loop_factory=event_loop_factory())

    async def started() -> ClientT:
        return await start()

    try:
        return _Kept(key, runner, runner.run(started()), 0.0)
    except BaseException:
        runner.close()
        raise
