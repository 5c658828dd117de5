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


class _Named:
    """A function that a class replaces this object by, under the class's own name, so that a repr
    does not show a private class and pickle finds the method.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._function.__module__ = owner.__module__
        self._function.__qualname__ = f"{owner.__qualname__}.{name}"
        setattr(owner, name, self._function)


def forward(attribute: str, method: Callable[Concatenate[Any, P], R]) -> Method[P, R]:
    """Make a method that calls ``method`` of the object in ``self``'s attribute."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(self, attribute), *args, **kwargs)

    @functools.wraps(method)
    async def call_async(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await cast("Any", method(getattr(self, attribute), *args, **kwargs))

    is_async = inspect.iscoroutinefunction(method)
    return cast("Method[P, R]", _Named(call_async if is_async else call))


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Method[P, R]: ...


@overload
def blocking(method: Callable[Concatenate[Any, P], R]) -> Method[P, R]: ...


def blocking(method: Callable[Concatenate[Any, P], Any]) -> Method[P, Any]:
    """Make a method that runs the broker's method of the same name on its event loop, and waits for
    it. The broker's class can override the method.
    """

    @functools.wraps(method)
    def call(self: Threaded, *args: P.args, **kwargs: P.kwargs) -> Any:
        return _call(self, method.__name__, *args, **kwargs)

    return cast("Method[P, Any]", _Named(call))


def blocking_rule(method: Callable[Concatenate[Any, P], Rule]) -> Method[P, ThreadedRule]:
    """Like :func:`blocking`, for a method that returns a rule."""

    @functools.wraps(method)
    def call(self: Threaded, *args: P.args, **kwargs: P.kwargs) -> ThreadedRule:
        return ThreadedRule(_call(self, method.__name__, *args, **kwargs), self._portal)

    call.__annotations__ = {**method.__annotations__, "return": ThreadedRule}
    call.__signature__ = inspect.signature(method).replace(  # type: ignore[attr-defined]
        return_annotation=ThreadedRule
    )
    return cast("Method[P, ThreadedRule]", _Named(call))


def _call(cluster: Threaded, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return cluster._portal.call(lambda: getattr(cluster._broker, name)(*args, **kwargs))
