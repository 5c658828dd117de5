"""A client that sends any request to any broker of a cluster."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Self, TypeVar, cast

from aioprod.cluster.coordinators import Coordinators
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.retry import RetryLimit, retry
from aioprod.cluster.runtime import ClientKind, ClientLifecycle, ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.checks import check_names
from aioprod.config.client import ClientConfig
from aioprod.config.redaction import hide_arguments
from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from aioprod.protocol.message import Message, Request
from aioprod.public_module import Uncopyable

ResponseT = TypeVar("ResponseT", bound=Message)


class _Steps(ClientLifecycle):
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def connect(self) -> None:
        self._metadata.refresh_on_silence()
        await self._metadata.first(
            (), "request_timeout_ms", "socket_connection_setup_timeout_max_ms"
        )


class ClusterClient(Uncopyable):
    """Sends requests to a cluster's brokers.

    Args:
        bootstrap_servers: ``"host:port,..."`` or a list of these.
        create_topics: whether a metadata request for an unknown topic may create it.
        settings: the fields of :class:`aioprod.config.client.ClientConfig`.

    Attributes:
        coordinators: sends requests to the coordinators of groups and transactional ids.

    Raises:
        ConfigError: if a setting is unknown or out of range.
    """

    @hide_arguments
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        create_topics: bool = False,
        **settings: Any,
    ) -> None:
        check_names(ClientConfig, settings)
        self.config: ClientConfig = ClientConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings
        )
        self._runtime = ClientRuntime(
            self.config,
            random.Random(),
            ClientKind("cluster client", KafkaError),
            create_topics=create_topics,
        )
        self._steps = _Steps(self._runtime.metadata)
        self.coordinators: Coordinators = self._runtime.coordinators

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster, as described by the latest metadata."""
        return self._runtime.metadata.snapshot

    async def start(self) -> None:
        """Connect, and request the metadata of the cluster.

        The time limit is the larger of ``request_timeout_ms`` and
        ``socket_connection_setup_timeout_max_ms``.

        Raises:
            BrokerConnectionError: if no bootstrap server responds; the message contains the reason
                for each server.
            KafkaTimeoutError: if the time limit expires.
        """
        await self._runtime.start(self._steps)

    async def close(self) -> None:
        """Close all connections, within 2 seconds."""
        await self._runtime.close(self._steps)

    def __del__(self) -> None:
        if "_steps" in self.__dict__:  # the settings were valid
            self._runtime.dropped(self, self._steps)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def request(
        self, message: Request[ResponseT], node_id: int | None = None, *, newest: int | None = None
    ) -> ResponseT:
        """Send a request to a broker and return its response.

        The time for connecting comes on top of the timeout of
        :meth:`aioprod.net.connection.Connection.request`.

        Args:
            message: the request.
            node_id: the broker; any if None.
            newest: highest version of the request to use; None for the highest that client and
                broker support.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: if there is no usable
                response.
            UnsupportedVersionError: if client and broker have no version in common.
        """
        self._runtime.loop_binding.check()
        brokers = self._runtime.brokers
        # Sent to one broker only, as the request may change something.
        connection = await (brokers.any() if node_id is None else brokers.connection(node_id))
        version = connection.pick_version(type(message), newest)
        return await connection.request(message, version=version)

    async def refresh_topics(self, topics: Iterable[str]) -> ClusterSnapshot:
        """Request the metadata of topics, within ``request_timeout_ms``.

        The snapshot contains an unknown topic with its error code.

        Raises:
            BrokerConnectionError: if all attempts within the limit fail.
            RequestTimedOutError: if the limit expires during an attempt.
            KafkaError: if an attempt fails for another reason.
        """
        self._runtime.loop_binding.check()
        metadata, config = self._runtime.metadata, self.config
        names = list(topics)
        for name in names:
            metadata.touch(name)
        return await retry(
            lambda: metadata.refresh(names),
            lambda _: config.retry_backoff_ms / 1000,
            is_retriable=lambda error: isinstance(error, BrokerConnectionError),
            limit=RetryLimit(
                config.request_timeout_ms,
                "requesting metadata",
                "request_timeout_ms",
                RequestTimedOutError,
            ),
        )
