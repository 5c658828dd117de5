"""Completes the processing of records. At most once and at least once: when positions are committed
and outputs are sent.

Exactly once is in ``transactions.py``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from aioprod import (
    Consumer,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    RebalanceInProgressError,
    TopicPartition,
)
from aioprod.logs import Logger, get_logger
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import Item

log: Logger = get_logger(__name__)

_COMMIT_RETRY_S = 0.1


class Completion(ABC):
    """Completes the processing of records.

    Attributes:
        drains_queue: whether records that were read and wait for a handler are still handled before
            the processor releases them.
        repeats: whether a handler may be called again with a record.
        sends_ahead: whether the next record of a key is handled before the outputs of the previous
            one are acknowledged.
        drops: the fate of a record that can be neither processed nor forwarded, as a word for
            the log; None if the processor then stops.
    """

    drains_queue = False
    repeats = True
    sends_ahead = True
    drops: str | None = None

    @abstractmethod
    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Mark records as done, and send or keep their outputs.

        Raises:
            KafkaError: if an output can't be sent. The records are not marked as done.
        """

    def done(self, items: Sequence[Item]) -> None:
        """Mark records as done: their outputs, if any, are acknowledged."""
        for item in items:
            item.partition.completed.complete(item.record.offset)

    def reopen(self, item: Item) -> None:
        """Handle a record again that may have been marked as done."""
        item.partition.completed.reopen(item.record.offset)

    def may_release(self, item: Item) -> bool:
        """Return whether another member may handle a record that failed here."""
        return False

    def release(self, item: Item) -> None:
        """Let any member of the group receive a record again."""
        raise NotImplementedError

    async def drop(self, item: Item) -> None:
        """Skip a record, as ``drops`` says."""
        raise NotImplementedError


async def send_all(producer: Producer, outputs: Sequence[ProducerRecord]) -> None:
    """Send records, and wait until all are acknowledged.

    Raises:
        KafkaError: the first error.
    """
    deliveries = [await producer.send(*output) for output in outputs]
    for delivery in deliveries:
        await delivery


class Guarantee(Completion):
    """Decides when positions are committed and outputs are sent. The task that polls calls all
    methods, except those of :class:`Completion`.
    """

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Set the positions of partitions that were just assigned, if the group's do not count."""

    def went_back(self, partition: TopicPartition) -> None:
        """Accept that a partition continues at an earlier offset, or raise an error."""

    async def admit(self, items: Sequence[Item]) -> bool:
        """Return whether records that were just read may be handled, or must be read again."""
        return True

    def backlog(self, partition: PartitionProgress) -> int:
        """Return the number of records of a partition that count for ``max_pending_records``."""
        return partition.completed.incomplete

    def reason_to_wait(self, partition: PartitionProgress) -> str:
        """Return what a partition waits for of which all records are handled."""
        return "processed records are not committed yet"

    def is_pressing(self) -> bool:
        """Return whether a commit should not wait for the end of the interval."""
        return False

    @abstractmethod
    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """Begin to commit positions if it is time; not called during a call of the consumer."""

    @abstractmethod
    async def commit_now(self, partitions: Collection[PartitionProgress], deadline: float) -> None:
        """Commit positions before loop time ``deadline``; called by a rebalance listener. Failures
        are logged.
        """

    @abstractmethod
    async def close(self) -> None:
        """End all tasks."""


