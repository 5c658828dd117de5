"""Actions that tests apply to requests: ``broker.on(ApiKey.PRODUCE,
fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)``.

An action acts before a request is handled, afterwards, or both. The actions of a rule are applied
in the given order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.message import Message
from aioprod.public_module import set_module


class Pieces(NamedTuple):
    """A response that is sent in several writes.

    Attributes:
        parts: the bytes of each write; together the whole response or its beginning.
        hang_up: close the connection after the last part.
    """

    parts: list[bytes]
    hang_up: bool


#: The bytes to send as the response; None to send nothing.
Answer = bytes | Pieces | None


class DropConnection(Exception):
    """Closes the connection without a response."""


class ResetConnection(DropConnection):
    """Resets the connection (TCP's RST), instead of closing it."""


@dataclass(slots=True, frozen=True)
class Failure:
    """An error code to respond with, for the whole request or for one topic or partition."""

    code: ErrorCode
    topic: str | None = None
    partition: int | None = None

    def hits(self, topic: str | None, partition: int | None) -> bool:
        """Return whether this topic or partition must fail."""
        return self.topic in (None, topic) and self.partition in (None, partition)


@set_module("aioprod.testing")
class Action:
    """Changes the handling of a request. The base class does nothing.

    Attributes:
        failure: an error to respond with.
        piece_bytes: send the response in pieces of this many bytes.
        cut_at_byte: send only this many bytes of the response, then close the connection.
    """

    failure: Failure | None = None
    piece_bytes: int | None = None
    cut_at_byte: int | None = None

    async def before(self) -> None:
        """Act before the request is handled. DropConnection prevents this."""

    async def after(self) -> None:
        """Act after the request is handled and before the response is sent. DropConnection prevents
        the response.
        """

    def change(self, response: Message) -> None:
        """Change the response before it is sent."""

    def release(self) -> None:
        """Let the requests that wait for this action continue."""


class _Fail(Action):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class _Delay(Action):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before(self) -> None:
        await asyncio.sleep(self._seconds)


class _Wait(Action):
    def __init__(self, event: asyncio.Event | None) -> None:
        self._event = event or asyncio.Event()

    async def before(self) -> None:
        await self._event.wait()

    def release(self) -> None:
        self._event.set()


class _DelayedAnswer(_Wait):
    async def before(self) -> None:
        pass

    async def after(self) -> None:
        await self._event.wait()


class _Split(Action):
    def __init__(self, piece_bytes: int) -> None:
        self.piece_bytes = piece_bytes


class _Cut(Action):
    def __init__(self, at_byte: int) -> None:
        self.cut_at_byte = at_byte


class _DropBefore(Action):
    async def before(self) -> None:
        raise DropConnection


class _DropAfter(Action):
    async def after(self) -> None:
        raise DropConnection


class _ChangeAnswer(Action):
    def __init__(self, change: Callable[[Any], None]) -> None:
        self._change = change

    def change(self, response: Message) -> None:
        self._change(response)


class _Throttle(Action):
    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def change(self, response: Message) -> None:
        # The responses of the oldest APIs lack the field.
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self._milliseconds


def fail(code: ErrorCode, *, topic: str | None = None, partition: int | None = None) -> Action:
    """Respond with an error, and do not apply the request.

    Args:
        code: the error to respond with.
        topic: fail only this topic, and apply the rest of the request.
        partition: fail only partitions with this number.
    """
    return _Fail(Failure(code, topic, partition))


def delay(seconds: float) -> Action:
    """Wait before handling the request. As with a real broker, later requests on the same
    connection wait too.

    Args:
        seconds: the time to wait.

    Raises:
        ConfigError: if ``seconds`` is negative.
    """
    if seconds < 0:
        raise ConfigError(f"delay({seconds}): seconds must not be negative")
    return _Delay(seconds)


def throttle(milliseconds: int) -> Action:
    """Handle the request and respond immediately, but ask the client to wait, like a broker that
    enforces a quota (KIP-219).

    Args:
        milliseconds: the throttle time in the response.

    Raises:
        ConfigError: if ``milliseconds`` is negative.
    """
    if milliseconds < 0:
        raise ConfigError(f"throttle({milliseconds}): milliseconds must not be negative")
    return _Throttle(milliseconds)


def change_answer(change: Callable[[Any], None]) -> Action:
    """Handle the request and change the response before it is encoded.

    Args:
        change: gets the response, a message of ``aioprod.protocol.messages``, and modifies it.
    """
    return _ChangeAnswer(change)


def hold(event: asyncio.Event | None = None) -> Action:
    """Handle the request only after ``event`` is set or, without an event, after
    :meth:`Rule.release`.
    """
    return _Wait(event)


def hold_answer(event: asyncio.Event | None = None) -> Action:
    """Handle the request immediately, but send the response only when released, as with
    :func:`hold`: the client does not know that the request was applied.
    """
    return _DelayedAnswer(event)


def split(piece_bytes: int = 1) -> Action:
    """Handle the request and send the response in pieces. A client that reads fast enough gets each
    piece in a separate read.

    Args:
        piece_bytes: the size of a piece in bytes.

    Raises:
        ConfigError: if ``piece_bytes`` is less than 1.
    """
    if piece_bytes < 1:
        raise ConfigError(f"split({piece_bytes}): must be at least 1 byte")
    return _Split(piece_bytes)


def cut_answer(at_byte: int) -> Action:
    """Apply the request, send only the beginning of the response and close the connection.

    Args:
        at_byte: the number of bytes to send, including the four bytes of the response's size.

    Raises:
        ConfigError: if ``at_byte`` is negative.
    """
    if at_byte < 0:
        raise ConfigError(f"cut_answer({at_byte}): must not be negative")
    return _Cut(at_byte)


def drop_before() -> Action:
    """Close the connection and do not apply the request."""
    return _DropBefore()


def drop_after() -> Action:
    """Apply the request, then close the connection without a response: the client does not know
    that the request was applied.
    """
    return _DropAfter()


def close() -> Action:
    """Close the connection when such a request arrives. Another name for :func:`drop_before`."""
    return _DropBefore()


def in_pieces(answer: bytes, actions: Iterable[Action]) -> bytes | Pieces:
    """Split or cut a response as the actions request."""
    cut: int | None = None
    size: int | None = None
    for action in actions:
        cut = action.cut_at_byte if action.cut_at_byte is not None else cut
        size = action.piece_bytes or size
    if cut is None and size is None:
        return answer
    sent = answer[:cut]
    step = size or max(1, len(sent))
    return Pieces(
        [sent[start : start + step] for start in range(0, len(sent), step)], hang_up=cut is not None
    )
