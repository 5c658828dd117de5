"""Sends the same request to the embedded and to a real broker, and compares the responses field by
field.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.message import Message, Request, Struct
from tests.testing.raw_client import RawClient

ResponseT = TypeVar("ResponseT", bound=Message)
_FINISH_SECONDS = 10.0

# Fields that may differ, and how their values are normalized before they are
# compared.
MAY_DIFFER: dict[str, Callable[[Any], Any]] = {
    "error_message": lambda text: None,  # texts differ
    "batch_index_error_message": lambda text: None,
    "documentation": lambda text: None,  # settings are not documented
    "throttle_time_ms": lambda number: None,
    "topic_id": lambda identifier: identifier == uuid.UUID(int=0),  # random
    "producer_id": lambda number: number >= 0,
    "host": lambda text: None,
    "port": lambda number: None,
    "cluster_id": lambda text: bool(text),
    "log_dir": lambda text: None,
    "total_bytes": lambda number: number > 0,
    "usable_bytes": lambda number: number > 0,
    "last_timestamp": lambda number: number >= 0,
    "transaction_start_time_ms": lambda number: number >= 0,
}
# Lists whose order Kafka does not define.
UNORDERED = {
    *(
        "brokers",
        "config_resources",
        "configs",
        "entity",
        "entries",
        "partitions",
        "responses",
        "results",
        "topics",
        "transaction_states",
    ),
    *("unknown_state_filters", "values"),
}

PLAIN = (int, float, str, bytes, memoryview, uuid.UUID)


def comparable(value: Any) -> Any:
    """Return a message as plain dictionaries and lists, without what may differ."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, Struct):
        return {name: _field(name, getattr(value, name)) for name in value.__slots__}
    assert value is None or isinstance(value, PLAIN), f"{value!r} would be compared as it is"
    return value


def _field(name: str, value: Any) -> Any:
    if name in MAY_DIFFER:
        return MAY_DIFFER[name](value)
    if name == "error_code":
        return int(value)
    plain = comparable(value)
    return sorted(plain, key=repr) if name in UNORDERED and plain else plain


class BothBrokers:
    """A connection to each of two brokers.

    Attributes:
        adapt: changes what is compared, if a field's name does not return whether it may differ.
    """

    def __init__(self, real: str, embedded: str) -> None:
        self.real = RawClient(real)
        self.embedded = RawClient(embedded)
        self.adapt: Callable[[Any], Any] = lambda answer: answer

    async def __aenter__(self) -> Self:
        await self.real.__aenter__()
        await self.embedded.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.real.__aexit__(kind, error, trace)
        await self.embedded.__aexit__(kind, error, trace)

    async def ask(
        self, request: Request[ResponseT], version: int | None = None, *, finishes: bool = False
    ) -> ResponseT:
        """Send to both, compare, and return the embedded broker's response.

        If ``finishes``, repeat the request to the real broker until the responses agree: its parts
        learn of a change at different times.
        """
        version = type(request).MAX_VERSION if version is None else version
        answer = await self.embedded.call(request, version)
        ours = self.adapt(comparable(answer))
        theirs = self.adapt(comparable(await self.real.call(request, version)))
        deadline = asyncio.get_running_loop().time() + _FINISH_SECONDS
        while finishes and ours != theirs and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
            theirs = self.adapt(comparable(await self.real.call(request, version)))
        assert ours == theirs, f"version {version} of {request}"
        return answer

    async def ask_all_versions(self, request: Request[Any], *, finishes: bool = False) -> None:
        """Send and compare all versions of the request."""
        for version in range(type(request).MIN_VERSION, type(request).MAX_VERSION + 1):
            await self.ask(request, version, finishes=finishes)


def error_codes(answer: Message) -> set[ErrorCode]:
    """Return the error codes in a message, at any depth."""
    found: set[ErrorCode] = set()

    def collect(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, Struct):
            for name in value.__slots__:
                inner = getattr(value, name)
                if name.endswith("error_code"):
                    found.add(ErrorCode.of(inner))
                else:
                    collect(inner)

    collect(answer)
    return found
