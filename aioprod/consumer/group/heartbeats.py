"""Sends the heartbeats of a classic member, which keep its session and report rebalances."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for
from aioprod.consumer.group.member_state import Generation, MemberState
from aioprod.consumer.group.poll_watch import PollWatch
from aioprod.error_codes import ErrorCode
from aioprod.errors import AuthenticationError, BrokerError, KafkaError, UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.running_loop import start_task

# The coordinator waits for a member to join again for max.poll.interval.ms.
_PER_POLL_INTERVAL = 3


class HeartbeatEvents(Protocol):
    """Gets the events of a member's heartbeats."""

    def note_problem(self, problem: KafkaError | None) -> None:
        """Store why the coordinator can't be reached; None if it can."""

    def heartbeat_said(self, action: ErrorAction, code: ErrorCode, generation: Generation) -> None:
        """Handle the action after a heartbeat of this generation. Heartbeats stop, except after
        REJOIN.
        """

    def heartbeats_failed(self, error: KafkaError) -> None:
        """Handle an error that a retry does not solve; heartbeats have stopped."""


class Heartbeats:
    """The heartbeat task, which runs while the member is in its group."""

    def __init__(
        self,
        config: ConsumerConfig,
        connections: GroupConnections,
        state: MemberState,
        events: HeartbeatEvents,
        touch: Callable[[], None],
        poll_watch: PollWatch,
    ) -> None:
        self._config = config
        self._connections = connections
        self._state = state
        self._events = events
        self._touch = touch
        self._poll_watch = poll_watch
        # A member learns of a rebalance by a heartbeat. With a longer interval it would miss each
        # one, and members would remove each other from the group forever.
        interval_ms = min(
            config.heartbeat_interval_ms, config.max_poll_interval_ms / _PER_POLL_INTERVAL
        )
        self._interval_s = interval_ms / 1000
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; the first heartbeat is sent after one interval."""
        self.stop()
        self._poll_watch.session_began(self._config.session_timeout_ms / 1000)
        self._task = start_task(self._run(), name="aioprod-heartbeats")
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Stop; the response to a heartbeat in flight is ignored."""
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task.cancel()
            self._task = None
        self._poll_watch.heartbeats_stopped()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._events.heartbeats_failed(
                KafkaError("the consumer's heartbeat task was cancelled from outside")
            )
        elif (error := task.exception()) is not None:
            self._events.heartbeats_failed(
                KafkaError(f"the consumer's heartbeat task failed: {error!r}")
            )

    async def _run(self) -> None:
        failures = 0
        session_s = self._config.session_timeout_ms / 1000
        while True:
            await asyncio.sleep(
                min(self._interval_s, self._connections.backoff.seconds(failures))
                if failures
                else self._interval_s
            )
            self._touch()
            generation = self._state.generation
            self._poll_watch.heartbeat_sent()
            try:
                reply = await self._connections.ask(self._prepare)
            except (AuthenticationError, UnsupportedVersionError) as error:
                self._events.heartbeats_failed(error)
                return
            except KafkaError as error:
                if (
                    isinstance(error, BrokerError)
                    and action_for(GroupApi.FIND_COORDINATOR, error.code) is ErrorAction.REFUSED
                ):
                    self._events.heartbeats_failed(error)
                    return
                self._events.note_problem(error)
                failures += 1
                self._poll_watch.heartbeat_ended(math.inf)
                continue
            code = ErrorCode.of(reply.error_code)
            action = action_for(GroupApi.HEARTBEAT, code)
            failures = (
                failures + 1 if action in (ErrorAction.RETRY, ErrorAction.NEW_COORDINATOR) else 0
            )
            self._events.note_problem(BrokerError(code, "Heartbeat") if failures else None)
            if action is ErrorAction.NEW_COORDINATOR:
                self._connections.forget_coordinator()
            elif action not in (ErrorAction.DONE, ErrorAction.RETRY):
                self._events.heartbeat_said(action, code, generation)
                if action is not ErrorAction.REJOIN:
                    return
            self._poll_watch.heartbeat_ended(session_s)

    def _prepare(self, connection: Connection) -> tuple[HeartbeatRequest, int]:
        generation = self._state.generation
        request = HeartbeatRequest(
            self._connections.group_id,
            generation.generation_id,
            generation.member_id,
            self._config.group_instance_id,
        )
        return request, connection.pick_version(HeartbeatRequest)
