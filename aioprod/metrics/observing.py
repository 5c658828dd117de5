"""Calls the observers of a client: what is the same for all kinds of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from aioprod.logs import get_logger
from aioprod.public_module import set_module
from aioprod.user_code import surface

log = get_logger(__name__)

ObserverT = TypeVar("ObserverT")


@set_module("aioprod.metrics")
class RequestDone(NamedTuple):
    """A request that was answered or has failed.

    Attributes:
        node_id: the broker.
        api: the name of the request in Kafka's protocol, such as ``"Produce"``.
        latency_s: seconds since it was written.
        error: the reason if there is no response; else None.
    """

    node_id: int
    api: str
    latency_s: float
    error: Exception | None


class ObserverList(Generic[ObserverT]):
    """The observers of a client; false if there are none, so that it creates no events.

    Only overridden methods are called. An error is logged, once until the method succeeds again.

    Args:
        kind: the base class of the observers.
        observers: the observers, in their order.
    """

    def __init__(self, kind: type[ObserverT], observers: Iterable[ObserverT]) -> None:
        self._observers = tuple(observers)
        self._failing: set[tuple[int, str]] = set()
        self._started = False
        self._overriding = {
            name: tuple(each for each in self._observers if getattr(type(each), name) is not base)
            for name, base in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    def __bool__(self) -> bool:
        return bool(self._observers)

    def wants(self, method: str) -> bool:
        """Whether an observer overrides a method."""
        return bool(self._overriding[method])

    def start(self, client: object) -> None:
        """Call ``on_start`` of all observers, once even if the start is retried."""
        if not self._started:
            self._started = True
            self.notify("on_start", client)

    def notify(self, method: str, *event: Any) -> None:
        """Call a method of all observers that override it."""
        for observer in self._overriding[method]:
            try:
                getattr(observer, method)(*event)
            except BaseException as error:
                self.failed(observer, method, error)
            else:
                self.succeeded(observer, method)

    def close(self) -> None:
        """Call ``close`` of all observers."""
        self.notify("close")

    def overriding(self, method: str) -> tuple[ObserverT, ...]:
        """Return the observers that override a method."""
        return self._overriding[method]

    def failed(self, observer: object, method: str, error: BaseException) -> None:
        """Log an error, unless the last call of this method has failed, too: a broken observer must
        not fill the log.
        """
        if (id(observer), method) not in self._failing:
            self._failing.add((id(observer), method))
            name = type(observer).__name__
            log.error(
                "%s.%s failed; not logged again until it succeeds", name, method, exc_info=error
            )
            surface(error)

    def succeeded(self, observer: object, method: str) -> None:
        """Log the next error of this method."""
        if self._failing:
            self._failing.discard((id(observer), method))
