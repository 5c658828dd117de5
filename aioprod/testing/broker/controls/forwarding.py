"""Methods that call a method of another object, with its name, signature and documentation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from anyio.from_thread import BlockingPortal

from aioprod.testing.broker.rules import Rule, ThreadedRule

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Method(Protocol[P, R_co]):
    """A function in a class: called with an instance's arguments without ``self``."""

    @overload
    def __get__(
        self, instance: None, owner: type[Any], /
    ) -> Callable[Concatenate[Any, P], R_co]: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Callable[P, R_co]: ...


class Threaded(Protocol):
    """An object whose methods run on the event loop of a portal."""

    _broker: Any
    _portal: BlockingPortal


def forward(attribute: str, method: Callable[Concatenate[Any, P], R]) -> Method[P, R]:
    """Make a method that calls ``method`` of the object in ``self``'s attribute."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(self, attribute), *args, **kwargs)

    @functools.wraps(method)
    async def call_async(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await cast("Any", method(getattr(self, attribute), *args, **kwargs))

    return cast("Method[P, R]", call_async if inspect.iscoroutinefunction(method) else call)


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Method[P, R]: ...


@overload
def blocking(method: Callable[Concatenate[Any, P], R]) -> Method[P, R]: ...


def blocking(method: Callable[Concatenate[Any, P], Any]) -> Method[P, Any]:
    """Make a method that runs ``method`` of the broker on its event loop, and waits for it."""

    @functools.wraps(method)
    def call(self: Threaded, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._portal.call(functools.partial(method, self._broker, *args, **kwargs))

    return cast("Method[P, Any]", call)


def blocking_rule(method: Callable[Concatenate[Any, P], Rule]) -> Method[P, ThreadedRule]:
    """Like :func:`blocking`, for a method that returns a rule."""

    @functools.wraps(method)
    def call(self: Threaded, *args: P.args, **kwargs: P.kwargs) -> ThreadedRule:
        rule = self._portal.call(functools.partial(method, self._broker, *args, **kwargs))
        return ThreadedRule(rule, self._portal)

    return cast("Method[P, ThreadedRule]", call)
