"""Makes the requests of a share session, and reads their responses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.settings.share_consumer import ACQUIRE_MODES
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.requests import Requests
from aioprod.consumer.share.acknowledgements import (
    PartitionAcknowledgements,
    PartitionKey,
    SharePartition,
)
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.session import CLOSING_EPOCH, SessionChange
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.net.brokers import BrokerAddress
from aioprod.net.refusals import principal_of
from aioprod.net.silence import SILENCE_S
from aioprod.protocol.messages import share_acknowledge, share_fetch
from aioprod.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from aioprod.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

#: The first version of ShareFetch and ShareAcknowledge with acquire modes and renewal.
SECOND_VERSION = 2

_Sent = Mapping[SharePartition, PartitionAcknowledgements]


class Leader(NamedTuple):
    """The leader of a partition, as another broker names it."""

    key: PartitionKey
    leader_epoch: int
    node: BrokerAddress


class Results(NamedTuple):
    """The response to a request of a share session.

    Attributes:
        acknowledgements: the error codes of acknowledgements.
        data: the partitions of a ShareFetch.
        leaders: leaders that have moved.
    """

    acknowledgements: dict[PartitionKey, ErrorCode]
    data: dict[PartitionKey, PartitionData]
    leaders: list[Leader]


class ShareRequests:
    """Sends the requests of one member, on connections that carry nothing else: a broker answers a
    ShareFetch when it has records, and releases the locks of a member when its connection closes.

    Args:
        config: the settings.
        runtime: opens the connections.
        member_id: the member.
        reporter: hears of the connections.
        holds_locks: returns whether a broker holds locks for the member.
        on_closed: called with the node id when the connection to a broker has closed.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        member_id: str,
        reporter: ShareReporter,
        holds_locks: Callable[[int], bool],
        on_closed: Callable[[int], None],
    ) -> None:
        self._config = config
        self.group_id = config.group_id
        self.principal = principal_of(config)
        self._member_id = member_id
        self._metadata = runtime.metadata
        self._reporter = reporter
        self._on_closed = on_closed
        self._brokers = runtime.separate_connections(
            on_change=lambda: self._requests.brokers_changed(),
            on_connection=self._connection_changed,
            on_silence=self._silent,
            is_needed=holds_locks,
        )
        self._requests: Requests = Requests(config, self._brokers)

    def close(self) -> None:
        """Fail all requests."""
        self._requests.close()

    def connected(self, node_id: int) -> bool:
        """Whether a connection to the broker is open."""
        return self._requests.connected(node_id)

    def supports_renewal(self, node_id: int) -> bool:
        """Whether the broker can renew locks; True while it is not connected."""
        connection = self._brokers.live(node_id)
        return (
            connection is None or connection.pick_version(ShareAcknowledgeRequest) >= SECOND_VERSION
        )

    def fetch(
        self, node_id: int, change: SessionChange, acknowledgements: _Sent
    ) -> asyncio.Future[ShareFetchResponse]:
        """Fetch, and acknowledge."""
        config = self._config
        most = config.max_poll_records
        request = ShareFetchRequest(
            config.group_id,
            self._member_id,
            change.epoch,
            max_wait_ms=int(config.fetch_max_wait_ms),
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=most,
            batch_size=most,
            share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
        )
        for topic_id, partitions in _by_topic(change.added | acknowledgements.keys()).items():
            request.topics.append(
                FetchTopic(
                    topic_id,
                    [
                        FetchPartition(
                            each.partition,
                            acknowledgements[each].batches(share_fetch.AcknowledgementBatch)
                            if each in acknowledgements
                            else [],
                        )
                        for each in partitions
                    ],
                )
            )
        for topic_id, partitions in _by_topic(change.forgotten).items():
            request.forgotten_topics_data.append(
                ForgottenTopic(topic_id, [each.partition for each in partitions])
            )
        return self._requests.send(node_id, request)

    def acknowledge(
        self, node_id: int, epoch: int, acknowledgements: _Sent, *, renews: bool, closing: bool
    ) -> asyncio.Future[ShareAcknowledgeResponse]:
        """Acknowledge without a fetch; with ``closing`` end the session."""
        request = ShareAcknowledgeRequest(
            self._config.group_id,
            self._member_id,
            CLOSING_EPOCH if closing else epoch,
            is_renew_ack=renews,
        )
        for topic_id, partitions in _by_topic(acknowledgements).items():
            request.topics.append(
                AcknowledgeTopic(
                    topic_id,
                    [
                        AcknowledgePartition(
                            each.partition,
                            acknowledgements[each].batches(share_acknowledge.AcknowledgementBatch),
                        )
                        for each in partitions
                    ],
                )
            )
        return self._requests.send(node_id, request)

    def _connection_changed(
        self, node_id: int, address: str, opened: bool, error: KafkaError | None
    ) -> None:
        self._reporter.connection_changed(node_id, address, opened, error)
        if not opened:
            self._on_closed(node_id)

    def _silent(self) -> None:
        """Request metadata if a response takes much longer than ``fetch_max_wait_ms``: another
        broker may lead by now.
        """
        limit_s = self._config.fetch_max_wait_ms / 1000 + SILENCE_S
        for node_id in self._metadata.snapshot.nodes:
            connection = self._brokers.live(node_id)
            if connection is not None and connection.waited_s >= limit_s:
                self._metadata.request_update()


def fetch_results(reply: ShareFetchResponse) -> Results:
    """Read the response to a ShareFetch."""
    results = Results({}, {}, [])
    nodes = _nodes(reply.node_endpoints)
    for topic in reply.responses:
        for data in topic.partitions:
            key = topic.topic_id, data.partition_index
            results.data[key] = data
            results.acknowledgements[key] = ErrorCode.of(data.acknowledge_error_code)
            _note_leader(results, key, data.current_leader, nodes)
    return results


def acknowledge_results(reply: ShareAcknowledgeResponse) -> Results:
    """Read the response to a ShareAcknowledge."""
    results = Results({}, {}, [])
    nodes = _nodes(reply.node_endpoints)
    for topic in reply.responses:
        for told in topic.partitions:
            key = topic.topic_id, told.partition_index
            results.acknowledgements[key] = ErrorCode.of(told.error_code)
            _note_leader(results, key, told.current_leader, nodes)
    return results


def _nodes(
    told: Iterable[share_fetch.NodeEndpoint | share_acknowledge.NodeEndpoint],
) -> dict[int, BrokerAddress]:
    return {node.node_id: BrokerAddress(node.node_id, node.host, node.port) for node in told}


def _note_leader(
    results: Results,
    key: PartitionKey,
    told: share_fetch.LeaderIdAndEpoch | share_acknowledge.LeaderIdAndEpoch,
    nodes: Mapping[int, BrokerAddress],
) -> None:
    node = nodes.get(told.leader_id)
    if node is not None:
        results.leaders.append(Leader(key, told.leader_epoch, node))


def _by_topic(partitions: Iterable[SharePartition]) -> dict[uuid.UUID, list[SharePartition]]:
    topics: dict[uuid.UUID, list[SharePartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic_id, []).append(partition)
    return topics
