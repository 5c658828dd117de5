"""Separate connections for a group: JoinGroup blocks a connection until all members have joined,
and heartbeats must not wait for a Fetch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from typing import TypeVar

from aioprod.cluster.coordinators import Coordinators, CoordinatorType
from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.client import ClientConfig
from aioprod.errors import BrokerConnectionError, KafkaError
from aioprod.net.backoff import Backoff
from aioprod.net.connection import Connection
from aioprod.net.refusals import principal_of
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ResponseT = TypeVar("ResponseT", bound=Message)
Prepare = Callable[[Connection], tuple[Request[ResponseT], int]]
"""Makes a message, and picks its version for a connection."""


class GroupConnections:
    """Sends requests to one group's coordinator.

    Args:
        config: the timeouts and the backoff.
        group_id: the group.
        runtime: opens the connections.

    Attributes:
        client_id: the member's, for the log.
        group_id: the group.
        backoff: the pauses between attempts.
    """

    def __init__(self, config: ClientConfig, group_id: str, runtime: ClientRuntime) -> None:
        self.client_id: str = config.client_id
        self.group_id = group_id
        self.principal: str = principal_of(config)
        self.backoff: Backoff = runtime.backoff
        self._brokers = runtime.separate_connections()
        self._coordinators = Coordinators(config, self._brokers, runtime.rng)
        self._in_use: Connection | None = None

    @property
    def trouble(self) -> KafkaError | None:
        """The reason why the coordinator can't be reached now, if known."""
        return self._coordinators.trouble

    def forget_coordinator(self) -> None:
        """Find the coordinator again before the next request."""
        self._coordinators.forget(CoordinatorType.GROUP, self.group_id)

    async def ask(self, prepare: Prepare[ResponseT], timeout_ms: float | None = None) -> ResponseT:
        """Send one request to the coordinator, and return its response, with any error code.

        Raises:
            KafkaError: see :meth:`aioprod.cluster.coordinators.Coordinators.request`.
        """

        def noting(connection: Connection) -> tuple[Request[ResponseT], int]:
            self._in_use = connection
            return prepare(connection)

        return await self._coordinators.request(
            CoordinatorType.GROUP, self.group_id, noting, timeout_ms
        )

    async def topic_names(self, topic_ids: Collection[uuid.UUID]) -> dict[str, uuid.UUID]:
        """Return the names of topics by id; topics that the broker does not know are left out.

        Raises:
            KafkaError: if no broker responds, or brokers are older than Kafka 3.1.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids],
            allow_auto_topic_creation=False,
        )
        reply = await self._brokers.ask_any(lambda connection: connection.request(request))
        return {
            topic.name: topic.topic_id
            for topic in reply.topics
            if topic.name is not None and not topic.error_code
        }

    def hang_up(self) -> None:
        """Close the connection of the last request: LeaveGroup would wait for minutes behind a
        cancelled JoinGroup.
        """
        if self._in_use is not None:
            self._in_use.abort(
                BrokerConnectionError(
                    f"{self._in_use.address}: joining group {self.group_id!r} was cancelled"
                )
            )
            self._in_use = None

    async def close(self) -> None:
        """Close all connections."""
        await self._brokers.close()
