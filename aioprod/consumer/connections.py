"""The connections of a consumer, and the metadata of its cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.requests import Requests
from aioprod.errors import KafkaError
from aioprod.net.brokers import Brokers
from aioprod.net.silence import SILENCE_S


class Connections:
    """Two connections to each broker: a broker answers a request behind a Fetch only after the
    Fetch, for which it may wait for records.

    Args:
        config: the consumer's settings.
        rng: source of jitter and of random choices between brokers.
        on_change: called when a connection opens or closes.

    Attributes:
        metadata: the brokers, topics and leaders of the cluster.
        requests: all requests but fetches.
        fetch_requests: fetches.
    """

    def __init__(
        self, config: ConsumerConfig, rng: random.Random, on_change: Callable[[], None]
    ) -> None:
        self._brokers = Brokers(
            config,
            rng,
            on_change=lambda: self.requests.brokers_changed(),
            on_silence=lambda: self.metadata.broker_silent(),
        )
        self._fetch_brokers = Brokers(
            config,
            rng,
            on_change=lambda: self.fetch_requests.brokers_changed(),
            on_silence=self._broker_is_silent,
        )
        self.metadata = Metadata(
            config, self._brokers, rng, create_topics=config.allow_auto_create_topics
        )
        self.requests = Requests(config, self._brokers, on_change)
        self.fetch_requests = Requests(config, self._fetch_brokers, on_change)
        self._fetch_limit_s = config.fetch_max_wait_ms / 1000 + SILENCE_S

    async def open(self, topics: Iterable[str]) -> None:
        """Connect to a bootstrap server and get the metadata of these topics.

        Raises:
            KafkaError: no server answers within ``default_api_timeout_ms``.
        """
        self._brokers.open()
        await self.metadata.first(sorted(topics), "default_api_timeout_ms")

    async def undo_open(self) -> None:
        """Close what :meth:`open` has opened; it may be called again."""
        await self._brokers.close()

    def start(
        self, on_update: Callable[[ClusterSnapshot], None], on_fault: Callable[[KafkaError], None]
    ) -> None:
        """Keep the metadata up to date.

        Args:
            on_update: called with each new snapshot.
            on_fault: called with the error if the task that does this fails.
        """
        self.metadata.on_update = on_update
        self.metadata.on_fault = on_fault
        self.metadata.start()
        self._fetch_brokers.open()

    def update_nodes(self, snapshot: ClusterSnapshot) -> None:
        """Tell the connections for fetches which brokers there are."""
        self._fetch_brokers.update_nodes(snapshot.nodes)

    async def close(self) -> None:
        """Fail all requests and close all connections."""
        self.requests.close()
        self.fetch_requests.close()
        await self.metadata.close()
        await asyncio.gather(self._brokers.close(), self._fetch_brokers.close())

    def _broker_is_silent(self) -> None:
        """Ask for metadata if a Fetch takes longer than the broker was told to wait for records."""
        for node_id in self.metadata.snapshot.nodes:
            connection = self._fetch_brokers.live(node_id)
            if connection is not None and connection.waited_s >= self._fetch_limit_s:
                self.metadata.request_update()
