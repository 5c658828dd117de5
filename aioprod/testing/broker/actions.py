"""What tests may ask of the embedded broker: ``broker.on(ApiKey.PRODUCE,
fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)``.

An action acts before a request is handled, after it, or both. Several actions of one rule act in
the order given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.message import Message


class Pieces(NamedTuple):
    """A response that is sent in several writes.

    Attributes:
        parts: the bytes of each write; together the whole response or its beginning.
        hang_up: close the connection after the last part.
    """

    parts: list[bytes]
    hang_up: bool


#: What is sent for a request; None sends nothing.
Answer = bytes | Pieces | None


class DropConnection(Exception):
    """The connection is closed and the request stays without an answer."""


@dataclass(slots=True, frozen=True)
class Failure:
    """An error code to answer with, everywhere or for one topic or partition."""

    code: ErrorCode
    topic: str | None = None
    partition: int | None = None

    def hits(self, topic: str | None, partition: int | None) -> bool:
        """Tell whether the answer for this place has to fail."""
        return self.topic in (None, topic) and self.partition in (None, partition)


class Action:
    """One thing to do to a request. The base class does nothing.

    Attributes:
        failure: an error to answer with.
        piece_bytes: send the answer in pieces of so many bytes.
        cut_at_byte: send only so many bytes of the answer and hang up.
    """

    failure: Failure | None = None
    piece_bytes: int | None = None
    cut_at_byte: int | None = None

    async def before(self) -> None:
        """Act before the request is handled; DropConnection keeps it from being handled."""

    async def after(self) -> None:
        """Act when the request was handled and before its answer is sent; DropConnection keeps the
        answer back.
        """

    def change(self, response: Message) -> None:
        """Change the answer before it is sent."""

    def release(self) -> None:
        """Let go on what this action holds."""


class _Fail(Action):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class _Delay(Action):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before(self) -> None:
        await asyncio.sleep(self._seconds)


class _Hold(Action):
    def __init__(self, event: asyncio.Event | None) -> None:
        self._event = event or asyncio.Event()

    async def before(self) -> None:
        await self._event.wait()

    def release(self) -> None:
        self._event.set()


class _HoldAnswer(_Hold):
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
        # Every answer to a client has it, but for those of the oldest APIs.
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self._milliseconds


def fail(code: ErrorCode, *, topic: str | None = None, partition: int | None = None) -> Action:
    """Answer with ``code`` and apply nothing; with ``topic`` or ``partition`` only there, while the
    rest of the request is applied.
    """
    return _Fail(Failure(code, topic, partition))


def delay(seconds: float) -> Action:
    """Wait before handling the request. Later requests of the same connection wait as well, as with
    a real broker.
    """
    if seconds < 0:
        raise ConfigError(f"delay({seconds}): seconds must not be negative")
    return _Delay(seconds)


def throttle(milliseconds: int) -> Action:
    """Handle the request and answer at once, but ask the client for a pause, as a broker does whose
    quota is used up (KIP-219).
    """
    if milliseconds < 0:
        raise ConfigError(f"throttle({milliseconds}): milliseconds must not be negative")
    return _Throttle(milliseconds)


def change_answer(change: Callable[[Any], None]) -> Action:
    """Handle the request, and have ``change`` change the answer: a message of
    ``aioprod.protocol.messages``, which is written afterwards.
    """
    return _ChangeAnswer(change)


def hold(event: asyncio.Event | None = None) -> Action:
    """Handle the request only when ``event`` is set; without one, when the rule's
    :meth:`Rule.release` is called.
    """
    return _Hold(event)


def hold_answer(event: asyncio.Event | None = None) -> Action:
    """Handle the request at once, but answer only when released (see :func:`hold`): the client does
    not know that it was applied.
    """
    return _HoldAnswer(event)


def split(piece_bytes: int = 1) -> Action:
    """Handle the request, and send the answer in pieces of so many bytes: the client gets it in as
    many reads if it reads fast enough.
    """
    if piece_bytes < 1:
        raise ConfigError(f"split({piece_bytes}): must be at least 1 byte")
    return _Split(piece_bytes)


def cut_answer(at_byte: int) -> Action:
    """Apply the request, send only so many bytes of the answer (its four-byte size is counted), and
    close the connection.
    """
    if at_byte < 0:
        raise ConfigError(f"cut_answer({at_byte}): must not be negative")
    return _Cut(at_byte)


def drop_before() -> Action:
    """Close the connection and do not apply the request."""
    return _DropBefore()


def drop_after() -> Action:
    """Apply the request, then close the connection instead of answering: the client does not know
    that it was applied.
    """
    return _DropAfter()


def close() -> Action:
    """Close the connection when such a request comes: another name for :func:`drop_before`."""
    return _DropBefore()


def in_pieces(answer: bytes, actions: Iterable[Action]) -> bytes | Pieces:
    """The answer as the actions want it sent."""
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
