"""Looks up offsets of partitions, and reads one partition in order. Retries when a leader moves or
a connection breaks.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from aioprod.cluster.client import ClusterClient
from aioprod.cluster.retry import retry
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.consumer.fetch_sessions import newest_version
from aioprod.consumer.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    by_leader,
    found_offsets,
    left_out,
    list_offsets_request,
)
from aioprod.consumer.readable_batches import AbortedBatches
from aioprod.consumer.reader_retries import (
    LIMIT_NAME,
    UNKNOWN_TOPIC_LIMIT_S,
    Patience,
    backoff_of,
    retry_lookup,
)
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerError,
    ConfigError,
    CorruptRecordError,
    KafkaError,
    RequestTimedOutError,
    TopicRecreatedError,
)
from aioprod.logs import Logger, get_logger
from aioprod.net.bounds import TimeLimit
from aioprod.net.refusals import explain, principal_of
from aioprod.protocol.batch_cursor import Batch, BatchCursor
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from aioprod.protocol.old_formats import in_current_format
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.protocol.record_reader import Record, read_batch_records
from aioprod.types import TopicPartition

T = TypeVar("T")

log: Logger = get_logger(__name__)

LATEST = LATEST_TIMESTAMP
EARLIEST = EARLIEST_TIMESTAMP


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a read, with the names and meaning that they have in Kafka's consumer.

    Attributes:
        fetch_max_bytes: most bytes in one response (``fetch.max.bytes``); a larger first batch is
            returned nevertheless.
        max_partition_fetch_bytes: the same per partition (``max.partition.fetch.bytes``).
        fetch_max_wait_ms: how long a broker may wait for ``fetch_min_bytes``
            (``fetch.max.wait.ms``).
        fetch_min_bytes: a broker waits for this many bytes (``fetch.min.bytes``).
        isolation_level: ``read_uncommitted`` or ``read_committed`` (``isolation.level``, KIP-98).
        check_crcs: whether checksums are checked (``check.crcs``).
        retry_limit_ms: longest time without progress before the read fails
            (``default.api.timeout.ms``).
        client_rack: the reader's rack: a broker may name a replica in it to read from, until that
            fails (``client.rack``, KIP-392).
    """

    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    retry_limit_ms: int = 60_000
    client_rack: str = ""

    def __post_init__(self) -> None:
        if self.isolation_level not in ISOLATION_LEVELS:
            raise ConfigError(
                f"isolation_level={self.isolation_level!r}: must be read_uncommitted or "
                "read_committed"
            )
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "retry_limit_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be at least 1")
        for name in ("fetch_max_wait_ms", "fetch_min_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be at least 0")


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The batches of one response, without control and aborted batches.

    Attributes:
        data: the bytes of the response.
        batches: header and place in ``data`` of each batch, checked.
        start, end: the requested offsets, ``end`` excluded; the first and last batches may hold
            others.
    """

    data: bytes
    batches: tuple[Batch, ...]
    start: int
    end: int

    def records(self) -> list[Record]:
        """Return the requested records.

        Raises:
            CorruptRecordError: if a batch can't be decompressed, or its records can't be read.
        """
        found: list[Record] = []
        for header, place in self.batches:
            records = read_batch_records(self.data, place, header)
            if header.base_offset < self.start or header.last_offset >= self.end:
                records = [each for each in records if self.start <= each.offset < self.end]
            found += records
        return found


async def partitions_of(
    client: ClusterClient, topics: Iterable[str], *, limit_s: float = UNKNOWN_TOPIC_LIMIT_S
) -> list[TopicPartition]:
    """Return all partitions of these topics, sorted; within ``limit_s``.

    Raises:
        RequestTimedOutError: if the limit has passed.
        BrokerError: if a topic does not exist (after a few tries) or is not authorized.
    """
    names = sorted(set(topics))

    async def attempt() -> list[TopicPartition]:
        snapshot = await client.refresh_topics(names)
        for name in names:
            if error := snapshot.topic_error(name):
                raise error
        return [
            TopicPartition(name, info.partition)
            for name in names
            for info in snapshot.topics[name].partitions
        ]

    return await retry_lookup(client, attempt, limit_s, f"partitions of {', '.join(names)}")


async def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: str = "read_uncommitted",
    retry_limit_ms: int = 60_000,
) -> dict[TopicPartition, int]:
    """Look up one offset per partition.

    Args:
        client: a started client.
        timestamps: per partition -1 for the end of the log, -2 for its beginning, or milliseconds
            since 1970 for the first record at or after that time (-1 in the result if there is
            none).
        isolation_level: with ``read_committed`` the end is the last stable offset.
        retry_limit_ms: limit on all tries together (``default.api.timeout.ms``).

    Raises:
        BrokerError: if a topic or partition does not exist or is not authorized.
        BrokerConnectionError, RequestTimedOutError: if no leader answered within the limit.
    """
    found: dict[TopicPartition, int] = {}

    async def attempt() -> None:
        missing = {tp: at for tp, at in timestamps.items() if tp not in found}
        leaders, isolation = await _leaders(client, missing), ISOLATION_LEVELS[isolation_level]
        failure = await _list_offsets_once(client, leaders, missing, isolation, found)
        if failure is not None:
            raise failure

    if timestamps:
        await retry_lookup(client, attempt, retry_limit_ms / 1000, "looking up offsets")
    return found


class PartitionReader:
    """Reads one partition from an offset up to another.

    Args:
        client: a started client.
        partition: topic and partition number.
        start: first offset to read.
        end: stop before this offset; None never stops.
        settings: how to fetch.
        topic_id: the id of the topic that ``start`` and ``end`` belong to (KIP-516); None for the
            topic that has this name when the first fetch is sent.

    Attributes:
        topic_id: the same; zero if brokers have no topic ids.

    Iterate over it with ``async for``; each item is the `FetchedRecords` of one response. Leader
    moves, lost connections and timeouts are retried with backoff, up to ``retry_limit_ms`` for
    one try, and as much for all tries since the first that failed.

    Raises (while iterating):
        BrokerError: if ``start`` is not in the leader's log (OFFSET_OUT_OF_RANGE), or for another
            code that a retry does not cure.
        BrokerConnectionError, RequestTimedOutError: if there is no progress within the limit.
        TopicRecreatedError: if the topic was deleted and created again, after a few tries, since a
            broker may be late: offsets of the deleted topic say nothing about the new one.
        CorruptRecordError: if the broker's bytes are not record batches.
    """

    def __init__(
        self,
        client: ClusterClient,
        partition: TopicPartition,
        start: int,
        end: int | None = None,
        settings: FetchSettings | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.topic_id: uuid.UUID = topic_id or ZERO_UUID
        self.partition = partition
        self.position: int = start
        self.end = end
        self._start = start
        self._client = client
        self._settings = settings or FetchSettings()
        self._leader: PartitionInfo | None = None
        self._rack = self._settings.client_rack
        self._replica: int | None = None  # in the rack, as the leader says
        self._backoff = backoff_of(client)
        self._patience = Patience(self._settings.retry_limit_ms / 1000)

    async def __aiter__(self) -> AsyncIterator[FetchedRecords]:
        while self.end is None or self.position < self.end:
            data = await retry(
                self._attempt, self._backoff.seconds, is_retriable=self._patience.is_retriable
            )
            fetched = self._take(data)
            if fetched is not None:
                self._patience.reset()
                if fetched.batches:
                    yield fetched
            elif self.end is not None:
                self._check_patience(data)

    async def _attempt(self) -> PartitionData:
        try:
            async with TimeLimit(
                self._settings.retry_limit_ms,
                self._doing(),
                LIMIT_NAME,
                error_type=RequestTimedOutError,
            ):
                return await self._fetch()
        except KafkaError:
            self._leader = None
            raise

    async def _fetch(self) -> PartitionData:
        """Return this partition's data of one response; raise its error code, if any."""
        if self._leader is None:
            leaders = await _leaders(self._client, (self.partition,))
            self._check_topic()
            self._leader = leaders[self.partition]
        if self._replica is not None:
            try:
                return await self._fetch_from(self._replica, self._leader)
            except KafkaError as error:
                # It may lag, or be gone. The leader is asked as if there was no other replica.
                log.info("%s: %s; reading from the leader", self._doing(), error)
                self._replica, self._rack = None, ""
        data = await self._fetch_from(self._leader.leader, self._leader)
        if self._rack and data.preferred_read_replica in self._client.snapshot.nodes:
            self._replica = data.preferred_read_replica
        return data

    async def _fetch_from(self, node: int, leader: PartitionInfo) -> PartitionData:
        request = self._request(leader)
        topic_ids = [topic.topic_id for topic in request.topics]
        reply = await self._client.request(request, node, newest=newest_version(topic_ids))
        if reply.error_code:
            raise BrokerError(ErrorCode.of(reply.error_code), self._doing())
        data: PartitionData = reply.responses[0].partitions[0]
        code = ErrorCode.of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and node == leader.leader:
            raise await self._out_of_range(code)
        if code:
            principal = principal_of(self._client.config)
            raise explain(BrokerError(code, self._doing()), "Fetch", principal)
        return data

    def _check_topic(self) -> None:
        """Raise TopicRecreatedError if another topic has the name now."""
        snapshot, name = self._client.snapshot, self.partition.topic
        if snapshot.has_other_topic(name, self.topic_id):
            present = snapshot.topic_id(name)
            raise TopicRecreatedError(
                f"{self._doing()}: topic {name!r} was deleted and created again (topic id "
                f"{present}, before {self.topic_id})",
                self.partition,
                self.position,
                self.topic_id,
                present,
            )
        if not self.topic_id.int:
            self.topic_id = snapshot.topic_id(name)

    def _doing(self) -> str:
        return f"fetch from {_name(self.partition)} at offset {self.position}"

    def _request(self, leader: PartitionInfo) -> FetchRequest:
        settings = self._settings
        partition = FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self.position,
            partition_max_bytes=settings.max_partition_fetch_bytes,
        )
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=ISOLATION_LEVELS[settings.isolation_level],
            rack_id=self._rack,
            topics=[
                FetchTopic(
                    topic=self.partition.topic, topic_id=self.topic_id, partitions=[partition]
                )
            ],
        )

    def _take(self, data: PartitionData) -> FetchedRecords | None:
        """Move the position past the batches of a response; return None if none is new."""
        if not data.records:
            return None
        start, check_crcs = self.position, self._settings.check_crcs
        try:
            received = bytes(in_current_format(data.records, check_crcs=check_crcs))
        except CorruptRecordError as error:
            name = _name(self.partition)
            raise CorruptRecordError(f"{name} at offset {start}: {error}") from error
        aborted = (
            AbortedBatches(data.aborted_transactions or ())
            if self._settings.isolation_level == "read_committed"
            else None
        )
        batches: list[Batch] = []
        try:
            for header, place in BatchCursor(received, start, check_crcs=check_crcs):
                if self.end is not None and header.base_offset >= self.end:
                    # Compaction may have removed the last records before ``end``.
                    self.position = self.end
                    break
                skip = aborted is not None and aborted.contains(received, place, header)
                self.position = header.last_offset + 1
                if not (skip or header.is_control or header.record_count == 0):
                    batches.append((header, place))
        except CorruptRecordError as error:
            if self.position == start:
                name = _name(self.partition)
                raise CorruptRecordError(f"{name} at offset {start}: {error}") from error
            # The batches before it are returned; the next fetch begins with it, and fails.
        if self.position == start:
            # The first batch is incomplete, although brokers send it complete whatever its size.
            raise CorruptRecordError(
                f"{_name(self.partition)} at offset {start}: the broker sent "
                f"{len(received)} bytes without a complete batch"
            )
        end = self.position if self.end is None else min(self.position, self.end)
        return FetchedRecords(received, tuple(batches), start, end)

    def _check_patience(self, data: PartitionData) -> None:
        """Raise if empty responses keep the reader from its ``end`` for longer than the limit."""
        if self._patience.exhausted():
            raise RequestTimedOutError(
                f"{_name(self.partition)}: no records from offset {self.position} (to read "
                f"up to {self.end}) for {self._patience.limit_s:.0f} s; "
                f"the log ends at {data.high_watermark}, its finished transactions at "
                f"{data.last_stable_offset}"
            )

    async def _out_of_range(self, code: ErrorCode) -> BrokerError:
        """Return the error with the range of valid offsets in its text."""
        context = self._doing()
        try:
            low = await list_offsets(self._client, {self.partition: EARLIEST}, retry_limit_ms=5_000)
            high = await list_offsets(self._client, {self.partition: LATEST}, retry_limit_ms=5_000)
        except KafkaError:
            return BrokerError(code, context)
        return BrokerError(
            code,
            f"{context}: the log has offsets {low[self.partition]} to {high[self.partition]}",
        )


