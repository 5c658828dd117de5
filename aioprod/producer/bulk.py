"""Many records in one call: where they are plain values, whole stretches of them go into a batch at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import accumulate, islice
from typing import Any

from aioprod.errors import KafkaTimeoutError, SerializationError
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.delivery import Delivery, delivery_of
from aioprod.producer.intake import RecordIntake
from aioprod.producer.partition_queue import Topic
from aioprod.protocol.record_writer import KEYLESS, KEYLESS_OVERHEAD
from aioprod.types import ProducerRecord, TopicPartition

# So many are looked at together; an endless iterator is not read further ahead.
_CHUNK = 4096


class BulkIntake:
    """Takes records by the thousand.

    Args:
        intake: makes the delivery of a record that can't be taken.
        send: ``Producer.send``, for each record that is not a plain value.
        fast_topics: the topics whose plain records need nothing but room in the open batch.
        may_append: whether the producer takes records now.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        intake: RecordIntake,
        send: Callable[..., Awaitable[Delivery]],
        fast_topics: Callable[[], Mapping[str, Topic]],
        may_append: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._send = send
        self._fast_topics = fast_topics
        self._may_append = may_append
        self._clock = clock

    async def take(self, topic: str, records: Iterable[Any]) -> Deliveries:
        """Take records as ``Producer.send_many`` does; see there."""
        deliveries = Deliveries()
        waiting = iter(records)
        while chunk := list(islice(waiting, _CHUNK)):
            if isinstance(topic, str) and set(map(type, chunk)) == {bytes}:
                await self._take_values(topic, chunk, deliveries)
            else:
                for given in chunk:
                    deliveries.add(await self.take_one(topic, given))
        return deliveries

    async def _take_values(self, topic: str, values: list[bytes], deliveries: Deliveries) -> None:
        ends = list(accumulate(map(len, values)))
        at = 0
        while at < len(values):
            upto = self._append(topic, values, ends, at, deliveries)
            if upto == at:
                # No batch, or a full one: this way opens the next, waits for memory, and lets others have their turn.
                deliveries.add(await self.take_one(topic, values[at]))
                upto += 1
            at = upto

    def _append(self, topic: str, values: list[bytes], ends: list[int], at: int, deliveries: Deliveries) -> int:
        """Put as many values, from ``at`` on, into the open batch as fit; returns which one is next."""
        known = self._fast_topics().get(topic)
        batch = known.queues[known.sticky.current].open if known is not None else None
        if batch is None or batch.writer.kind != KEYLESS or not self._may_append():
            return at
        writer = batch.writer
        before = ends[at - 1] if at else 0
        room = batch.open_until - writer.size
        upto = bisect_right(range(len(values)), room, lo=at, key=lambda index: ends[index] - before + (index + 1 - at) * KEYLESS_OVERHEAD)
        if upto > at:
            now = self._clock()
            if now >= writer.until_s:
                writer.at(now)
            deliveries.add_stretch(batch, writer.count, upto - at)
            writer.values += values[at:upto]
            writer.size += ends[upto - 1] - before + (upto - at) * KEYLESS_OVERHEAD
            writer.count += upto - at
        return upto

    async def take_one(self, topic: str, given: Any) -> Delivery:
        """Take a record, or a value, as one of many: what is wrong with it is the error of its delivery."""
        record = given if isinstance(given, ProducerRecord) else ProducerRecord(topic, given)
        try:
            if record.topic != topic:
                raise SerializationError(f"a record for topic {record.topic!r} among those for {topic!r}")
            return await self._send(*record)
        except (SerializationError, KafkaTimeoutError) as error:
            # In a transaction it counts as lost: what can't be stored whole must not be committed.
            return delivery_of(self._intake.refused(TopicPartition(str(topic), -1), error), 0)
