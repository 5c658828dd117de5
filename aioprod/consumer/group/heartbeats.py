"""Keeps a classic member's session, and hears of rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.identity import Generation, Identity
from aioprod.consumer.group.verdicts import Api, Verdict, judge
from aioprod.error_codes import ErrorCode
from aioprod.errors import AuthenticationError, BrokerError, KafkaError, UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.heartbeat import HeartbeatRequest


class HeartbeatEvents(Protocol):
    """Who hears what heartbeats find out."""

    problem: KafkaError | None

    def heartbeat_said(self, verdict: Verdict, code: ErrorCode, generation: Generation) -> None:
        """An answer to a heartbeat of this generation needs something to be done. After anything
        but REJOIN there are no more heartbeats.
        """

    def heartbeats_failed(self, error: KafkaError) -> None:
        """There are no more heartbeats: trying again does not help."""


class Heartbeats:
    """One task, while the member is in its group."""

    def __init__(
        self,
        config: ConsumerConfig,
        connections: GroupConnections,
        identity: Identity,
        events: HeartbeatEvents,
        touch: Callable[[], None],
    ) -> None:
        self._config = config
        self._connections = connections
        self._identity = identity
        self._events = events
        self._touch = touch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with the first one after a whole interval."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="aioprod-heartbeats")
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """End; what is under way stays without consequences."""
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task.cancel()
            self._task = None

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
        while True:
            interval_s = self._config.heartbeat_interval_ms / 1000
            await asyncio.sleep(
                min(interval_s, self._connections.backoff.seconds(failures))
                if failures
                else interval_s
            )
            self._touch()
            generation = self._identity.generation
            try:
                reply = await self._connections.ask(self._prepare)
            except (AuthenticationError, UnsupportedVersionError) as error:
                self._events.heartbeats_failed(error)
                return
            except KafkaError as error:
                if (
                    isinstance(error, BrokerError)
                    and judge(Api.FIND_COORDINATOR, error.code) is Verdict.REFUSED
                ):
                    self._events.heartbeats_failed(error)
                    return
                self._events.problem = error
                failures += 1
                continue
            code = ErrorCode.of(reply.error_code)
            verdict = judge(Api.HEARTBEAT, code)
            failures = failures + 1 if verdict in (Verdict.RETRY, Verdict.NEW_COORDINATOR) else 0
            self._events.problem = BrokerError(code, "Heartbeat") if failures else None
            if verdict is Verdict.NEW_COORDINATOR:
                self._connections.forget_coordinator()
            elif verdict not in (Verdict.DONE, Verdict.RETRY):
                self._events.heartbeat_said(verdict, code, generation)
                if verdict is not Verdict.REJOIN:
                    return

    def _prepare(self, connection: Connection) -> tuple[HeartbeatRequest, int]:
        generation = self._identity.generation
        request = HeartbeatRequest(
            self._connections.group_id,
            generation.generation_id,
            generation.member_id,
            self._config.group_instance_id,
        )
        return request, connection.pick_version(HeartbeatRequest)
