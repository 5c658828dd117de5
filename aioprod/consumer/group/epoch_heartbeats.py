"""Sends the heartbeats of a member with an epoch, in a consumer group (KIP-848) or a share group
(KIP-932).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for
from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    UnsupportedVersionError,
)
from aioprod.net.bounds import MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS, bounded
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request

ResponseT = TypeVar("ResponseT", bound=Message)

# Only the coordinator knows the session; Kafka advises at least three intervals of heartbeats.
_INTERVALS_OF_SESSION = 3


class Heartbeater(Protocol[ResponseT]):
    """The member whose heartbeats are sent."""

    def prepare(self, connection: Connection) -> tuple[Request[ResponseT], int]:
        """Return the next heartbeat and its version."""

    def accept(self, reply: ResponseT) -> ErrorAction:
        """Handle a response. Raise errors that a retry does not solve."""

    def unanswered(self, error: KafkaError) -> None:
        """Note that a heartbeat has no usable response; it is retried."""


class EpochHeartbeats(Generic[ResponseT]):
    """Sends heartbeats until the coordinator removes the member.

    Args:
        connections: the way to the coordinator.
        member: makes the heartbeats and handles the responses.
        on_sent: called before each heartbeat.
        on_ended: called after its end with the seconds until the session ends; infinity if the
            coordinator can't be reached.

    Attributes:
        due: set if the next heartbeat is due now.
    """

    def __init__(
        self,
        connections: GroupConnections,
        member: Heartbeater[ResponseT],
        on_sent: Callable[[], object] = lambda: None,
        on_ended: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.due: asyncio.Event = asyncio.Event()
        self._interval_s = 5.0
        self._connections = connections
        self._member = member
        self._on_sent = on_sent
        self._on_ended = on_ended
        self._removals = 0  # since the last successful heartbeat

    def set_interval(self, interval_ms: int) -> None:
        """Adopt the time between heartbeats that the coordinator asks for."""
        self._interval_s = bounded(interval_ms, MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS)

    async def run(self) -> None:
        """Return when the coordinator has removed the member. Raise errors that a retry does not
        solve.
        """
        failures = 0
        # The member joins again at once, but with a backoff if the coordinator removes it
        # repeatedly.
        await asyncio.sleep(self._connections.backoff.seconds(self._removals - 1))
        while True:
            self.due.clear()
            self._on_sent()
            action = await self._exchange()
            if action in (ErrorAction.LOST_GENERATION, ErrorAction.LOST_MEMBER):
                self._removals += 1
                return
            if action is ErrorAction.NEW_COORDINATOR:
                self._connections.forget_coordinator()
            failures = 0 if action is ErrorAction.DONE else failures + 1
            self._removals = 0 if action is ErrorAction.DONE else self._removals
            self._on_ended(math.inf if failures else _INTERVALS_OF_SESSION * self._interval_s)
            if failures:
                await asyncio.sleep(self._connections.backoff.seconds(failures))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self.due.wait()

    async def _exchange(self) -> ErrorAction:
        try:
            reply = await self._connections.ask(self._member.prepare)
        except (AuthenticationError, UnsupportedVersionError):
            raise
        except KafkaError as error:
            if (
                isinstance(error, BrokerError)
                and action_for(GroupApi.FIND_COORDINATOR, error.code) is ErrorAction.REFUSED
            ):
                raise
            self._member.unanswered(error)
            return ErrorAction.RETRY
        return self._member.accept(reply)
