"""Everything the embedded broker holds: topics with their partitions, and producer ids. In memory only, bounded, synchronous."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.protocol.record_batch import BatchHeader
from aioprod.testing.broker.log import PartitionLog, stamp_log_append_time
from aioprod.testing.broker.producer_state import ProducerStates, SequenceError

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIRST_PRODUCER_ID = 1000  # as a real broker's first block of ids: not to be mistaken for an index
_LAST_EPOCH = 32766
MAX_PARTITIONS = 10_000


class StoreError(BrokerError):
    """A request that the broker refuses, with the code and the text of its answer."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)
        self.text = text


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
    """One partition: its log and what it knows of idempotent producers."""

    log: PartitionLog = field(default_factory=PartitionLog)
    producers: ProducerStates = field(default_factory=ProducerStates)


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


@dataclass(slots=True)
class TransactionalId:
    """The producer id and epoch that belong to a transactional id."""

    producer_id: int
    epoch: int


class Store:
    """The state of one embedded broker.

    Args:
        num_partitions: of topics that are created without a number.
        auto_create_topics: whether asking for a topic's metadata may create it (broker setting auto.create.topics.enable).
        max_message_bytes: largest record batch (broker setting message.max.bytes).
        max_memory_bytes: the bytes of record batches held in all; a batch beyond it is answered with POLICY_VIOLATION.
        wall_clock: seconds since 1970.
        random_source: gives topic ids.
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
    ) -> None:
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
        self._transactional_ids: dict[str, TransactionalId] = {}

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

    def create_topic(self, name: str, num_partitions: int | None = None, configs: Mapping[str, str | None] | None = None) -> Topic:
        """Create a topic; raise StoreError where the name, the number or a setting is not allowed."""
        count = self.num_partitions if num_partitions is None else num_partitions
        configs = dict(configs or {})
        config = self.check_new_topic(name, count, configs)
        topic_id = uuid.UUID(int=self._random.getrandbits(128), version=4)
        topic = Topic(name, topic_id, tuple(Partition() for _ in range(count)), configs, config)
        self.topics[name] = self._by_id[topic_id] = topic
        return topic

    def delete_topic(self, topic: Topic) -> None:
        """Forget a topic and free its memory; fetches that wait on it look again."""
        del self.topics[topic.name], self._by_id[topic.topic_id]
        for partition in topic.partitions:
            self.size -= partition.log.size
            partition.log.wake()

    def find_topic(self, name: str, topic_id: uuid.UUID | None = None) -> Topic | None:
        """Return the topic with this id (where one is given and not zero) or else with this name."""
        return self._by_id.get(topic_id) if topic_id is not None and topic_id.int else self.topics.get(name)

    def logs(self) -> Iterator[PartitionLog]:
        """All partition logs."""
        return (partition.log for topic in self.topics.values() for partition in topic.partitions)

    def append(self, topic: Topic, partition: Partition, header: BatchHeader, batch: bytes | memoryview) -> Appended:
        """Append a batch that passed its format checks; a batch that is there already gives its old place.

        Raises:
            StoreError: the sequence is wrong, or the memory limit is reached.
        """
        if header.producer_id >= 0:
            known = partition.producers.find_duplicate(header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)
            if known is not None:
                return Appended(known.base_offset, known.timestamp if topic.config.log_append_time else -1)
            try:
                partition.producers.check(header.producer_id, header.producer_epoch, header.base_sequence)
            except SequenceError as error:
                raise StoreError(error.code, str(error)) from None
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
        return Appended(base_offset, log_append_time)

    def new_producer_id(self) -> int:
        """Give out the next producer id."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def init_transactional_id(self, name: str, producer_id: int, epoch: int) -> TransactionalId:
        """Return the identity of a transactional id with a fresh epoch, so that older users of it are fenced.

        ``producer_id`` and ``epoch`` are what the client has (KIP-360), or -1; StoreError (PRODUCER_FENCED) where they are no longer current.
        """
        current = self._transactional_ids.get(name)
        if current is None:
            if producer_id >= 0:
                raise StoreError(ErrorCode.PRODUCER_FENCED, f"transactional id {name!r} is not known with producer id {producer_id}")
            current = TransactionalId(self.new_producer_id(), 0)
        elif producer_id >= 0 and (producer_id, epoch) != (current.producer_id, current.epoch):
            raise StoreError(ErrorCode.PRODUCER_FENCED, f"transactional id {name!r} belongs to a newer producer")
        elif current.epoch >= _LAST_EPOCH:
            current = TransactionalId(self.new_producer_id(), 0)
        else:
            current = TransactionalId(current.producer_id, current.epoch + 1)
        self._transactional_ids[name] = current
        return current
