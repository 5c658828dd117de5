"""Chooses the partition of a record: by its ``partition``, the custom partitioner, its key, or the
sticky choice.
"""

from __future__ import annotations

from collections.abc import Callable

from aioprod.config.producer import ProducerConfig
from aioprod.errors import InvalidPartitionError
from aioprod.logs import Logger, get_logger
from aioprod.producer.appends import PendingRecord
from aioprod.producer.partition_queue import PartitionQueue, Topic
from aioprod.producer.partitioner import Partitions, new_batch_hook, partition_for_key
from aioprod.user_code import call, surface

log: Logger = get_logger(__name__)


class PartitionChoice:
    """Chooses partitions.

    Args:
        switch_sticky: chooses another partition for a topic's keyless records.

    Attributes:
        asks_for_each_batch: whether the partitioner chooses again before a batch is opened, even if
            the previous one was not full.
    """

    def __init__(self, config: ProducerConfig, switch_sticky: Callable[[Topic], None]) -> None:
        self._partitioner = config.partitioner
        self._on_new_batch = (
            None if config.partitioner is None else new_batch_hook(config.partitioner)
        )
        self.asks_for_each_batch: bool = self._on_new_batch is not None
        self._ignore_keys = config.partitioner_ignore_keys
        self._switch_sticky = switch_sticky

    def queue(self, topic: Topic, pending: PendingRecord) -> PartitionQueue:
        """Return the partition of a record.

        Raises:
            InvalidPartitionError: if the topic has no such partition.
        """
        partition = pending.record.partition
        return (
            topic.queues[self._choose(topic, pending)]
            if partition is None
            else named_queue(topic, partition)
        )

    def queue_for_next_batch(
        self, topic: Topic, queue: PartitionQueue, pending: PendingRecord, *, was_full: bool
    ) -> PartitionQueue:
        """Return the partition of a record that would open a new batch at ``queue``: a sticky
        choice moves to another partition, all others stay.

        Args:
            was_full: whether the batch before was full, not only sent after its linger time.
        """
        record = pending.record
        if record.partition is not None:
            return queue
        if self._partitioner is not None:
            if self._on_new_batch is None or not queue.opened:
                return queue
            call("partitioner: on_new_batch", self._on_new_batch, topic.name, queue.tp.partition)
        else:
            return self.after_full(queue) if was_full and self._is_sticky(pending) else queue
        return topic.queues[self._choose(topic, pending)]

    def after_full(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the partition of a keyless record that finds a full batch at ``queue``."""
        topic = queue.topic
        if queue.tp.partition == topic.sticky.current:
            self._switch_sticky(topic)
        return topic.queues[topic.sticky.current]

    def next_batch_in_line(self, queue: PartitionQueue) -> None:
        """Note that a record that waited for memory has opened another batch. It keeps its
        partition; later ones may get another.
        """
        if self._on_new_batch is not None:
            try:
                self._on_new_batch(queue.tp.topic, queue.tp.partition)
            except BaseException as error:
                log.exception("partitioner: on_new_batch failed")
                surface(error)

    def _choose(self, topic: Topic, pending: PendingRecord) -> int:
        record = pending.record
        key = pending.key if record.partition_key is None else record.partition_key
        if self._partitioner is not None:
            count = topic.count
            partitions = Partitions(count, topic.available, topic.leaders, record)
            chosen = call(
                "partitioner",
                self._partitioner.partition,
                topic.name,
                key,
                pending.value,
                partitions,
            )
            if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < count:
                raise InvalidPartitionError(
                    f"partitioner {type(self._partitioner).__name__} chose {chosen!r} for "
                    f"topic {topic.name!r}: must be from 0 to {count - 1}"
                )
            return chosen
        if key is None or self._is_sticky(pending):
            return topic.sticky.current
        return partition_for_key(key, topic.count)

    def _is_sticky(self, pending: PendingRecord) -> bool:
        return pending.record.partition_key is None and (pending.key is None or self._ignore_keys)


def named_queue(topic: Topic, partition: int) -> PartitionQueue:
    """Return the queue of a partition that a record names.

    Raises:
        InvalidPartitionError: if the topic has no such partition.
    """
    if not 0 <= partition < topic.count:
        raise InvalidPartitionError(
            f"partition={partition} of topic {topic.name!r}: it has partitions 0 to "
            f"{topic.count - 1}"
        )
    return topic.queues[partition]
