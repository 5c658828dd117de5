"""Observers of an admin client, which are called for calls and connections."""

from collections.abc import Iterable
from typing import NamedTuple

from aioprod.metrics.observing import ObserverList
from aioprod.public_module import set_module


@set_module("aioprod.metrics")
class CallDone(NamedTuple):
    """A call of an admin client that has ended.

    Attributes:
        call: its name, such as ``"create_topics"``.
        items: the number of topics, groups and so on.
        failed: how many of them have an error.
        attempts: number of attempts.
        latency_s: duration of the call in seconds.
        error: the first error of an item, or the error that the call raised; else None.
    """

    call: str
    items: int
    failed: int
    attempts: int
    latency_s: float
    error: Exception | None


@set_module("aioprod.metrics")
class ObservedAdmin(NamedTuple):
    """The admin client that an observer observes.

    Attributes:
        client_id: its ``client_id``.
    """

    client_id: str


@set_module("aioprod.metrics")
class AdminObserver:
    """Base class of observers of an admin client; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again, and changes nothing. KeyboardInterrupt and SystemExit are also raised
    by the event loop.
    """

    def on_start(self, admin: ObservedAdmin) -> None:
        """Called once, when the client starts to connect. If it is never started, only ``close`` is
        called.
        """

    def on_call(self, event: CallDone) -> None:
        """Called when a call has ended, with results or errors; not if it was cancelled."""

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        """Called when a connection to ``address`` is opened or closed. ``node_id`` -1 is a
        bootstrap server.
        """

    def close(self) -> None:
        """Called once, last, when the client is closed."""


class AdminObservers(ObserverList[AdminObserver]):
    """The observers of an admin client."""

    def __init__(self, observers: Iterable[AdminObserver] = ()) -> None:
        super().__init__(AdminObserver, observers)
