"""The connections of a consumer, and the metadata of its cluster."""

from __future__ import annotations

from collections.abc import Callable

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.requests import Requests
from aioprod.net.backoff import Backoff
from aioprod.net.silence import SILENCE_S


class Connections:
    """Two connections to each broker: a broker answers a request behind a Fetch only after the
    Fetch, for which it may wait for records.

    Args:
        config: the consumer's settings.
        runtime: has the connections for all requests except fetches, and calls ``brokers_changed``
            of ``requests``.
        reporter: reports the connections for fetches.
        on_change: called when a connection opens or closes.

    Attributes:
        metadata: the brokers, topics and leaders of the cluster.
        backoff: the pauses between retries.
        requests: sends all requests except fetches.
        fetch_requests: sends fetches.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        reporter: ConsumerReporter,
        on_change: Callable[[], None],
    ) -> None:
        self._fetch_brokers = runtime.separate_connections(
            on_change=lambda: self.fetch_requests.brokers_changed(),
            on_connection=reporter.connection_changed,
            on_silence=self._broker_is_silent,
        )
        self.metadata: Metadata = runtime.metadata
        self.backoff: Backoff = runtime.backoff
        self.requests: Requests = Requests(config, runtime.brokers, on_change)
        self.fetch_requests: Requests = Requests(config, self._fetch_brokers, on_change)
        self._fetch_limit_s = config.fetch_max_wait_ms / 1000 + SILENCE_S

    def close(self) -> None:
        """Fail all requests."""
        self.requests.close()
        self.fetch_requests.close()

    def _broker_is_silent(self) -> None:
        """Request metadata if a Fetch takes much longer than ``fetch_max_wait_ms``: another broker
        may lead by now.
        """
        for node_id in self.metadata.snapshot.nodes:
            connection = self._fetch_brokers.live(node_id)
            if connection is not None and connection.waited_s >= self._fetch_limit_s:
                self.metadata.request_update()
