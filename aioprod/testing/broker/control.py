"""What tests may ask of the embedded broker: ``broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)``.

An action acts before a request is handled, after it, or both. Several actions of one rule act in the order given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.message import Message


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
    """One thing to do to a request. The base class does nothing."""

    failure: Failure | None = None

    async def before(self) -> None:
        """Act before the request is handled; DropConnection keeps it from being handled."""

    async def after(self) -> None:
        """Act when the request was handled and before its answer is sent; DropConnection keeps the answer back."""

    def change(self, response: Message) -> None:
        """Change the answer before it is sent."""


class _Fail(Action):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class _Delay(Action):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before(self) -> None:
        await asyncio.sleep(self._seconds)


class _Hold(Action):
    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    async def before(self) -> None:
        await self._event.wait()


class _HoldAnswer(_Hold):
    async def before(self) -> None:
        pass

    async def after(self) -> None:
        await self._event.wait()


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
    """Answer with ``code`` and apply nothing; with ``topic`` or ``partition`` only there, while the rest of the request is applied."""
    return _Fail(Failure(code, topic, partition))


def delay(seconds: float) -> Action:
    """Wait before handling the request. Later requests of the same connection wait as well, as with a real broker."""
    if seconds < 0:
        raise ConfigError(f"delay({seconds}): seconds must not be negative")
    return _Delay(seconds)


def throttle(milliseconds: int) -> Action:
    """Handle the request and answer at once, but ask the client for a pause, as a broker does whose quota is used up (KIP-219)."""
    if milliseconds < 0:
        raise ConfigError(f"throttle({milliseconds}): milliseconds must not be negative")
    return _Throttle(milliseconds)


def change_answer(change: Callable[[Any], None]) -> Action:
    """Handle the request, and have ``change`` change the answer: a message of ``aioprod.protocol.messages``, which is written afterwards."""
    return _ChangeAnswer(change)


def hold(event: asyncio.Event) -> Action:
    """Handle the request only when ``event`` is set."""
    return _Hold(event)


def hold_answer(event: asyncio.Event) -> Action:
    """Handle the request at once, but answer only when ``event`` is set: the client does not know that it was applied."""
    return _HoldAnswer(event)


def drop_before() -> Action:
    """Close the connection and do not apply the request."""
    return _DropBefore()


def drop_after() -> Action:
    """Apply the request, then close the connection instead of answering: the client does not know that it was applied."""
    return _DropAfter()


def close() -> Action:
    """Close the connection when such a request comes: another name for :func:`drop_before`."""
    return _DropBefore()


class Rule:
    """What :meth:`EmbeddedCluster.on` has set up.

    Attributes:
        used: how many requests it acted on.
    """

    def __init__(self, actions: tuple[Action, ...], times: int | None, where: Callable[[Message], bool] | None, node: int | None = None) -> None:
        if not actions:
            raise ConfigError("a rule needs at least one action, such as fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)")
        if times is not None and times < 1:
            raise ConfigError(f"times={times}: must be at least 1, or None for always")
        self.actions = actions
        self.used = 0
        self._left = times
        self._where = where
        self._node = node

    @property
    def spent(self) -> bool:
        """Whether it has acted as often as it was to."""
        return self._left == 0

    def cancel(self) -> None:
        """Act no more."""
        self._left = 0

    def take(self, request: Message, node_id: int) -> bool:
        """Use the rule for this request if it applies."""
        if self._left == 0 or self._node not in (None, node_id) or (self._where is not None and not self._where(request)):
            return False
        if self._left is not None:
            self._left -= 1
        self.used += 1
        return True


class RuleBook:
    """The rules per API, oldest first: one request uses one rule."""

    def __init__(self) -> None:
        self._rules: dict[int, list[Rule]] = {}

    def add(self, api_key: int, rule: Rule) -> None:
        """Put a rule behind the others of its API."""
        self._rules.setdefault(api_key, []).append(rule)

    def take(self, api_key: int, request: Message, node_id: int) -> tuple[Action, ...]:
        """Return the actions for a request to a node, from the first rule that applies."""
        rules = self._rules.get(api_key)
        if not rules:
            return ()
        rules[:] = [rule for rule in rules if not rule.spent]
        return next((rule.actions for rule in rules if rule.take(request, node_id)), ())

    def clear(self) -> None:
        """Forget all rules."""
        self._rules.clear()
