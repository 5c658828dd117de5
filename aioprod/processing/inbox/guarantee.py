"""Exactly once in the database: the guarantee of a processor with an inbox."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from typing import Any

from aioprod import (
    Consumer,
    ConsumerRecord,
    KafkaError,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from aioprod.admin import Admin, OffsetSpec
from aioprod.logs import Logger, get_logger
from aioprod.processing.guarantees import AtLeastOnce, send_all
from aioprod.processing.inbox.errors import InboxError
from aioprod.processing.inbox.inbox import Ended, Fenced, Inbox, Unavailable
from aioprod.processing.inbox.schema import NO_POSITION
from aioprod.processing.observers import ProcessorMetrics
from aioprod.processing.partitions import PartitionProgress
from aioprod.processing.records import AnyHandler, Record
from aioprod.processing.scheduling import Item
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

_RETRY_S = 0.2
_WAITS = "its position can't be read, because the database fails"


def _failing(error: BaseException) -> InboxError:
    return InboxError(f"the database fails: {error}")


def _check_position(partition: TopicPartition, position: int, end: int) -> None:
    """Raise InboxError if the position is after the end of the partition."""
    if position > end:
        raise InboxError(
            f"{partition.topic}-{partition.partition} ends at offset {end}, and the database's "
            f"position is {position}: the topic has lost records, so new ones would count as done; "
            "set the position in the table aioprod_inbox"
        )


async def _nothing(records: object) -> None:
    """Stand for the handler of a record that is not handled again."""


class ExactlyOnceInDatabase(AtLeastOnce):
    """The handler runs in a transaction of the database, which also has the position. Positions are
    committed to the group later: they serve the lag, and are not read at an assignment if the
    database has one.

    Args:
        inbox: the database.
        admin: requests the ids of topics.
        group_id: the group.
        connections: the maximum number of transactions at a time.
        failing_limit_s: how long the database may fail before the processor stops.
        on_failure: called with the error if the processor can't continue.
    """

    sends_ahead = False

    def __init__(
        self,
        clients: tuple[Consumer, Producer, Admin],
        metrics: ProcessorMetrics,
        interval_s: float,
        inbox: Inbox,
        group_id: str,
        connections: int,
        failing_limit_s: float,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__(clients[0], clients[1], metrics, interval_s)
        self._admin = clients[2]
        self._admin_started = False
        self._inbox = inbox
        self._group_id = group_id
        self._connections = connections
        self._failing_limit_s = failing_limit_s
        self._on_failure = on_failure
        self._epochs: dict[TopicPartition, int] = {}
        self._waiting: frozenset[TopicPartition] = frozenset()  # assigned, not taken over
        self._retries: asyncio.Task[None] | None = None
        self._taken: dict[TopicPartition, int] | None = None  # positions, after a retry

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take over partitions in the database, and continue at its positions. If the database
        fails, they are paused, and taken over later.

        Raises:
            KafkaError: if the database can't be used at the first assignment, or the brokers fail.
        """
        await self._end_retries()
        self._waiting = self._still_assigned() | frozenset(partitions)
        if self._waiting and not self._admin_started:
            await self._admin.start()
            self._admin_started = True
        try:
            self._continue_at(await self._take_over())
        except Unavailable as failed:
            self._consumer.pause(*self._waiting, reason=_WAITS)
            self._retries = start_task(
                self._retry(failed.args[0]), name="aioprod-inbox-take-over", context=Context()
            )

    def _still_assigned(self) -> frozenset[TopicPartition]:
        return self._waiting & self._consumer.assignment()

    async def _end_retries(self) -> None:
        task, self._retries = self._retries, None
        self._taken = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _retry(self, error: BaseException) -> None:
        """Take over the partitions that wait for the database. Polls continue meanwhile, so that
        partitions that the group has given to another member are left to it.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._failing_limit_s
        while True:
            if now() >= deadline:
                self._on_failure(_failing(error))
                return
            log.warning("the database fails, retrying to take over partitions: %s", error)
            await asyncio.sleep(_RETRY_S)
            self._waiting = self._still_assigned()
            try:
                self._taken = await self._take_over()
                return self._consumer.wakeup()
            except Unavailable as failed:
                error = failed.args[0]
            except Exception as failed:
                self._on_failure(failed)
                return

    async def _take_over(self) -> dict[TopicPartition, int]:
        """Take over the partitions that wait for it, and return their positions.

        Raises:
            Unavailable: if the database fails.
            KafkaError: if the database can't be used, the brokers fail, or a partition can't be
                read from its position.
        """
        # Even without partitions: a member that gets some later has a database that worked.
        await self._inbox._open(self._connections)
        waiting = sorted(self._waiting)
        positions: dict[TopicPartition, int] = {}
        if not waiting:
            return positions
        described = (await self._admin.describe_topics({each.topic for each in waiting})).check()
        for partition in waiting:
            if partition not in self._still_assigned():
                continue
            found = described[partition.topic].topic_id
            topic_id = "" if found is None else str(found)
            try:
                taken = await self._inbox._take_over(self._group_id, partition, topic_id)
            except Unavailable:
                raise
            except Exception as error:
                raise InboxError(
                    f"the inbox can't take over {partition.topic}-{partition.partition}: {error}; "
                    "are its tables there (aioprod.processing.inbox.ddl)?"
                ) from error
            positions[partition], self._epochs[partition] = taken
        # After the positions: until then the former owner commits, and may commit new records.
        latest = dict.fromkeys(positions, OffsetSpec.LATEST)
        ends = (await self._admin.list_offsets(latest)).check()
        for partition, position in positions.items():
            _check_position(partition, position, ends[partition].offset)
        return positions

    def _continue_at(self, positions: dict[TopicPartition, int]) -> None:
        """Read the partitions that waited; not called during a call of the consumer by another
        task.
        """
        for partition in self._still_assigned():
            if positions[partition] != NO_POSITION:
                self._consumer.seek(partition, positions[partition])
        self._waiting = frozenset()

    def commit_if_due(self, now: float, partitions: Collection[PartitionProgress]) -> None:
        """See :class:`Guarantee`. Also continue at the positions that were read by a retry."""
        taken, self._taken = self._taken, None
        if taken is not None:
            self._continue_at(taken)
        super().commit_if_due(now, partitions)

    def backlog(self, partition: PartitionProgress) -> int:
        """See :class:`Guarantee`. A partition that waits for the database has no room."""
        if partition.tp in self._waiting:
            return sys.maxsize
        return super().backlog(partition)

    def reason_to_wait(self, partition: PartitionProgress) -> str:
        """See :class:`Guarantee`."""
        return _WAITS if partition.tp in self._waiting else super().reason_to_wait(partition)

    def went_back(self, partition: TopicPartition) -> None:
        """Stop: the positions in the database are those of another topic, or of another log."""
        raise InboxError(
            f"{partition.topic}-{partition.partition} has lower offsets than before: the topic was "
            "created again, or lost records; start the processor again, which compares the topic"
        )

    async def deliver(self, items: Sequence[Item], outputs: Sequence[ProducerRecord]) -> None:
        """Send a dead letter, and move the position in the database past its record."""
        if outputs:
            await send_all(self._producer, outputs)
            await self.calls(_nothing)([item.record for item in items])
        self.done(items)

    def calls(self, handler: AnyHandler) -> AnyHandler:
        """Return a function that calls the handler in a transaction."""

        async def call(argument: Any) -> None:
            records = argument if isinstance(argument, list) else [argument]
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._failing_limit_s
            while True:
                try:
                    return await self._transact(handler, records, argument is records)
                except Unavailable as failed:
                    error = failed.args[0]
                    if loop.time() >= deadline:
                        await self._stop(_failing(error))
                    log.warning("the database fails, retrying: %s", error)
                    await asyncio.sleep(_RETRY_S)
                except Fenced:
                    place = f"{records[0].topic}-{records[0].partition}"
                    log.warning("another member has taken over %s", place)
                    # This member learns of it by the group, which cancels the call.
                    await asyncio.sleep(self._failing_limit_s)
                    await self._stop(
                        InboxError(f"another member of {self._group_id!r} has taken over {place}")
                    )
                except Ended:
                    await self._stop(
                        InboxError(
                            "the handler has committed or rolled back the transaction of "
                            "inbox.connection, which also has the position: leave this to the "
                            "processor"
                        )
                    )

        return call

    async def _transact(
        self,
        handler: AnyHandler,
        records: Sequence[Record[Any, Any] | ConsumerRecord],
        of_batches: bool,
    ) -> None:
        partition = TopicPartition(records[0].topic, records[0].partition)
        epoch = self._epochs[partition]
        async with self._inbox._transaction(self._group_id, partition, epoch) as step:
            new = [record for record in records if record.offset >= step.position]
            if not new:
                return
            if await handler(new if of_batches else new[0]) is not None:
                raise TypeError(
                    "the handler must return None with an inbox: records that it returns would not "
                    "be in the transaction; add them to an outbox (aioprod.outbox)"
                )
            step.position = new[-1].offset + 1

    async def _stop(self, error: KafkaError) -> None:
        """End the processor, and this call as if it was cancelled: the record has not failed, and
        the shutdown need not wait for the call.
        """
        self._on_failure(error)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Disconnect."""
        try:
            await self._end_retries()
            if self._admin_started:
                await self._admin.close()
        finally:
            await self._inbox._close()
