"""Errors of callbacks, plug-ins and other user code that clients call.

KeyboardInterrupt and SystemExit end the program. All other errors, including CancelledError, only
mean that the user code failed. docs/architecture.md has the rules.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NoReturn, ParamSpec, TypeVar
from weakref import WeakSet

from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
PluginT = TypeVar("PluginT")

ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)

_raising: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def surface(error: BaseException) -> None:
    """Make the event loop raise KeyboardInterrupt or SystemExit, as for its own callbacks.

    It raises in its next iteration, when the client has finished its current operation. Of several
    such errors, it raises the first: a second one would interrupt the cleanup of ``asyncio.run``.
    Without a running loop, the error is raised here. Other errors are ignored.
    """
    if not isinstance(error, ENDS_PROGRAM):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise error from None
    if loop not in _raising:
        _raising.add(loop)
        loop.call_soon(_raise, loop, error)


def _raise(loop: asyncio.AbstractEventLoop, error: BaseException) -> NoReturn:
    _raising.discard(loop)
    raise error


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled, so a CancelledError may be its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def call(what: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call user code, and raise its errors unchanged.

    Raises:
        KafkaError: if ``function`` raises CancelledError, although nothing was cancelled.
    """
    try:
        return function(*args, **kwargs)
    except asyncio.CancelledError as error:
        raise KafkaError(f"{what} raised CancelledError, but nothing was cancelled") from error


class FallbackClock:
    """Reads a user's clock, or ``time.time`` if the clock fails.

    A failure is logged, once until the clock succeeds again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing = False

    def __call__(self) -> float:
        try:
            now = self._clock()
        except BaseException as error:
            if not self._failing:
                self._failing = True
                log.error("clock failed, using time.time() until it succeeds", exc_info=error)
                surface(error)
            return time.time()
        self._failing = False
        return now


class Plugins(Generic[PluginT]):
    """Calls the interceptors or observers of a client in their order; false if there are none.

    Only overridden methods are called. An error of one plug-in affects neither the client nor the
    other plug-ins. It is logged, once until the method succeeds again: a broken plug-in must not
    fill the log.

    Args:
        kind: the base class of the plug-ins.
        plugins: the plug-ins, in their order.
    """

    def __init__(self, kind: type[PluginT], plugins: Iterable[PluginT]) -> None:
        self._plugins = tuple(plugins)
        self._failing: set[tuple[int, str]] = set()
        self._overriding = {
            name: tuple(
                each
                for each in self._plugins
                if getattr(getattr(each, name), "__func__", None) is not base
            )
            for name, base in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    def __bool__(self) -> bool:
        return bool(self._plugins)

    def wants(self, method: str) -> bool:
        """Return whether a plug-in overrides a method."""
        return bool(self._overriding[method])

    def overriding(self, method: str) -> tuple[PluginT, ...]:
        """Return the plug-ins that override a method."""
        return self._overriding[method]

    def notify(self, method: str, *arguments: Any) -> None:
        """Call a method of all plug-ins that override it."""
        for plugin in self._overriding[method]:
            try:
                getattr(plugin, method)(*arguments)
            except BaseException as error:
                self.failed(plugin, method, error)
            else:
                self.succeeded(plugin, method)

    def change(self, method: str, value: T, kind: type[T], what: str) -> T:
        """Pass a value through a method of all plug-ins that override it: each gets the result of
        the previous one. If one fails, the next gets its value.

        Args:
            kind: the class of valid results.
            what: a valid result in words, for the error.
        """
        for plugin in self._overriding[method]:
            try:
                changed = getattr(plugin, method)(value)
                if not isinstance(changed, kind):
                    raise TypeError(f"must return {what}, not {type(changed).__name__}")
            except BaseException as error:
                self.failed(plugin, method, error)
            else:
                value = changed
                self.succeeded(plugin, method)
        return value

    def close(self) -> None:
        """Call ``close`` of all plug-ins, even if one raises."""
        self.notify("close")

    def failed(self, plugin: object, method: str, error: BaseException) -> None:
        """Log an error, unless the last call of this method has failed, too."""
        if (id(plugin), method) not in self._failing:
            self._failing.add((id(plugin), method))
            name = type(plugin).__name__
            log.error(
                "%s.%s failed; not logged again until it succeeds", name, method, exc_info=error
            )
            surface(error)

    def succeeded(self, plugin: object, method: str) -> None:
        """Log the next error of this method."""
        if self._failing:
            self._failing.discard((id(plugin), method))
