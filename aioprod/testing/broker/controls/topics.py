"""Creates, grows and deletes topics, and reads their records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaTimeoutError
from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.cleaning import compact, find_retention_end
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.internal_topics import is_internal
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.store import Store, Topic


class TopicControls:
    """The topics of an embedded cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without Kafka's internal ones."""
        return {name: topic for name, topic in self._store.topics.items() if not is_internal(name)}

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic.

        The first node leads partition 0, the second node partition 1, and so on. The other replicas
        of a partition are on the nodes that follow its leader.

        Args:
            name: the topic's name.
            num_partitions: the number of partitions; None for the broker's num.partitions.
            configs: topic settings by Kafka's names.
            replication_factor: the number of replicas; None for the broker's
                default.replication.factor.

        Raises:
            BrokerError: if the topic exists or an argument is invalid.
        """
        return self._store.create_topic(name, num_partitions, configs, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            BrokerError: if the topic does not exist.
        """
        self._store.delete_topic(self._store.get_topic(name))

    def add_partitions(self, topic: str, num_partitions: int) -> None:
        """Increase the number of partitions of a topic to ``num_partitions``.

        Raises:
            BrokerError: if the topic does not exist or already has that many partitions.
        """
        found = self._store.get_topic(topic)
        present = len(found.partitions)
        if num_partitions <= present:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic} has {counted(present, 'partition')}: "
                f"num_partitions={num_partitions} must be higher",
            )
        factor = len(found.partitions[0].leadership.replicas)
        self._store.grow_topic(found, self._store.choose_replicas(num_partitions, factor)[present:])

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """Return the records of a partition, or of all partitions in order, without transaction
        markers.

        Args:
            topic: the topic's name.
            partition: the partition; None for all partitions.
            committed_only: leave out the records of open and aborted transactions.

        Raises:
            BrokerError: if the topic or the partition does not exist.
        """
        chosen = (
            self._store.get_topic(topic).partitions
            if partition is None
            else [self._store.get_partition(topic, partition)]
        )
        return [record for each in chosen for record in each.records(committed_only=committed_only)]

    async def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """Wait until a topic has at least ``count`` records, and return all its records.

        Raises:
            KafkaTimeoutError: if the topic has fewer records after ``timeout_seconds``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        logs = [partition.log for partition in self._store.get_topic(topic).partitions]
        while sum(log.record_count for log in logs) < count:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise KafkaTimeoutError(
                    f"{topic}: {sum(log.record_count for log in logs)} of {count} records "
                    f"after {timeout_seconds} s"
                )
            await wait_for_append(logs, remaining)
        return self.records(topic)

    def apply_retention(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Delete the records that exceed a topic's retention.ms or retention.bytes, as Kafka does
        in the background. Return the number of deleted records.

        Whole batches are deleted, oldest first: those whose newest record is older than
        retention.ms, and those that are not needed for retention.bytes. The partition's start
        offset advances.

        Args:
            topic: the topic; None for all topics with cleanup.policy=delete.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy does not include
                ``delete``.
        """
        now_ms = self._store.now_ms() if now_ms is None else now_ms
        removed = 0
        for found in self._cleaned(topic, "delete"):
            for partition in found.partitions:
                removed += partition.log.record_count
                self._store.delete_records(partition, find_retention_end(partition, now_ms))
                removed -= partition.log.record_count
        return removed

    def compact(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Keep only the last record of each key, as Kafka's log cleaner does in the background, and
        return the number of removed records.

        Offsets do not change. Records of open transactions, all records after them, and transaction
        markers stay; records of aborted transactions are removed. A tombstone stays until a
        compaction that runs delete.retention.ms after the first one that found it.

        Args:
            topic: the topic; None for all topics with cleanup.policy=compact.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy does not include
                ``compact``.
        """
        now_ms = self._store.now_ms() if now_ms is None else now_ms
        return sum(
            compact(partition, now_ms)
            for found in self._cleaned(topic, "compact")
            for partition in found.partitions
        )

    def _cleaned(self, name: str | None, policy: str) -> list[Topic]:
        """Return the topics that a cleanup policy applies to."""
        chosen = self.topics.values() if name is None else [self._store.get_topic(name)]
        having = [
            topic
            for topic in chosen
            if (topic.config.is_compacted if policy == "compact" else topic.config.is_deletable)
        ]
        if name is not None and not having:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r}: cleanup.policy does not include {policy}",
            )
        return having

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records of a partition before an offset, except those that consumers can't
        read yet.

        Raises:
            BrokerError: if the partition does not exist.
        """
        found = self._store.get_partition(topic, partition)
        self._store.delete_records(found, min(before_offset, found.high_watermark))
