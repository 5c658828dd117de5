"""Everything the embedded broker holds: topics with their partitions, producer ids, transactions, offsets of groups. In memory only, bounded."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.protocol.record_batch import BatchHeader, read_header
from aioprod.protocol.record_reader import Record, read_records
from aioprod.testing.broker.cluster import Cluster, Leadership
from aioprod.testing.broker.log import PartitionLog, stamp_log_append_time
from aioprod.testing.broker.markers import TransactionIndex, build_marker
from aioprod.testing.broker.offsets import OffsetStore
from aioprod.testing.broker.producer_state import ProducerStates, SequenceError
from aioprod.testing.broker.store_error import StoreError as StoreError  # handlers take it from here
from aioprod.testing.broker.transactions import Identity, TransactionCoordinator
from aioprod.types import TopicPartition

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIRST_PRODUCER_ID = 1000  # as a real broker's first block of ids: not to be mistaken for an index
MAX_PARTITIONS = 10_000


@dataclass(slots=True, frozen=True)
class TopicConfig:
    """The topic settings that change what the broker does; all others are kept and shown, but do nothing."""

    max_message_bytes: int
    log_append_time: bool = False
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1

    @classmethod
    def parse(cls, configs: Mapping[str, str | None], max_message_bytes: int) -> TopicConfig:
        """Read Kafka's dotted names; raise StoreError (INVALID_CONFIG) for a value that is out of range."""
        timestamp_type = configs.get("message.timestamp.type") or "CreateTime"
        if timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise StoreError(ErrorCode.INVALID_CONFIG, f"message.timestamp.type={timestamp_type}: must be CreateTime or LogAppendTime")
        return cls(
            max_message_bytes=_whole_number(configs, "max.message.bytes", max_message_bytes, at_least=0),
            log_append_time=timestamp_type == "LogAppendTime",
            timestamp_after_max_ms=_whole_number(configs, "message.timestamp.after.max.ms", 3_600_000, at_least=0),
            min_insync_replicas=_whole_number(configs, "min.insync.replicas", 1, at_least=1),
        )


def _whole_number(configs: Mapping[str, str | None], name: str, default: int, *, at_least: int) -> int:
    text = configs.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise StoreError(ErrorCode.INVALID_CONFIG, f"{name}={text}: must be a whole number of at least {at_least}")
    return value


@dataclass(slots=True)
class Partition:
    """One partition: its log, what it knows of idempotent producers and of transactions, and who leads it."""

    log: PartitionLog = field(default_factory=PartitionLog)
    producers: ProducerStates = field(default_factory=ProducerStates)
    transactions: TransactionIndex = field(default_factory=TransactionIndex)
    leadership: Leadership = field(default_factory=Leadership)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers have to stop: at the first record of an open transaction."""
        first_open = self.transactions.first_open_offset
        return self.log.end_offset if first_open is None else first_open

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has begun a transaction here under this epoch."""
        return self.transactions.is_open(producer_id) and self.producers.epoch(producer_id) == epoch

    def records(self, *, committed_only: bool = False) -> list[Record]:
        """Decode everything but markers; with ``committed_only`` without what belongs to an open or an aborted transaction."""
        if not committed_only:
            return self.log.records()
        return [
            record
            for header, batch in self.log.batches()
            if not header.is_transactional or self.transactions.is_committed(header.producer_id, header.base_offset)
            for record in read_records(batch)
        ]

    def leader_changed(self) -> None:
        """Begin a new leader epoch; whoever waits for records here is to look again."""
        self.log.leader_epoch += 1
        self.log.wake()


@dataclass(slots=True, frozen=True)
class Topic:
    """A topic as it was created."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str | None]
    config: TopicConfig

    def partition(self, index: int) -> Partition | None:
        """Return the partition, or None where there is none of that number."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(slots=True, frozen=True)
class Appended:
    """Where a batch is, and the time it got where the topic keeps log append time (else -1)."""

    base_offset: int
    log_append_time_ms: int


