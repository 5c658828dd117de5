"""A client of a whole cluster: brokers and metadata put together, for any request."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable
from typing import Any, Self, TypeVar, cast

from aioprod.cluster.coordinators import Coordinators
from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.checks import check_names
from aioprod.config.client import ClientConfig
from aioprod.config.redaction import hide_arguments
from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from aioprod.net.bounds import TimeLimit
from aioprod.net.brokers import Brokers
from aioprod.protocol.message import Message, Request

ResponseT = TypeVar("ResponseT", bound=Message)


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
        rng = random.Random()
        self._brokers = Brokers(self.config, rng, on_silence=self._look_around)
        self._metadata = Metadata(self.config, self._brokers, rng, create_topics=create_topics)
        self.coordinators = Coordinators(self.config, self._brokers, rng)
        self._looking: asyncio.Task[None] | None = None

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as last told."""
        return self._metadata.snapshot

    async def start(self) -> None:
        """Connect and learn the brokers.

        The limit is ``request_timeout_ms``, or ``socket_connection_setup_timeout_max_ms`` where
        that is longer.

        Raises:
            BrokerConnectionError: no bootstrap address answers; the message names each and why.
            KafkaTimeoutError: the limit has passed.
        """
        self._brokers.open()
        try:
            limits = "request_timeout_ms", "socket_connection_setup_timeout_max_ms"
            await self._metadata.first((), *limits)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections, within 2 seconds."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking], timeout=1)
        await self._metadata.close()
        await self._brokers.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _look_around(self) -> None:
        """A broker is silent: should it have left the cluster, whoever waits for its answer hears
        of that.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(
                self._ask_for_brokers(), name="aioprod-look-around"
            )

    async def _ask_for_brokers(self) -> None:
        with contextlib.suppress(KafkaError):
            await self._metadata.refresh(())

    async def request(self, message: Request[ResponseT], node_id: int | None = None) -> ResponseT:
        """Send a request to a node, or to any, in the newest version both sides know, and return
        its reply.

        Waits as long as connecting takes, and then as
        :meth:`aioprod.net.connection.Connection.request` does.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: no usable answer.
            UnsupportedVersionError: the broker has no version of it that we know.
        """
        # Not by asking several: what changes something must not be done twice.
        connection = await (
            self._brokers.any() if node_id is None else self._brokers.connection(node_id)
        )
        return await connection.request(message)

    async def refresh_topics(self, topics: Iterable[str]) -> ClusterSnapshot:
        """Ask for the metadata of these topics, within ``request_timeout_ms``.

        An unknown topic is in the answer with its error code.

        Raises:
            BrokerConnectionError: all tries within the limit have failed.
            RequestTimedOutError: the limit has passed during one.
            KafkaError: another try does not help.
        """
        names = list(topics)
        for name in names:
            self._metadata.touch(name)
        limit_ms, pause_s = self.config.request_timeout_ms, self.config.retry_backoff_ms / 1000
        deadline = asyncio.get_running_loop().time() + limit_ms / 1000
        trouble: BrokerConnectionError | None = None
        async with TimeLimit(
            limit_ms,
            "asking for metadata",
            "request_timeout_ms",
            lambda: trouble,
            RequestTimedOutError,
        ):
            while True:
                try:
                    return await self._metadata.refresh(names)
                except BrokerConnectionError as error:
                    trouble = error
                    if asyncio.get_running_loop().time() + pause_s >= deadline:
                        raise
                    await asyncio.sleep(pause_s)
