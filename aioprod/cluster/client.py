"""A client of a whole cluster: brokers and metadata put together, for any request."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Self, TypeVar, cast

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.retry import RetryLimit, retry
from aioprod.cluster.runtime import ClientRuntime, Lifecycle
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.checks import check_names
from aioprod.config.client import ClientConfig
from aioprod.config.redaction import hide_arguments
from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from aioprod.protocol.message import Message, Request

ResponseT = TypeVar("ResponseT", bound=Message)


class _Steps(Lifecycle):
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def connect(self) -> None:
        self._metadata.refresh_on_silence()
        await self._metadata.first(
            (), "request_timeout_ms", "socket_connection_setup_timeout_max_ms"
        )


class ClusterClient:
    """Sends requests to a cluster's brokers.

    Args:
        bootstrap_servers: ``"host:port,..."`` or a list of these.
        create_topics: whether asking for an unknown topic's metadata may create it.
        settings: the fields of :class:`aioprod.config.ClientConfig`.

    Attributes:
        coordinators: requests to those who look after groups and transactional ids.

    Raises:
        ConfigError: a setting is unknown or out of range.
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
        self.config = ClientConfig(
            bootstrap_servers=cast("tuple[str, ...]", bootstrap_servers), **settings
        )
        self._runtime = ClientRuntime(
            self.config,
            random.Random(),
            kind="cluster client",
            closed_error=KafkaError,
            create_topics=create_topics,
        )
        self._steps = _Steps(self._runtime.metadata)
        self.coordinators = self._runtime.coordinators

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as last told."""
        return self._runtime.metadata.snapshot

    async def start(self) -> None:
        """Connect and learn the brokers.

        The limit is ``request_timeout_ms``, or ``socket_connection_setup_timeout_max_ms`` where
        that is longer.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            KafkaTimeoutError: the limit has passed.
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

    async def request(self, message: Request[ResponseT], node_id: int | None = None) -> ResponseT:
        """Send a request to a node, or to any, in the newest version both sides know, and return
        its reply.

        Waits as long as connecting takes, and then as
        :meth:`aioprod.net.connection.Connection.request` does.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: no usable answer.
            UnsupportedVersionError: the broker has no version of it that we know.
        """
        self._runtime.home.check()
        brokers = self._runtime.brokers
        # Not by asking several: what changes something must not be done twice.
        connection = await (brokers.any() if node_id is None else brokers.connection(node_id))
        return await connection.request(message)

    async def refresh_topics(self, topics: Iterable[str]) -> ClusterSnapshot:
        """Ask for the metadata of these topics, within ``request_timeout_ms``.

        An unknown topic is in the answer with its error code.

        Raises:
            BrokerConnectionError: all tries within the limit have failed.
            RequestTimedOutError: the limit has passed during one.
            KafkaError: another try does not help.
        """
        self._runtime.home.check()
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
                "asking for metadata",
                "request_timeout_ms",
                RequestTimedOutError,
            ),
        )
