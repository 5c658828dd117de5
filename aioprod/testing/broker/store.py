"""The state of the embedded broker: topics, producer ids, transactions and consumer groups. The
state is kept in memory, and is bounded.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.protocol.record_batch import BatchHeader
from aioprod.testing.broker.access.authorizer import Authorizer
from aioprod.testing.broker.access.scram_users import ScramUsers
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.epoch_groups.modern import TopicInfo
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.fetch_sessions import FetchSessions
from aioprod.testing.broker.groups.coordinator import GroupCoordinator
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.lag_watch import LagWatch
from aioprod.testing.broker.log import MemoryUse, stamp_log_append_time
from aioprod.testing.broker.markers import build_marker
from aioprod.testing.broker.offsets import OffsetStore
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.quotas.quotas import Quotas
from aioprod.testing.broker.settings.configs import Configs
from aioprod.testing.broker.settings.group_configs import GroupConfigs
from aioprod.testing.broker.settings.topic_settings import TopicConfig
from aioprod.testing.broker.share_groups.share_partitions import SharePartitions
from aioprod.testing.broker.telemetry.receiver import TelemetryReceiver
from aioprod.testing.broker.transactions.coordinator import TransactionCoordinator
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aioprod.types import TopicPartition

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIRST_PRODUCER_ID = 1000  # as in a real broker, and different from any index
MAX_PARTITIONS = 10_000


def check_topic_name(name: str) -> None:
    """Raise RequestError (INVALID_TOPIC_EXCEPTION) if a topic can't have this name."""
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            (
                f"topic name {name!r}: must be 1 to 249 of the characters "
                "a-z A-Z 0-9 . _ - and neither . nor .."
            ),
        )