async def _leaders(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionInfo]:
    """Refresh metadata, and return the leader of each partition."""
    wanted = list(partitions)
    snapshot = await client.refresh_topics(sorted({tp.topic for tp in wanted}))
    leaders: dict[TopicPartition, PartitionInfo] = {}
    for tp in wanted:
        info = snapshot.find_leader(tp)
        if not isinstance(info, PartitionInfo):
            raise info or BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _name(tp))
        leaders[tp] = info
    return leaders


async def _list_offsets_once(
    client: ClusterClient,
    leaders: Mapping[TopicPartition, PartitionInfo],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, int],
) -> KafkaError | None:
    """Ask each leader once, add the offsets to ``found``, and return the last failure."""
    limit_ms = client.config.request_timeout_ms
    requests = [
        client.request(
            list_offsets_request(partitions, timestamps, isolation_level, limit_ms), node
        )
        for node, partitions in by_leader(leaders).items()
    ]
    failure: KafkaError | None = None
    for reply in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(reply, KafkaError):
            failure = reply
            continue
        if isinstance(reply, BaseException):
            raise reply
        for tp, answer in found_offsets(reply, timestamps, principal_of(client.config)).items():
            if isinstance(answer, KafkaError):
                failure = answer
            else:
                found[tp] = answer.offset
    return failure or left_out(timestamps, found)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
