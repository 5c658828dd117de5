"""Exactly once in the database: the guarantee of a processor with an inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
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
from aioprod.processing.records import AnyHandler, Record
from aioprod.processing.scheduling import Item

log: Logger = get_logger(__name__)

_RETRY_S = 0.2


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

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take over partitions in the database, and continue at its positions.

        Raises:
            KafkaError: if the database or the brokers fail.
        """
        if not partitions:
            return
        await self._inbox._open(self._connections)
        if not self._admin_started:
            await self._admin.start()
            self._admin_started = True
        described = (await self._admin.describe_topics({each.topic for each in partitions})).check()
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        ends = (await self._admin.list_offsets(latest)).check()
        for partition in partitions:
            found = described[partition.topic].topic_id
            topic_id = "" if found is None else str(found)
            try:
                position, epoch = await self._inbox._take_over(self._group_id, partition, topic_id)
            except InboxError:
                raise
            except Exception as error:
                raise InboxError(
                    f"the inbox can't take over {partition.topic}-{partition.partition}: {error}; "
                    "are its tables there (aioprod.processing.inbox.ddl)?"
                ) from error
            self._epochs[partition] = epoch
            if position > ends[partition].offset:
                raise InboxError(
                    f"{partition.topic}-{partition.partition} ends at offset "
                    f"{ends[partition].offset}, and the database's position is {position}: the "
                    "topic has lost records, so new ones would count as done; set the position in "
                    "the table aioprod_inbox"
                )
            if position != NO_POSITION:
                self._consumer.seek(partition, position)

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
                        await self._stop(InboxError(f"the database fails: {error}"))
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
            if self._admin_started:
                await self._admin.close()
        finally:
            await self._inbox._close()