@dataclass(slots=True, eq=False)
class Topic:
    """A topic.

    Attributes:
        partitions: by number; more may be added, none is removed.
        configs: the settings that were set for the topic.
        config: the effective settings, including the broker's.
    """

    name: str
    topic_id: uuid.UUID
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str | None]
    config: TopicConfig

    def partition(self, index: int) -> Partition | None:
        """Return a partition, or None if it does not exist."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(slots=True, frozen=True)
class Appended:
    """The offsets of an appended batch, and its log append time (-1 if the topic does not use
    it).
    """

    base_offset: int
    next_offset: int
    log_append_time_ms: int


@dataclass(slots=True, frozen=True)
class StoreSettings:
    """The settings of a cluster that its state depends on.

    Attributes:
        num_partitions: the default for new topics.
        auto_create_topics: True if a request for a topic's metadata may create it (broker setting
            auto.create.topics.enable).
        max_message_bytes: the largest record batch in bytes (broker setting message.max.bytes).
        max_memory_bytes: the maximum total size of record batches in bytes; a batch that exceeds it
            is refused with POLICY_VIOLATION.
        transaction_version: the finalized feature transaction.version.
        replica_lag_time_max_ms: the time in milliseconds after which a follower that lacks records
            is no longer in sync (broker setting replica.lag.time.max.ms).
        client_metrics: True if the brokers accept metrics from clients.
    """

    num_partitions: int
    auto_create_topics: bool
    max_message_bytes: int
    max_memory_bytes: int
    transaction_version: int
    replica_lag_time_max_ms: int
    client_metrics: bool


class Store:
    """The state of one embedded cluster.

    Args:
        settings: limits and defaults.
        cluster: the nodes that share the state.
        groups: limits of consumer groups.
        wall_clock: a function that returns seconds since 1970.
        random_source: the source of topic and member ids.
        authorizer: the ACLs; None if clients may do everything.
    """

    def __init__(
        self,
        settings: StoreSettings,
        cluster: Cluster,
        groups: GroupSettings,
        *,
        wall_clock: Callable[[], float],
        random_source: random.Random,
        authorizer: Authorizer | None,
    ) -> None:
        self.cluster = cluster
        self.num_partitions: int = settings.num_partitions
        self.auto_create_topics: bool = settings.auto_create_topics
        self.topics: dict[str, Topic] = {}
        self.memory: MemoryUse = MemoryUse()
        self.lag_watch: LagWatch = LagWatch(settings.replica_lag_time_max_ms)
        self._fetch_sessions: dict[int, FetchSessions] = {}
        self.max_memory_bytes: int = settings.max_memory_bytes
        self._wall_clock = wall_clock
        self._random = random_source
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._next_producer_id = _FIRST_PRODUCER_ID
        static = {
            "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
            "default.replication.factor": str(self.cluster.replication_factor),
            "message.max.bytes": str(settings.max_message_bytes),
            "num.partitions": str(settings.num_partitions),
            **groups.as_broker_settings(),
            "replica.lag.time.max.ms": str(settings.replica_lag_time_max_ms),
        }
        self.configs: Configs = Configs(static, self._refresh_topic_configs)
        self.quotas: Quotas = Quotas()
        self.authorizer = authorizer
        self.scram_users: ScramUsers = ScramUsers()
        self.telemetry: TelemetryReceiver = TelemetryReceiver(
            settings.client_metrics, self.new_uuid
        )
        self.offsets: OffsetStore = OffsetStore()
        self.group_configs: GroupConfigs = GroupConfigs(self.configs)
        self.shares: SharePartitions = SharePartitions(self.group_configs, self.now_ms)
        self.groups: GroupCoordinator = GroupCoordinator(
            self.cluster, groups, self.new_uuid, self._topic_infos, self.group_configs
        )
        self.transactions: TransactionCoordinator = TransactionCoordinator(
            version=settings.transaction_version,
            new_producer_id=self.new_producer_id,
            write_marker=self._write_marker,
            end_offsets=self.offsets.end,
            now_ms=self.now_ms,
        )

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._wall_clock() * 1000)

    def _topic_infos(self) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(topic.topic_id, len(topic.partitions))
            for name, topic in self.topics.items()
        }

    def check_new_topic(
        self, name: str, num_partitions: int, configs: Mapping[str, str | None]
    ) -> TopicConfig:
        """Raise RequestError if such a topic can't be created."""
        check_topic_name(name)
        if name in self.topics:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        config = self.configs.parse_topic(configs)
        if not 0 < num_partitions <= MAX_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"{counted(num_partitions, 'partition')}: must be 1 to {MAX_PARTITIONS}",
            )
        return config

    def choose_replicas(
        self, num_partitions: int, replication_factor: int | None
    ) -> list[tuple[int, ...]]:
        """Choose the nodes of each new partition; raise RequestError if there are too few nodes."""
        factor = (
            self.cluster.replication_factor if replication_factor is None else replication_factor
        )
        count = len(self.cluster.node_ids)
        if not 1 <= factor <= count:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor}: must be 1 to {count}, the number of brokers",
            )
        return self.cluster.spread(num_partitions, factor)

    def check_assignment(self, assignment: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Return a manual assignment; raise RequestError unless all partitions have the same number
        of replicas, on different nodes that exist.
        """
        known = self.cluster.node_ids
        for replicas in assignment:
            if (
                not replicas
                or len(replicas) != len(assignment[0])
                or len(set(replicas)) != len(replicas)
                or not set(replicas) <= set(known)
            ):
                raise RequestError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    (
                        f"replicas {list(replicas)}: must be different ids of {list(known)}, "
                        "as many as for the other partitions"
                    ),
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
        """Create a topic; raise RequestError if the name, a number or a setting is invalid.

        ``assignment`` gives each partition's nodes, the preferred leader first, instead of both
        numbers.
        """
        count = self.num_partitions if num_partitions is None else num_partitions
        configs = dict(configs or {})
        config = self.check_new_topic(
            name, count if assignment is None else len(assignment), configs
        )
        placed = (
            self.choose_replicas(count, replication_factor)
            if assignment is None
            else self.check_assignment(assignment)
        )
        topic_id = self.new_uuid()
        topic = Topic(name, topic_id, (), configs, config)
        self.grow_topic(topic, placed)
        self.topics[name] = self._by_id[topic_id] = topic
        return topic

    def grow_topic(self, topic: Topic, assignment: Sequence[Sequence[int]]) -> None:
        """Add partitions with these replicas."""
        placed = (self.cluster.new_leadership(tuple(replicas)) for replicas in assignment)
        added = tuple(Partition(leadership, topic.config, self.memory) for leadership in placed)
        topic.partitions += added
        self.adapt_all(added)

    def set_topic_configs(self, topic: Topic, configs: Mapping[str, str | None]) -> None:
        """Replace the settings of a topic; raise RequestError (INVALID_CONFIG) if one is
        invalid.
        """
        config = self.configs.parse_topic(configs)
        topic.configs = dict(configs)
        self._configure(topic, config)

    def _refresh_topic_configs(self) -> None:
        for topic in self.topics.values():
            self._configure(topic, self.configs.topic_config(topic.configs))

    def _configure(self, topic: Topic, config: TopicConfig) -> None:
        topic.config = config
        for partition in topic.partitions:
            partition.config = config
        self.adapt_all(topic.partitions)

    def new_uuid(self) -> uuid.UUID:
        """Return a random id."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic and free its memory. Waiting fetches of the topic get a response."""
        del self.topics[topic.name], self._by_id[topic.topic_id]
        self.transactions.forget_partitions(
            TopicPartition(topic.name, index) for index in range(len(topic.partitions))
        )
        self.offsets.forget_topic(topic.name)
        self.shares.forget(lambda key: key.topic_id == topic.topic_id)
        for partition in topic.partitions:
            self.lag_watch.forget(partition)
            partition.close()

    def find_topic(self, name: str, topic_id: uuid.UUID | None = None) -> Topic | None:
        """Return the topic with this id, or with this name if no id is given; None if it does not
        exist.
        """
        return (
            self._by_id.get(topic_id)
            if topic_id is not None and topic_id.int
            else self.topics.get(name)
        )

    def fetch_sessions(self, node_id: int) -> FetchSessions:
        """Return the fetch sessions of a node."""
        sessions = self._fetch_sessions.get(node_id)
        if sessions is None:
            sessions = self._fetch_sessions[node_id] = FetchSessions(self._random)
        return sessions

    def forget_fetch_sessions(self, node_id: int) -> None:
        """Drop the fetch sessions of a node that has stopped."""
        self._fetch_sessions.pop(node_id, None)

    def get_topic(self, name: str) -> Topic:
        """Return a topic; raise RequestError if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def get_partition(self, topic: str, index: int) -> Partition:
        """Return a partition; raise RequestError if it does not exist."""
        found = self.get_topic(topic)
        partition = found.partition(index)
        if partition is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has partitions 0 to {len(found.partitions) - 1}, not {index}",
            )
        return partition

    def partitions(self) -> Iterator[Partition]:
        """Iterate over all partitions of all topics."""
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    def elect_leaders(self) -> None:
        """Adapt every partition to the running nodes and to the nodes whose replication is
        paused.
        """
        for partition in self.partitions():
            self.adapt(partition)

    def adapt_all(self, partitions: Iterable[Partition] | None = None) -> None:
        """Adapt partitions, or all of them, after a change other than of the nodes. Do nothing
        while no node is running.
        """
        if self.cluster.running_ids:
            for partition in self.partitions() if partitions is None else partitions:
                self.adapt(partition)

    def adapt(self, partition: Partition) -> None:
        """Adapt one partition to its nodes or to changed settings of its topic."""
        partition.adapt(self.cluster.running_ids, self.cluster.paused)
        self.lag_watch.update(partition)

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Make a running, in-sync node the leader of a partition."""
        partition.move_leader(node_id, self.cluster.running_ids, self.cluster.paused)
        self.lag_watch.update(partition)

    def reassign(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Move a partition to other nodes."""
        partition.reassign(tuple(replicas), self.cluster.running_ids, self.cluster.paused)
        self.lag_watch.update(partition)

    def replicate_led_by(self, node_id: int) -> None:
        """Replicate all partitions that a node leads, before a controlled shutdown."""
        for partition in self.partitions():
            if partition.leadership.leader == node_id:
                partition.replicate()

    def coordinator_node(self, kind: int, key: str) -> int:
        """Return the node that coordinates a group (kind 0) or a transactional id (kind 1), or -1
        if no node is running.
        """
        return self.cluster.coordinator_node(kind, key)

    def append(
        self,
        topic: Topic,
        partition: Partition,
        header: BatchHeader,
        batch: bytes | memoryview,
        *,
        begins_at_zero: bool = False,
    ) -> Appended:
        """Append a batch that passed its format checks. A duplicate returns the offsets of the
        original batch.

        Raises:
            RequestError: if the sequence is wrong, if the producer has an open transaction and the
                batch is not part of it, or if the memory limit is reached.
        """
        known = partition.check_producer(header, begins_at_zero=begins_at_zero)
        if known is not None:
            return Appended(
                known.base_offset,
                known.next_offset,
                known.timestamp if topic.config.log_append_time else -1,
            )
        if self.memory.size + len(batch) > self.max_memory_bytes:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                (
                    "the embedded broker is full: it keeps everything in memory, and "
                    f"max_memory_bytes is {self.max_memory_bytes}"
                ),
            )
        log_append_time, timestamp = -1, header.max_timestamp
        if topic.config.log_append_time:
            log_append_time = timestamp = self.now_ms()
            batch = stamp_log_append_time(batch, timestamp)
        base_offset = partition.append(header, batch, timestamp)
        self.lag_watch.update(partition)
        return Appended(base_offset, partition.log.end_offset, log_append_time)

    def delete_records(self, partition: Partition, offset: int) -> None:
        """Move the start of a partition to ``offset``, which is not after its high watermark."""
        partition.log.advance_start(offset)

    def new_producer_id(self) -> int:
        """Return the next producer id."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _write_marker(
        self, place: TopicPartition, identity: ProducerIdAndEpoch, commit: bool
    ) -> None:
        topic = self.topics.get(place.topic)
        partition = topic.partition(place.partition) if topic is not None else None
        if partition is not None:
            partition.write_marker(
                build_marker(*identity, commit=commit, timestamp_ms=self.now_ms())
            )
            self.lag_watch.update(partition)
