"""The requests of a share session, and what their responses have (KIP-932)."""

import asyncio
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from aioprod.cluster.runtime import ClientRuntime
from aioprod.config.settings.share_consumer import ACQUIRE_MODES
from aioprod.config.share_consumer import ShareConsumerConfig
from aioprod.consumer.records import open_batch
from aioprod.consumer.requests import Requests
from aioprod.consumer.share.acknowledgements import (
    PartitionAcknowledgements,
    PartitionKey,
    SharePartition,
)
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.consumer.share.session import CLOSING_EPOCH, SessionChange
from aioprod.error_codes import ErrorCode
from aioprod.errors import CorruptRecordError, KafkaError, ProtocolError
from aioprod.net.backoff import Backoff
from aioprod.net.brokers import BrokerAddress
from aioprod.net.refusals import principal_of
from aioprod.net.silence import SILENCE_S
from aioprod.protocol.batch_cursor import BatchCursor
from aioprod.protocol.messages import share_acknowledge, share_fetch
from aioprod.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from aioprod.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.primitives import BytesLike
from aioprod.types import ConsumerRecord, TopicPartition

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


class ShareRequests(Requests):
    """Sends the requests of one member, on connections that carry nothing else: a broker answers a
    ShareFetch when it has records, and releases the locks of a member when its connection closes.

    Args:
        config: the settings.
        runtime: opens the connections.
        member_id: the member.
        reporter: called when a connection has opened or closed.
        has_locks: returns True if a broker has locked records for the member.
        on_closed: called with the node id when the connection to a broker has closed.

    Attributes:
        group_id: the group.
        principal: the principal of the client, for errors.
        backoff: the pauses after failures.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        member_id: str,
        reporter: ShareReporter,
        has_locks: Callable[[int], bool],
        on_closed: Callable[[int], None],
    ) -> None:
        self._config = config
        self.group_id: str | None = config.group_id
        self.principal: str = principal_of(config)
        self.backoff: Backoff = runtime.backoff
        self._member_id = member_id
        self._metadata = runtime.metadata
        self._reporter = reporter
        self._on_closed = on_closed
        brokers = runtime.separate_connections(
            on_change=self.brokers_changed,
            on_connection=self._connection_changed,
            on_silence=self._silent,
            is_needed=has_locks,
        )
        super().__init__(config, brokers)

    def supports_renewal(self, node_id: int) -> bool:
        """Return True if the broker can renew locks, or is not connected."""
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
        return self.send(node_id, request)

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
        return self.send(node_id, request)

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
        for partition in topic.partitions:
            key = topic.topic_id, partition.partition_index
            results.acknowledgements[key] = ErrorCode.of(partition.error_code)
            _note_leader(results, key, partition.current_leader, nodes)
    return results


def _nodes(
    endpoints: Iterable[share_fetch.NodeEndpoint | share_acknowledge.NodeEndpoint],
) -> dict[int, BrokerAddress]:
    return {node.node_id: BrokerAddress(node.node_id, node.host, node.port) for node in endpoints}


def _note_leader(
    results: Results,
    key: PartitionKey,
    leader: share_fetch.LeaderIdAndEpoch | share_acknowledge.LeaderIdAndEpoch,
    nodes: Mapping[int, BrokerAddress],
) -> None:
    node = nodes.get(leader.leader_id)
    if node is not None:
        results.leaders.append(Leader(key, leader.leader_epoch, node))


def _by_topic(partitions: Iterable[SharePartition]) -> dict[uuid.UUID, list[SharePartition]]:
    topics: dict[uuid.UUID, list[SharePartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic_id, []).append(partition)
    return topics


# -- acquired records ------------------------------------------------------------------------------


class AcquiredRange(NamedTuple):
    """Acquired offsets, both ends included."""

    first: int
    last: int
    delivery_count: int


class Acquired(NamedTuple):
    """The records of a partition that a member has acquired.

    Attributes:
        records: the records, in order.
        delivery_counts: how often each of them was delivered to the group.
        gaps: first and last offsets of runs without a record.
        unread: the same for offsets after the data that can be read: they may have records.
        error: why the rest of the data can't be read, if so.
    """

    records: list[ConsumerRecord]
    delivery_counts: list[int]
    gaps: list[tuple[int, int]]
    unread: list[tuple[int, int]]
    error: CorruptRecordError | None


def acquired_ranges(acquired: Iterable[AcquiredRecords]) -> list[AcquiredRange]:
    """Return the acquired ranges of a response.

    Raises:
        ProtocolError: if they are not in ascending order.
    """
    ranges: list[AcquiredRange] = []
    for each in acquired:
        if each.last_offset < each.first_offset or (
            ranges and each.first_offset <= ranges[-1].last
        ):
            raise ProtocolError(
                f"acquired offsets {each.first_offset} to {each.last_offset} are not ascending"
            )
        ranges.append(AcquiredRange(each.first_offset, each.last_offset, each.delivery_count))
    return ranges


def read_acquired(
    tp: TopicPartition,
    data: BytesLike | None,
    ranges: Sequence[AcquiredRange],
    *,
    check_crcs: bool,
) -> Acquired:
    """Read the acquired records of a partition.

    A batch may have records of other members. The work is linear in the data: ranges are not
    counted out.

    Args:
        tp: the partition.
        data: the batches.
        ranges: the acquired offsets, in ascending order.
        check_crcs: True to verify checksums.
    """
    records: list[ConsumerRecord] = []
    counts: list[int] = []
    error: CorruptRecordError | None = None
    starts = [each.first for each in ranges]
    read_to = -1  # the last offset that was read
    try:
        batches = in_current_format(data or b"", check_crcs=check_crcs)
        for header, place in BatchCursor(batches, 0, check_crcs=check_crcs):
            if not header.is_control and header.record_count:
                batch = open_batch(tp, batches, place, header, 0)
                taken = batch.take(batch.left)
                found = bisect_right(starts, header.base_offset) - 1
                if found >= 0 and header.last_offset <= ranges[found].last:
                    # All are acquired, as most often. One by one they took a tenth of reading.
                    records += taken
                    counts += [ranges[found].delivery_count] * len(taken)
                else:
                    _pick(taken, starts, ranges, records, counts)
            read_to = header.last_offset
    except ProtocolError as reason:
        error = CorruptRecordError(f"{tp.topic}-{tp.partition} after offset {read_to}: {reason}")
    if len(records) == sum(each.last - each.first + 1 for each in ranges):
        return Acquired(records, counts, [], [], error)
    missing = _without(ranges, [record.offset for record in records])
    return Acquired(
        records, counts, _between(missing, 0, read_to), _between(missing, read_to + 1, None), error
    )


def _pick(
    found: Iterable[ConsumerRecord],
    starts: Sequence[int],
    ranges: Sequence[AcquiredRange],
    records: list[ConsumerRecord],
    counts: list[int],
) -> None:
    """Add those records of a batch that are acquired, with their delivery counts."""
    for record in found:
        place = bisect_right(starts, record.offset) - 1
        if place >= 0 and record.offset <= ranges[place].last:
            records.append(record)
            counts.append(ranges[place].delivery_count)


def _without(ranges: Iterable[AcquiredRange], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of acquired offsets that are not among ``offsets``, which ascend."""
    runs: list[tuple[int, int]] = []
    index = 0
    for first, last, _ in ranges:
        following = first
        while index < len(offsets) and offsets[index] <= last:
            if offsets[index] > following:
                runs.append((following, offsets[index] - 1))
            following = offsets[index] + 1
            index += 1
        if following <= last:
            runs.append((following, last))
    return runs


def _between(runs: Iterable[tuple[int, int]], low: int, high: int | None) -> list[tuple[int, int]]:
    """Return the parts of runs from ``low`` to ``high``, or to their end."""
    parts = [(max(first, low), last if high is None else min(last, high)) for first, last in runs]
    return [(first, last) for first, last in parts if first <= last]
