"""Calls the observers of a client. Shared by all kinds of clients."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from aioprod.public_module import set_module
from aioprod.user_code import Plugins

ObserverT = TypeVar("ObserverT")


@set_module("aioprod.metrics")
class RequestDone(NamedTuple):
    """A request that received its response or failed.

    Attributes:
        node_id: the broker.
        api: the name of the request in Kafka's protocol, such as ``"Produce"``.
        latency_s: seconds since it was written.
        error: why there is no response; else None.
    """

    node_id: int
    api: str
    latency_s: float
    error: Exception | None


class ObserverList(Plugins[ObserverT]):
    """The observers of a client; without any, it creates no events.

    Args:
        kind: the base class of the observers.
        observers: the observers, in their order.
    """

    def __init__(self, kind: type[ObserverT], observers: Iterable[ObserverT]) -> None:
        super().__init__(kind, observers)
        self._started = False

    def start(self, client: object) -> None:
        """Call ``on_start`` of all observers; only once, even if the start is retried."""
        if not self._started:
            self._started = True
            self.notify("on_start", client)