class Store:
    """The state of one embedded broker.

    Args:
        num_partitions: of topics that are created without a number.
        auto_create_topics: whether asking for a topic's metadata may create it (broker setting auto.create.topics.enable).
        max_message_bytes: largest record batch (broker setting message.max.bytes).
        max_memory_bytes: the bytes of record batches held in all; a batch beyond it is answered with POLICY_VIOLATION.
        wall_clock: seconds since 1970.
        random_source: gives topic ids.
        cluster: the nodes that share all this; one by default.
        transaction_version: the finalized feature transaction.version.
    """

    def __init__(
        self,
        *,
        num_partitions: int,
        auto_create_topics: bool,
        max_message_bytes: int,
        max_memory_bytes: int,
        wall_clock: Callable[[], float] = time.time,
        random_source: random.Random | None = None,
        cluster: Cluster | None = None,
        transaction_version: int = 2,
    ) -> None:
        self.cluster = cluster or Cluster()
        self.num_partitions = num_partitions
        self.auto_create_topics = auto_create_topics
        self.topics: dict[str, Topic] = {}
        self.size = 0
        self._max_message_bytes = max_message_bytes
        self._max_memory_bytes = max_memory_bytes
        self._wall_clock = wall_clock
        self._random = random_source or random.Random()
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._next_producer_id = _FIRST_PRODUCER_ID
        self.offsets = OffsetStore()
        self.transactions = TransactionCoordinator(
            version=transaction_version,
            new_producer_id=self.new_producer_id,
            write_marker=self._write_marker,
            end_offsets=self.offsets.end,
        )

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self._wall_clock() * 1000)

    def check_new_topic(self, name: str, num_partitions: int, configs: Mapping[str, str | None]) -> TopicConfig:
        """Raise StoreError unless such a topic could be created now."""
        if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
            raise StoreError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r}: 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .."
            )
        if name in self.topics:
            raise StoreError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if not 0 < num_partitions <= MAX_PARTITIONS:
            raise StoreError(ErrorCode.INVALID_PARTITIONS, f"{num_partitions} partitions: must be 1 to {MAX_PARTITIONS}")
        return TopicConfig.parse(configs, self._max_message_bytes)

    def choose_replicas(self, num_partitions: int, replication_factor: int | None) -> list[tuple[int, ...]]:
        """Choose the nodes of each new partition; raise StoreError where there are too few nodes."""
        factor = self.cluster.replication_factor if replication_factor is None else replication_factor
        count = len(self.cluster.node_ids)
        if not 1 <= factor <= count:
            raise StoreError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: must be 1 to {count}, the number of brokers")
        return self.cluster.spread(num_partitions, factor)

    def check_assignment(self, assignment: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Return a manual assignment; raise StoreError unless each partition has as many nodes as the others, all known and different."""
        known = self.cluster.node_ids
        for replicas in assignment:
            if not replicas or len(replicas) != len(assignment[0]) or len(set(replicas)) != len(replicas) or not set(replicas) <= set(known):
                raise StoreError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"replicas {list(replicas)}: must be different brokers of {list(known)}, as many as for the other partitions",
                )
        return [tuple(replicas) for replicas in assignment]

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic; raise StoreError where the name, a number or a setting is not allowed.

        ``assignment`` gives each partition's nodes, the preferred leader first, instead of both numbers.
        """
        count = self.num_partitions if num_partitions is None else num_partitions
        configs = dict(configs or {})
        config = self.check_new_topic(name, count if assignment is None else len(assignment), configs)
        placed = self.choose_replicas(count, replication_factor) if assignment is None else self.check_assignment(assignment)
        topic_id = uuid.UUID(int=self._random.getrandbits(128), version=4)
        partitions = tuple(Partition(leadership=self.cluster.new_leadership(replicas)) for replicas in placed)
        topic = Topic(name, topic_id, partitions, configs, config)
        self.topics[name] = self._by_id[topic_id] = topic
        return topic

    def delete_topic(self, topic: Topic) -> None:
        """Forget a topic and free its memory; fetches that wait on it look again."""
        del self.topics[topic.name], self._by_id[topic.topic_id]
        self.transactions.forget_partitions(TopicPartition(topic.name, index) for index in range(len(topic.partitions)))
        self.offsets.forget_topic(topic.name)
        for partition in topic.partitions:
            self.size -= partition.log.size
            partition.log.wake()

    def find_topic(self, name: str, topic_id: uuid.UUID | None = None) -> Topic | None:
        """Return the topic with this id (where one is given and not zero) or else with this name."""
        return self._by_id.get(topic_id) if topic_id is not None and topic_id.int else self.topics.get(name)

    def logs(self) -> Iterator[PartitionLog]:
        """All partition logs."""
        return (partition.log for topic in self.topics.values() for partition in topic.partitions)

    def elect_leaders(self) -> None:
        """Have every partition adapt to the nodes that run now."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if self.cluster.follow(partition.leadership):
                    partition.leader_changed()

    def coordinator_node(self, kind: int, key: str) -> int:
        """The node that coordinates a group (kind 0) or a transactional id (kind 1), -1 while none runs."""
        return self.cluster.coordinator_node(kind, key)

    def append(
        self, topic: Topic, partition: Partition, header: BatchHeader, batch: bytes | memoryview, *, begins_at_zero: bool = False
    ) -> Appended:
        """Append a batch that passed its format checks; a batch that is there already gives its old place.

        Raises:
            StoreError: the sequence is wrong, a transaction is open and the batch is outside it, or the memory limit is reached.
        """
        if header.producer_id >= 0:
            known = partition.producers.find_duplicate(header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)
            if known is not None:
                return Appended(known.base_offset, known.timestamp if topic.config.log_append_time else -1)
            try:
                partition.producers.check(header.producer_id, header.producer_epoch, header.base_sequence, begins_at_zero=begins_at_zero)
            except SequenceError as error:
                raise StoreError(error.code, str(error)) from None
            if not header.is_transactional and partition.transactions.is_open(header.producer_id):
                raise StoreError(ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} has a transaction here, and the batch is outside it")
        if self.size + len(batch) > self._max_memory_bytes:
            raise StoreError(
                ErrorCode.POLICY_VIOLATION,
                f"the embedded broker is full: it keeps everything in memory, and max_memory_bytes is {self._max_memory_bytes}",
            )
        log_append_time, timestamp = -1, header.max_timestamp
        if topic.config.log_append_time:
            log_append_time = timestamp = self.now_ms()
            batch = stamp_log_append_time(batch, timestamp)
        base_offset = partition.log.append(header, batch, timestamp)
        self.size += len(batch)
        if header.producer_id >= 0:
            partition.producers.record(header.producer_id, header.producer_epoch, header.base_sequence, header.record_count, base_offset, timestamp)
        if header.is_transactional:
            partition.transactions.begin(header.producer_id, base_offset)
        return Appended(base_offset, log_append_time)

    def new_producer_id(self) -> int:
        """Give out the next producer id."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _write_marker(self, place: TopicPartition, identity: Identity, commit: bool) -> None:
        topic = self.topics.get(place.topic)
        partition = topic.partition(place.partition) if topic is not None else None
        if partition is None:
            return
        now_ms = self.now_ms()
        marker = build_marker(*identity, commit=commit, timestamp_ms=now_ms)
        partition.producers.end_transaction(*identity)
        partition.transactions.end(identity.producer_id, partition.log.end_offset, commit=commit)  # before the append wakes readers
        partition.log.append(read_header(marker), marker, now_ms)
        self.size += len(marker)
