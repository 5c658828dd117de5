"""The task that owns a share consumer. It polls, and fetches only what can soon be handled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from aioprod import (
    ConsumerRecord,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    WakeupError,
)
from aioprod.processing.base_runner import BaseRunner, Stage
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import Item, OrderedScheduler
from aioprod.processing.share_config import ShareProcessorConfig
from aioprod.processing.share_guarantee import ShareGuarantee
from aioprod.processing.workers import Workers

# A poll ends at least this often, so that the time of the last poll shows that the task polls.
_POLL_S = 1.0
# All records that have arrived: the consumer fetches at most max_poll_records from a broker.
_ALL = 1_000_000


class ShareRunner(BaseRunner):
    """Runs a processor of a share group.

    Args:
        topics: the topics to read.
        plugins: as in :class:`BaseRunner`.
        check: called first; raises an error if the group can't be used.
    """

    last_poll: float

    def __init__(
        self,
        config: ShareProcessorConfig,
        topics: Collection[str],
        consumer: ShareConsumer,
        producer: Producer,
        scheduler: OrderedScheduler,
        plugins: Collection[object],
        check: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config, consumer, producer, scheduler, plugins)
        self._topics = topics
        self._check = check
        self._consumer = consumer
        # At most half of all, as a poll returns this number from each broker.
        self._room_at = config.most_pending - consumer.config.max_poll_records
        self._fetching = False
        self._records: ShareGuarantee

    def connect(self, workers: Workers, completion: ShareGuarantee) -> None:
        """Set the parts that call this object."""
        self._workers = workers
        self._records = self._completion = completion

    async def _prepare(self) -> None:
        if self._check is not None:
            await self._check()
        self._consumer.subscribe(self._topics)

    def _has_work(self, changed: PartitionProgress | None) -> bool:
        return not self._fetching and self._has_room()

    def _has_room(self) -> bool:
        return self.stage is Stage.RUNNING and self._records.pending <= self._room_at

    async def _close_reader(self, timeout_ms: float) -> None:
        # This sends the last acknowledgements, and releases all other records.
        await self._consumer.close(timeout_ms)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        self._workers.start_due()
        left_s = min(_POLL_S, max(self._drain_until - loop.time(), 0))
        self._fetching = self._has_room()
        self._polling = True
        self.last_poll = loop.time()
        try:
            records = await self._consumer.getmany(_ALL, left_s * 1000, fetch=self._fetching)
        except WakeupError:
            return
        finally:
            self._polling = False
        self._take(records)

    def _take(self, records: Iterable[ShareRecord]) -> None:
        now = asyncio.get_running_loop().time()
        for record in self._records.admit(records):
            tp = TopicPartition(record.topic, record.partition)
            partition = self.partitions.get(tp)
            if partition is None:
                partition = self.partitions[tp] = PartitionProgress(tp)
            item = Item(ConsumerRecord(*record[:-1]), partition)
            item.delivery_count = record.delivery_count
            self._scheduler.add(item, now)
