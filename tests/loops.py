"""The event loops that the tests run in: ``pytest --loop=KIND``."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from asyncio import selector_events
from asyncio.events import TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from aioprod.testing.simulation import SimulatedLoop

KINDS = ("asyncio", "uvloop", "eager", "debug")

_connections: WeakSet[Any] = WeakSet()


class BareTimer(TimerHandle):
    """A timer that offers what each event loop's do: uvloop's may have no ``when()``."""

    __slots__ = ()

    def when(self) -> NoReturn:
        """Refuse."""
        raise AttributeError("the timers of some event loops have no when()")


class VirtualLoop(SimulatedLoop):
    """A simulated loop whose timers are bare."""

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """See ``asyncio.AbstractEventLoop.call_at``."""
        timer = super().call_at(when, callback, *args, context=context)
        timer.__class__ = BareTimer
        return timer


def factory(kind: str, *, virtual: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop of a test.

    Args:
        virtual: whether the test runs in virtual time, which uvloop lacks.
    """
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    new_loop = VirtualLoop if virtual else asyncio.new_event_loop
    if kind == "eager":
        return lambda: _with_eager_tasks(new_loop())
    if kind == "debug":
        return lambda: _in_debug_mode(new_loop())
    return new_loop


def installed() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return asyncio's event loop, and uvloop's if it is installed: not on Windows."""
    loops = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        loops["uvloop"] = factory("uvloop", virtual=False)
    return loops


def watch_connections() -> None:
    """Let ``close_forgotten_connections`` see asyncio's connections.

    Close one that asyncio accepted just before its server was closed: it fails to make a transport
    for it then, and leaves the connection to the garbage collector, whose warning fails another
    test (https://github.com/python/cpython/issues/109564).
    """
    made: type[asyncio.Transport] = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]

    class _SelectorSocketTransport(made):  # type: ignore[misc, valid-type]
        def __init__(
            self,
            loop: asyncio.AbstractEventLoop,
            sock: socket.socket,
            protocol: asyncio.BaseProtocol,
            waiter: asyncio.Future[None] | None = None,
            extra: dict[str, Any] | None = None,
            server: asyncio.Server | None = None,
        ) -> None:
            if server is not None and not server.is_serving():
                sock.close()
                raise ConnectionAbortedError("the server is closed")
            super().__init__(loop, sock, protocol, waiter, extra, server)
            _connections.add(self)

    selector_events._SelectorSocketTransport = _SelectorSocketTransport  # type: ignore[attr-defined]


def close_forgotten_connections() -> list[str]:
    """Close the connections of closed loops, and return their addresses. The garbage collector
    would close them later, with a warning that fails another test.
    """
    forgotten = []
    for transport in list(_connections):
        sock, loop = transport._sock, transport._loop
        if loop is not None and not loop.is_closed():
            continue
        if sock is not None and sock.fileno() >= 0:
            forgotten.append(f"{sock.getsockname()} to {transport.get_extra_info('peername')}")
            sock.close()
            transport._sock = None
        _connections.discard(transport)
    return forgotten


def has_coarse_clock() -> bool:
    """Return whether the running loop's clock moves in whole milliseconds, as uvloop's does: what
    takes less has taken no time.
    """
    return type(asyncio.get_running_loop()).__module__.startswith("uvloop")


def _with_eager_tasks(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    loop.set_task_factory(_eager_except_in_aiokafka)  # type: ignore[arg-type]  # any coroutine
    return loop


def _eager_except_in_aiokafka(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """aiokafka's ``GroupCoordinator`` starts a task before it has the attributes that the task
    reads: its consumers never join a group if tasks are eager.
    """
    code = getattr(work, "cr_code", None)
    if code is not None and "aiokafka" in Path(code.co_filename).parts:
        return asyncio.Task(work, loop=loop, **options)
    # Python 3.12
    return asyncio.eager_task_factory(loop, work, **options)  # type: ignore[attr-defined, no-any-return]


def _in_debug_mode(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    loop.set_debug(True)
    return loop
