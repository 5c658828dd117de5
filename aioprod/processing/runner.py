"""The task that owns the consumer. It polls, pauses partitions whose buffer is full, commits, and
releases partitions in rebalances.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from aioprod import (
    Consumer,
    ConsumerRecord,
    Producer,
    RebalanceListener,
    TopicPartition,
    WakeupError,
)
from aioprod.logs import Logger, get_logger
from aioprod.processing.base_runner import BaseRunner, Stage
from aioprod.processing.config import ProcessorConfig
from aioprod.processing.guarantees import Guarantee
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.retries import retry_delay_s
from aioprod.processing.scheduling import Item, OrderedScheduler
from aioprod.processing.workers import Workers

log: Logger = get_logger(__name__)

_COMMIT_S = 5.0
_CANCEL_S = 1.0
_LOOK_S = 1.0


class Runner(BaseRunner):
    """Runs a processor of a consumer group.

    Args:
        topics: read in addition to the retry topics.
        plugins: as in :class:`BaseRunner`.

    Attributes:
        partitions: the assigned partitions.
        joined: whether the group has assigned partitions (or no partition) for the first time.
    """

    last_poll: float

    def __init__(
        self,
        config: ProcessorConfig,
        topics: Collection[str],
        consumer: Consumer,
        producer: Producer,
        scheduler: OrderedScheduler,
        plugins: Collection[object],
    ) -> None:
        super().__init__(config, consumer, producer, scheduler, plugins)
        self._config = config
        self._topics = [*topics, *(retry.topic for retry in config.policy.retry_topics)]
        self._consumer = consumer
        self._poll_records = consumer.config.max_poll_records
        self._interval_s = (config.commit_interval_ms or 0) / 1000
        self.joined: bool = False
        self._paused: set[TopicPartition] = set()
        # How often the reasons for paused partitions are passed to the consumer's stall watch.
        self._look_s = min(_LOOK_S, consumer.config.stall_timeout_ms / 4000) or float("inf")
        self._next_look = 0.0
        self._guarantee: Guarantee

    def connect(self, workers: Workers, guarantee: Guarantee) -> None:
        """Set the parts that call this object."""
        self._workers = workers
        self._guarantee = self._completion = guarantee

    # -- life --------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        self._consumer.subscribe(self._topics, listener=_Listener(self))

    def _has_work(self, changed: PartitionProgress | None) -> bool:
        return self._guarantee.is_pressing() or self._may_resume(changed)

    async def _close_reader(self, timeout_ms: float) -> None:
        # The listener commits during the call.
        try:
            await self._consumer.close(timeout_ms)
        finally:
            if self.stage is not Stage.STARTING:
                await self._guarantee.close()

    # -- polling -----------------------------------------------------------------------------------

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        self._guarantee.commit_if_due(loop.time(), self.partitions.values())
        self._pause_and_resume()
        self._workers.start_due()
        left_s = min(self._interval_s, max(self._drain_until - loop.time(), 0))
        if self._paused:
            left_s = min(left_s, self._look_s)
        self._polling = True
        self.last_poll = loop.time()
        try:
            records = await self._consumer.getmany(self._poll_records, left_s * 1000)
        except WakeupError:
            return
        finally:
            self._polling = False
        if records:
            await self._take(records)

    async def _take(self, records: Collection[ConsumerRecord]) -> None:
        loop = asyncio.get_running_loop()
        items = []
        policy, wall_ms = self._config.policy, time.time() * 1000
        for record in records:
            item = Item(record, self._partition_of(record))
            if policy.retry_topics:
                delay_s = retry_delay_s(policy, record.topic, record.timestamp, wall_ms)
                item.due = loop.time() + delay_s if delay_s else 0.0
            items.append(item)
        if await self._guarantee.admit(items):
            now = loop.time()
            for item in items:
                item.partition.completed.add(item.record.offset, item.record.leader_epoch)
                self._scheduler.add(item, now)

    def _partition_of(self, record: ConsumerRecord) -> PartitionProgress:
        tp = TopicPartition(record.topic, record.partition)
        partition = self.partitions[tp]
        if record.offset <= partition.completed.last_read:
            # The log was truncated, or the position was out of range and has been reset.
            log.warning("%s-%d continues at the earlier offset %d", *tp, record.offset)
            self._guarantee.went_back(tp)
            self._forget([partition])
            partition = self.partitions[tp] = PartitionProgress(tp)
        return partition

    def _pause_and_resume(self) -> None:
        self._paused = paused = set(self._consumer.paused())
        now = asyncio.get_running_loop().time()
        looks = now >= self._next_look
        if looks:
            self._next_look = now + self._look_s
        for tp, partition in self.partitions.items():
            if tp in paused:
                if self._has_room(tp):
                    self._consumer.resume(tp)
                    paused.discard(tp)
                elif looks:
                    self._consumer.pause(tp, reason=self._reason_to_pause(partition, now))
            elif self.stage is Stage.STOPPING or (
                self._guarantee.backlog(partition)
                > self._config.max_pending_records - self._poll_records
            ):
                self._consumer.pause(tp)
                paused.add(tp)

    def _reason_to_pause(self, partition: PartitionProgress, now: float) -> str:
        """Return what the position to commit waits for. As long as the text is the same, the
        partition makes no progress.
        """
        offset = partition.completed.first_incomplete
        if offset is None:
            return self._guarantee.reason_to_wait(partition)
        if self._workers.is_handling(partition, offset):
            return f"the handler of the record at offset {offset} is busy"
        if self._workers.is_sending(partition, offset):
            return f"the outputs of the record at offset {offset} are not acknowledged"
        due = self._scheduler.due_of(partition, offset)
        if due is not None and due > now:  # not a stall: the text changes
            return f"the record at offset {offset} is retried in {due - now:.1f} s"
        busy = f"all {self._config.concurrency} handlers are busy"
        return f"the record at offset {offset} waits, {busy}"

    def _may_resume(self, changed: PartitionProgress | None) -> bool:
        """Return whether there is room again, in one partition or in any. With six paused
        partitions, checking all for each record took a twentieth of its time.
        """
        if changed is None:
            return any(map(self._has_room, self._paused))
        return changed.tp in self._paused and self._has_room(changed.tp)

    def _has_room(self, tp: TopicPartition) -> bool:
        partition = self.partitions.get(tp)
        return (
            partition is not None
            and self.stage is Stage.RUNNING
            # At most the limit at which it is paused, as a poll returns at most half of them. With
            # a quarter, there were too few keys to handle: 25 % fewer records per second.
            and self._guarantee.backlog(partition) <= self._config.max_pending_records // 2
        )

    # -- rebalances --------------------------------------------------------------------------------

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with new partitions."""
        await self._guarantee.assigned(partitions)
        self.joined = True
        for tp in partitions:
            self.partitions[tp] = PartitionProgress(tp)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Wait for the handlers of these partitions within the limit, commit, and forget them."""
        leaving = [self.partitions[tp] for tp in partitions if tp in self.partitions]
        now = asyncio.get_running_loop().time
        deadline = now() + self._drain_s if self.stage is Stage.RUNNING else self._drain_until
        if not self._guarantee.drains_queue:
            self._drop_queued(leaving)
        else:
            self._workers.start_due()
        if not await self._until(lambda: self._are_idle(leaving), deadline):
            log.warning(
                "handlers took longer than drain_timeout_ms=%d; their records are processed again",
                self._config.drain_timeout_ms,
            )
            await self._cancel(leaving)
        # Commits have their own limit: the handlers may have used up theirs.
        await self._guarantee.commit_now(leaving, now() + _COMMIT_S)
        self._forget(leaving)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that other members own now: cancel their handlers, commit nothing."""
        gone = [self.partitions[tp] for tp in partitions if tp in self.partitions]
        await self._cancel(gone)
        self._forget(gone)

    def _are_idle(self, partitions: Collection[PartitionProgress]) -> bool:
        if self._guarantee.drains_queue and not self._workers.stopped:
            return all(partition.completed.is_done for partition in partitions)
        return not any(partition.active or partition.sending for partition in partitions)

    async def _cancel(self, partitions: Collection[PartitionProgress]) -> None:
        # First the queued records: otherwise the end of a cancelled call begins the next one.
        self._drop_queued(partitions)
        for partition in partitions:
            self._workers.cancel(partition)
        deadline = asyncio.get_running_loop().time() + _CANCEL_S
        await self._until(lambda: not any(each.active for each in partitions), deadline)

    def _drop_queued(self, partitions: Collection[PartitionProgress]) -> None:
        for partition in partitions:
            partition.closed = True
            self._scheduler.drop(partition)

    def _forget(self, partitions: Collection[PartitionProgress]) -> None:
        self._drop_queued(partitions)
        for partition in partitions:
            if self.partitions.get(partition.tp) is partition:
                del self.partitions[partition.tp]

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until ``condition`` is true; return whether it is at the deadline."""
        loop = asyncio.get_running_loop()
        while not condition():
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            change = loop.create_future()
            self._changes.append(change)
            await asyncio.wait([change], timeout=left_s)
        return True


class _Listener(RebalanceListener):
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._runner.assigned(partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._runner.revoked(partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await self._runner.lost(partitions)