class AtLeastOnce(Guarantee):
    """Outputs are sent first, then the record is done, then its position is committed."""

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        metrics: ProcessorMetrics,
        interval_s: float,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._metrics = metrics
        self._interval_s = interval_s
        self._due = 0.0
        self._commit: asyncio.Future[None] | None = None

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send the outputs, then mark the records as done."""
        if outputs:
            await send_all(self._producer, outputs)
        self.done(items)

    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """Commit in the background, one commit at a time."""
        if now < self._due or (self._commit is not None and not self._commit.done()):
            return
        self._due = now + self._interval_s
        changed = changed_positions(partitions)
        if changed:
            offsets = _offsets(changed)
            self._commit = asyncio.ensure_future(self._consumer.commit_async(offsets))
            self._commit.add_done_callback(lambda done: self._ended(done, changed))

    async def commit_now(self, partitions: Collection[PartitionProgress], deadline: float) -> None:
        """Commit after the commit that runs in the background, as its positions are older."""
        loop = asyncio.get_running_loop()
        if self._commit is not None and not self._commit.done():
            await asyncio.wait([self._commit], timeout=max(deadline - loop.time(), 0))
        changed = changed_positions(partitions)
        if not changed:
            return
        try:
            left_ms = max(deadline - loop.time(), 0) * 1000
            await self._consumer.commit(_offsets(changed), timeout_ms=left_ms)
        except KafkaError as error:
            log.warning("positions not committed, records are processed again: %s", error)
        else:
            self._committed(changed)

    async def close(self) -> None:
        """Do nothing: the consumer ends its commits."""

    def _ended(
        self,
        commit: asyncio.Future[None],
        changed: dict[PartitionProgress, tuple[OffsetAndMetadata, int]],
    ) -> None:
        if commit.cancelled():
            return
        error = commit.exception()
        if error is None:
            self._committed(changed)
        elif not isinstance(
            error, RebalanceInProgressError
        ):  # the next poll completes the rebalance
            log.warning("positions not committed; retrying: %s", error)

    def _committed(self, changed: dict[PartitionProgress, tuple[OffsetAndMetadata, int]]) -> None:
        for partition, (position, records) in changed.items():
            partition.completed.committed(position.offset, records)
        self._metrics.committed({each.tp: at.offset for each, (at, _) in changed.items()})


class AtMostOnce(Guarantee):
    """The position after a record is committed before its handler is called."""

    # No member would read the records again.
    drains_queue = True
    repeats = False
    drops: str = "lost"

    def __init__(self, consumer: Consumer, producer: Producer, metrics: ProcessorMetrics) -> None:
        self._consumer = consumer
        self._producer = producer
        self._metrics = metrics

    async def admit(self, items: Sequence[Item]) -> bool:
        """Commit the positions after the records. If that fails, they are read again, since no
        handler was called.
        """
        offsets = {
            item.partition.tp: OffsetAndMetadata(
                item.record.offset + 1, "", item.record.leader_epoch
            )
            for item in items
        }
        try:
            await self._consumer.commit_async(offsets)
        except KafkaError as error:
            if not isinstance(error, RebalanceInProgressError):
                log.warning("positions not committed; reading the records again: %s", error)
            for item in reversed(items):
                if item.partition.tp in self._consumer.assignment():
                    self._consumer.seek(item.partition.tp, item.record.offset)
            await asyncio.sleep(_COMMIT_RETRY_S)
            return False
        self._metrics.committed({tp: position.offset for tp, position in offsets.items()})
        return True

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send the outputs."""
        self.done(items)
        await send_all(self._producer, outputs)

    async def drop(self, item: Item) -> None:
        """Do nothing: the position is committed."""
        item.partition.completed.complete(item.record.offset)

    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """Do nothing: all positions are committed."""

    async def commit_now(self, partitions: Collection[PartitionProgress], deadline: float) -> None:
        """Do nothing: all positions are committed."""

    async def close(self) -> None:
        """Do nothing."""


def changed_positions(
    partitions: Collection[PartitionProgress],
) -> dict[PartitionProgress, tuple[OffsetAndMetadata, int]]:
    """Return the positions to commit, each with the number of records since the last commit."""
    return {
        partition: (partition.completed.position, partition.completed.uncommitted)
        for partition in partitions
        if partition.completed.position is not None and not partition.completed.is_committed
    }


def _offsets(
    changed: dict[PartitionProgress, tuple[OffsetAndMetadata, int]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition.tp: position for partition, (position, _) in changed.items()}
