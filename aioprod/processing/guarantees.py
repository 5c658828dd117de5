"""At most once and at least once: when positions are committed, and outputs sent.

``transactions.py`` has exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Protocol

from aioprod import (
    Consumer,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    RebalanceInProgressError,
    TopicPartition,
)
from aioprod.processing.observers import ProcessorFigures
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import Item

log = logging.getLogger(__name__)

_COMMIT_RETRY_S = 0.1


class Guarantee(Protocol):
    """Decides when positions are committed and outputs are sent. The task that polls calls all
    methods except :meth:`deliver`, which workers call.

    Attributes:
        drains_queue: whether records that were read are handled before their partition is given up,
            since no member would read them again.
    """

    drains_queue: bool

    async def admit(self, items: Sequence[Item]) -> bool:
        """Return whether records that were just read may be handled; else they are read again."""
        ...

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Note that records are done, and take care of what they led to.

        Raises:
            KafkaError: if an output can't be sent. The records are not done.
        """
        ...

    def backlog(self, partition: PartitionProgress) -> int:
        """Return the number of records of a partition that count for ``max_pending_records``."""
        ...

    def is_pressing(self) -> bool:
        """Return whether a commit should not wait for the end of the interval."""
        ...

    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """Begin to commit positions if that is due; called outside the consumer's calls."""
        ...

    async def commit_now(self, partitions: Collection[PartitionProgress], deadline: float) -> None:
        """Commit positions, until loop time ``deadline``; called by a rebalance listener. Failures
        are logged.
        """
        ...

    async def close(self) -> None:
        """End all tasks."""
        ...


async def send_all(producer: Producer, outputs: Sequence[ProducerRecord]) -> None:
    """Send records, and wait until all are acknowledged.

    Raises:
        KafkaError: the first error.
    """
    deliveries = [await producer.send(*output) for output in outputs]
    for delivery in deliveries:
        await delivery


class AtLeastOnce:
    """Outputs are sent first, then the record counts as done, then its position is committed."""

    drains_queue = False

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        figures: ProcessorFigures,
        interval_s: float,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._figures = figures
        self._interval_s = interval_s
        self._due = 0.0
        self._commit: asyncio.Future[None] | None = None

    async def admit(self, items: Sequence[Item]) -> bool:
        """Admit all."""
        return True

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send the outputs, then note that the records are done."""
        if outputs:
            await send_all(self._producer, outputs)
        for item in items:
            item.partition.completed.complete(item.record.offset)

    def backlog(self, partition: PartitionProgress) -> int:
        """Count the records that no commit covers yet."""
        return partition.completed.incomplete

    def is_pressing(self) -> bool:
        """Return False."""
        return False

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
        """Commit after the commit in the background, which has older positions."""
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
        elif not isinstance(error, RebalanceInProgressError):  # polling ends it
            log.warning("positions not committed; retrying: %s", error)

    def _committed(self, changed: dict[PartitionProgress, tuple[OffsetAndMetadata, int]]) -> None:
        for partition, (position, records) in changed.items():
            partition.completed.committed(position.offset, records)
        self._figures.committed({each.tp: at.offset for each, (at, _) in changed.items()})


class AtMostOnce:
    """The position behind a record is committed before its handler is called."""

    drains_queue = True

    def __init__(self, consumer: Consumer, producer: Producer, figures: ProcessorFigures) -> None:
        self._consumer = consumer
        self._producer = producer
        self._figures = figures

    async def admit(self, items: Sequence[Item]) -> bool:
        """Commit the positions behind the records. If that fails, they are read again: no handler
        has got them.
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
        self._figures.committed({tp: position.offset for tp, position in offsets.items()})
        return True

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send the outputs."""
        for item in items:
            item.partition.completed.complete(item.record.offset)
        await send_all(self._producer, outputs)

    def backlog(self, partition: PartitionProgress) -> int:
        """Count the records that are not done."""
        return partition.completed.incomplete

    def is_pressing(self) -> bool:
        """Return False."""
        return False

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
