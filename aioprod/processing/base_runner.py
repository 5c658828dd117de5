"""The life of a runner: start, stop, failure and the end of its clients."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Protocol

from aioprod import ConfigError, MetadataTimeoutError, Producer, TopicPartition
from aioprod.config.plugins import close_plugins
from aioprod.logs import Logger, get_logger
from aioprod.processing.config import CommonConfig
from aioprod.processing.guarantees import Completion
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.scheduling import OrderedScheduler
from aioprod.processing.workers import Workers
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

_CLOSE_MS = 30_000
# Brokers that create topics automatically have done so within this time.
_TOPICS_S = 10.0


class Stage(Enum):
    """The stages of a runner."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


class Reader(Protocol):
    """The methods of a consumer that runners of all kinds of groups call."""

    async def start(self) -> None:
        """Connect."""

    async def close(self, timeout_ms: float | None = ...) -> None:
        """Leave the group."""

    def wakeup(self) -> None:
        """End the poll early."""


class BaseRunner(ABC):
    """Runs one processor, from :meth:`start` to the end of its task.

    Args:
        plugins: closed at the end, if they have a method ``close``.

    Attributes:
        stage: the current stage.
        failure: the error that ends it, or None.
        partitions: the partitions whose records it handles.
        task: runs from the start to the end; None before the start.
        last_poll: the loop time of the last poll.
    """

    def __init__(
        self,
        config: CommonConfig,
        consumer: Reader,
        producer: Producer,
        scheduler: OrderedScheduler,
        plugins: Collection[object],
    ) -> None:
        self.stage: Stage = Stage.NEW
        self.failure: BaseException | None = None
        self.partitions: dict[TopicPartition, PartitionProgress] = {}
        self.task: asyncio.Task[None] | None = None
        self.last_poll: float = 0.0
        self._reader = consumer
        self._producer = producer
        self._scheduler = scheduler
        self._plugins = plugins
        self._group_id = config.group_id
        self._topics_of_failed_records = config.topics_of_failed_records
        self._drain_s = config.drain_timeout_ms / 1000
        self._drain_until = float("inf")
        self._polling = False
        self._changes: list[asyncio.Future[None]] = []
        self._workers: Workers
        self._completion: Completion

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, subscribe and begin to poll in the background."""
        self.stage = Stage.STARTING
        try:
            # With exactly-once this aborts the transaction of an earlier process, before the first
            # record is read.
            await self._producer.start()
            await check_topics_exist(self._producer, self._topics_of_failed_records)
            await self._prepare()
            await self._reader.start()
        except BaseException:
            await self._close_clients(0)
            self.stage = Stage.STOPPED
            raise
        if self.stage is Stage.STARTING:  # not stopped meanwhile
            self.stage = Stage.RUNNING
        self.task = start_task(self._run(), name="aioprod-processor")

    def stop(self) -> None:
        """Read no further records. The runner ends when the running handlers have ended, or the
        limit has passed.
        """
        if self.stage in (Stage.STARTING, Stage.RUNNING):
            self.stage = Stage.STOPPING
            self._drain_until = asyncio.get_running_loop().time() + self._drain_s
            if not self._completion.drains_queue:
                self._workers.stopped = True
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error, which :meth:`aioprod.processing.Processor.run` raises."""
        if self.failure is None:
            self.failure = error
            log.error("the processor of group %r stops: %s", self._group_id, error)
        self._workers.stopped = True
        self.stop()

    def changed(self, partition: PartitionProgress | None = None) -> None:
        """React to records that are done or committed.

        Args:
            partition: the partition of the records; None if they may be of several.
        """
        if self._changes:
            changes, self._changes = self._changes, []
            for change in changes:
                if not change.done():
                    change.set_result(None)
        if self._polling and (self.stage is Stage.STOPPING or self._has_work(partition)):
            self._wake()

    @abstractmethod
    async def _prepare(self) -> None:
        """Subscribe the consumer."""

    @abstractmethod
    def _has_work(self, changed: PartitionProgress | None) -> bool:
        """Return whether a change of this partition, or of any of them, should end the poll."""

    @abstractmethod
    async def _poll(self) -> None:
        """Poll once, and queue the records."""

    @abstractmethod
    async def _close_reader(self, timeout_ms: float) -> None:
        """Close the consumer and all that uses it. It may not have started."""

    def _wake(self) -> None:
        if self._polling:
            self._polling = False
            self._reader.wakeup()

    async def _run(self) -> None:
        close_ms = 0.0  # after a cancellation
        loop = asyncio.get_running_loop()
        try:
            while not self._is_drained(loop.time()):
                await self._poll()
            close_ms = _CLOSE_MS
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            close_ms = _CLOSE_MS
            self.fail(error)
        finally:
            await self.end(close_ms)

    async def end(self, close_ms: float) -> None:
        """End everything, even if the task was cancelled before it began."""
        self.stage = Stage.STOPPING
        self._workers.stopped = True
        try:
            await self._workers.close()
            await self._close_clients(close_ms)
        finally:
            self.stage = Stage.STOPPED

    def _is_drained(self, now: float) -> bool:
        if self.stage is not Stage.STOPPING:
            return False
        goes_on = self._completion.drains_queue and not self._workers.stopped
        waiting = self._scheduler.queued if goes_on else 0
        busy = self._workers.in_flight or self._workers.sending or waiting
        return now >= self._drain_until or not busy

    async def _close_clients(self, timeout_ms: float) -> None:
        try:
            await self._close_reader(timeout_ms)
        finally:
            try:
                await self._producer.close(timeout_ms)
            finally:
                close_plugins(self._plugins)


async def check_topics_exist(producer: Producer, topics: Mapping[str, str]) -> None:
    """Check that topics exist, before a failed record needs one of them.

    The producer requests their metadata as it does when it sends. A cluster that creates topics
    automatically creates them then; the metadata do not say whether it does.

    Args:
        topics: the topics, each with the name of the setting that names it.

    Raises:
        ConfigError: if a topic does not exist.
        KafkaError: if a topic can't be used, such as TOPIC_AUTHORIZATION_FAILED.
    """
    waiting = {
        topic: start_task(producer.partitions_for(topic), name=f"aioprod-topic-{topic}")
        for topic in topics
    }
    if not waiting:
        return
    try:
        await asyncio.wait(waiting.values(), timeout=_TOPICS_S)
    finally:
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)
    for topic, task in waiting.items():
        if task.cancelled():
            raise _missing(topic, topics[topic])
        try:
            task.result()
        except MetadataTimeoutError as error:  # max_block_ms is shorter
            raise _missing(topic, topics[topic]) from error


def _missing(topic: str, setting: str) -> ConfigError:
    return ConfigError(
        f"{setting}: topic {topic!r} is not in the cluster's metadata, and the cluster did not "
        "create it automatically: create it before the processor starts"
    )
