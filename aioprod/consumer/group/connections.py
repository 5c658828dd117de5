"""A group's own connections. JoinGroup blocks a connection on the broker until all members are
there, and heartbeats must not wait behind a Fetch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from typing import TypeVar

from aioprod.cluster.coordinators import Coordinators, CoordinatorType
from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.consumer import ConsumerConfig
from aioprod.errors import BrokerConnectionError, KafkaError
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ResponseT = TypeVar("ResponseT", bound=Message)
Prepare = Callable[[Connection], tuple[Request[ResponseT], int]]
"""Makes a message and picks its version for a connection."""


class GroupConnections:
    """Requests to one group's coordinator.

    Attributes:
        group_id: the group.
        backoff: the pauses between tries.
    """

    def __init__(self, config: ConsumerConfig, runtime: ClientRuntime) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.backoff = runtime.backoff
        self._brokers = runtime.separate_connections()
        self._coordinators = Coordinators(config, self._brokers, runtime.rng)
        self._in_use: Connection | None = None

    @property
    def trouble(self) -> KafkaError | None:
        """Why the coordinator can't be reached now, as far as that is known."""
        return self._coordinators.trouble

    def forget_coordinator(self) -> None:
        """Look for the coordinator before the next request."""
        self._coordinators.forget(CoordinatorType.GROUP, self.group_id)

    async def ask(self, prepare: Prepare[ResponseT], timeout_ms: float | None = None) -> ResponseT:
        """The coordinator's answer to one request, whatever code is in it.

        Raises:
            KafkaError: as :meth:`aioprod.cluster.coordinators.Coordinators.request` does.
        """

        def noting(connection: Connection) -> tuple[Request[ResponseT], int]:
            self._in_use = connection
            return prepare(connection)

        return await self._coordinators.request(
            CoordinatorType.GROUP, self.group_id, noting, timeout_ms
        )

    async def topic_names(self, topic_ids: Collection[uuid.UUID]) -> dict[str, uuid.UUID]:
        """The names of those of the topics that a broker knows by their ids, with the ids.

        Raises:
            KafkaError: no broker answers, or none that can find topics by id (Kafka 3.1).
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
        """Give up what is under way: behind a JoinGroup that nobody waits for any more LeaveGroup
        would wait for minutes.
        """
        if self._in_use is not None:
            self._in_use.abort(
                BrokerConnectionError(
                    f"{self._in_use.address}: joining group {self.group_id!r} was given up"
                )
            )
            self._in_use = None

    async def close(self) -> None:
        """Close all of them."""
        await self._brokers.close()
