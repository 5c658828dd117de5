"""The APIs that the broker handles. Each handler registers itself with :func:`handles`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from aioprod.protocol.message import Message
from aioprod.testing.broker.request_context import RequestContext

Request = TypeVar("Request", bound=Message)
Handle = Callable[[Request, RequestContext], Awaitable[Message | None]]


class Handler(NamedTuple):
    """The handler of an API.

    Attributes:
        request_type: the class that decodes the request.
        versions: the lowest and the highest version.
        handle: a coroutine function that returns the response, or None to send none.
    """

    request_type: type[Message]
    versions: tuple[int, int]
    handle: Callable[[Any, RequestContext], Awaitable[Message | None]]


#: The handlers by API key; ApiVersions announces them.
HANDLERS: dict[int, Handler] = {}


def handles(
    request_type: type[Request], versions: tuple[int, int] | None = None
) -> Callable[[Handle[Request]], Handle[Request]]:
    """Register a coroutine function as the handler of an API, for all versions or for those
    given.
    """

    def register(handle: Handle[Request]) -> Handle[Request]:
        low_and_high = versions or (request_type.MIN_VERSION, request_type.MAX_VERSION)
        HANDLERS[request_type.API_KEY] = Handler(request_type, low_and_high, handle)
        return handle

    return register
