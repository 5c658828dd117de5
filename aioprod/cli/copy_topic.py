"""Copies one topic exactly once.

Each transaction on the target contains records and, as committed offsets of a group, the position
in the source after them: both take effect, or neither. The offsets are stored under the target's
partitions: a cluster refuses offsets of topics that it does not have, and the progress is deleted
with the target topic. The transactional id and the group id are the same text, made from the source
cluster, the topic and the target topic: a second copy of the same topic fences the first, even if
it copies other topics, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aioprod.cli.client import CommandError, text_of
from aioprod.cli.consume import BEGINNING, Start, start_offsets
from aioprod.cli.copy_plan import TopicPair, check_partitions
from aioprod.logs import Logger, get_logger

if TYPE_CHECKING:
    from aioprod import Consumer, Deliveries, Producer
    from aioprod.admin import Admin
    from aioprod.types import ConsumerRecord, OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

_AT_ONCE = 5_000
_LOOK_MS = 500
_MORE_MS = 50
_TRANSACTION_S = 1.0
_CLOSE_LIMIT_MS = 2_000
_NEW_PARTITIONS_EACH_S = 30.0
# A group without members loses each offset that was committed longer ago than
# offsets.retention.minutes, a week by default.
_COMMIT_EACH_S = 3_600.0


class _SentPositions(NamedTuple):
    """The positions in a transaction.

    Attributes:
        positions: in the source, of all partitions.
        everything: whether unchanged positions were sent, too.
    """

    positions: dict[TopicPartition, int]
    everything: bool


class TopicCopy:
    """The copy of a topic.

    Args:
        pair: the topic and its copy.
        reading: settings of the consumer.
        writing: settings of the producer.
        target: the admin client of the target cluster.
        options: the command's arguments.

    Attributes:
        records, data_bytes: the number of records in committed transactions, and the bytes of their
            keys and values.
        lag: the number of offsets that are left, according to the last fetches; None before them.
    """

    records: int
    data_bytes: int

    def __init__(
        self,
        pair: TopicPair,
        reading: Mapping[str, object],
        writing: Mapping[str, object],
        target: Admin,
        options: argparse.Namespace,
    ) -> None:
        self.pair = pair
        self.records = self.data_bytes = 0
        self.lag: int | None = None
        self._target = target
        self._start: Start | None = options.start
        self._once: bool = options.once
        self._skip_deleted: bool = options.skip_deleted
        self._most: int = options.transaction_records
        self._consumer, self._producer = self._clients(reading, writing)
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = self._looked_at = time.monotonic()
        self._epochs: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    def _clients(
        self, reading: Mapping[str, object], writing: Mapping[str, object]
    ) -> tuple[Consumer, Producer]:
        from aioprod import Consumer, Producer

        own = {"auto_offset_reset": "none", "enable_auto_commit": False}
        member = ("group_id", "group_instance_id")
        settings = {name: value for name, value in reading.items() if name not in member}
        return (
            Consumer.from_config({**settings, **own, "allow_auto_create_topics": False}),
            Producer.from_config({**writing, "transactional_id": self.pair.identity}),
        )

    async def run(self) -> None:
        """Copy until cancelled, or up to the current end offsets.

        Raises:
            CommandError: if it can't continue. A new run continues after the last commit.
        """
        from aioprod.errors import BrokerError, KafkaError

        try:
            await self._producer.start()  # fences an older copy, and ends its transaction
            try:
                await self._consumer.start()
                await self._copy()
            finally:
                await self._consumer.close(_CLOSE_LIMIT_MS)
        except KafkaError as error:
            if isinstance(error, BrokerError) and await self._is_fenced():
                raise CommandError(
                    f"{self.pair.topic}: another copy to {self.pair.to_topic} was started, or a "
                    "transaction took longer than transaction.timeout.ms; this copy ends"
                ) from None
            raise CommandError(f"{self.pair.topic}: {text_of(error)}") from error
        finally:
            await self._producer.close(_CLOSE_LIMIT_MS)

    async def _is_fenced(self) -> bool:
        """Return whether the broker refused a request because a newer copy was started: then any
        request with this copy's epoch is refused.
        """
        from aioprod.errors import KafkaError, ProducerFencedError

        try:
            await self._producer.begin_transaction()
        except ProducerFencedError:
            return True
        except KafkaError:
            pass
        return False

    async def _copy(self) -> None:
        await self._add_partitions(self._start)
        self._ends = await self._consumer.end_offsets(self._committed)
        while not (self._once and await self._is_at(self._ends)):
            self.lag = sum_of(list(map(self._lag, self._committed)))
            records = await self._read(min(_AT_ONCE, self._most), _LOOK_MS)
            if records:
                await self._copy_transaction(records)
            elif time.monotonic() - self._committed_at >= _COMMIT_EACH_S:
                await self._commit_positions()
            if not self._once and time.monotonic() - self._looked_at >= _NEW_PARTITIONS_EACH_S:
                await self._add_partitions(Start(BEGINNING))
        if await self._positions() != self._committed:  # after the last transaction markers
            await self._commit_positions()
        self.lag = sum_of(list(map(self._lag, self._committed)))

    def _lag(self, partition: TopicPartition) -> int | None:
        known = self._consumer.lag(partition)
        if known is None and partition in self._ends:  # not fetched yet
            return max(0, self._ends[partition] - self._committed[partition])
        return known

    async def _is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Pause partitions that are copied up to their ends; return whether all are."""
        positions = await self._positions()
        done = [partition for partition, end in ends.items() if positions[partition] >= end]
        self._consumer.pause(*done)
        return len(done) == len(ends)

    # -- where to begin ----------------------------------------------------------------------------

    async def _add_partitions(self, start: Start | None) -> None:
        """Begin to copy the partitions that are new since the last check."""
        from aioprod.types import OffsetAndMetadata, TopicPartition

        self._looked_at = time.monotonic()
        present = await self._consumer.partitions_for_topic(self.pair.topic)
        new = [
            partition
            for number in sorted(present)
            if (partition := TopicPartition(self.pair.topic, number)) not in self._committed
        ]
        if not new:
            return
        described = await self._target.describe_topics(self.pair.to_topic)
        check_partitions(
            self.pair.topic, len(present), self.pair.to_topic, len(described.partitions)
        )
        places = await self._progress(new)
        without = [partition for partition in new if partition not in places]
        if without:
            if start is None:
                await self._check_empty(without)
            found = await start_offsets(self._consumer, without, start or Start(BEGINNING))
            places |= {partition: OffsetAndMetadata(offset) for partition, offset in found.items()}
        self._consumer.assign([*self._committed, *new])
        for partition, place in places.items():
            self._consumer.seek(partition, place)
        # Commit before the first record: a copy that is killed in its first transaction leaves
        # offsets in the target, and without progress it would be refused.
        await self._commit_positions()

    async def _progress(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored position of each partition that has one."""
        stored = await self._target.list_consumer_group_offsets(
            self.pair.identity, list(map(self._copied, partitions)), require_stable=True
        )
        stored.check()
        places: dict[TopicPartition, OffsetAndMetadata] = {}
        begins = await self._consumer.beginning_offsets(partitions)
        for partition in partitions:
            place = stored[self._copied(partition)]
            if place is None:
                continue
            if place.metadata != self.pair.topic_id:
                raise CommandError(
                    f"topic {partition.topic} was deleted and created again since it was copied to "
                    f"{self.pair.to_topic}; to copy the new one from its beginning, delete the "
                    f"progress with aioprod groups delete {self.pair.identity}, and give --from"
                )
            if place.offset < begins[partition]:
                self._lost(partition, place.offset, begins[partition])
                place = place._replace(offset=begins[partition], leader_epoch=-1)
            places[partition] = place
        return places

    async def _check_empty(self, partitions: Sequence[TopicPartition]) -> None:
        from aioprod.admin import OffsetSpec

        copied = list(map(self._copied, partitions))
        found = await self._target.list_offsets(dict.fromkeys(copied, OffsetSpec.LATEST))
        for partition, place in found.check().items():
            if place.offset > 0:
                raise CommandError(
                    f"partition {partition.partition} of topic {partition.topic} in the target "
                    f"has records, but {self.pair.identity} has no progress for it (a group loses "
                    "its progress after offsets.retention.minutes): give --from to say where to "
                    f"begin in {self.pair.topic}"
                )

    # -- one transaction ---------------------------------------------------------------------------

    async def _copy_transaction(self, records: Sequence[ConsumerRecord]) -> None:
        """Copy these records, and further ones that arrive within a second."""
        ends_at = time.monotonic() + _TRANSACTION_S
        sent: list[Deliveries] = []
        count = size = 0
        async with self._producer.transaction():
            while records:
                sent.append(await self._send(records))
                count += len(records)
                size += sum(len(each.key or b"") + len(each.value or b"") for each in records)
                if count >= self._most or time.monotonic() >= ends_at:
                    break
                records = await self._read(min(_AT_ONCE, self._most - count), _MORE_MS)
            await self._producer.flush()
            for deliveries in sent:
                for error in deliveries.exceptions().values():
                    raise error
            sent_positions = await self._send_positions()
        self._note_commit(sent_positions)
        self.records += count
        self.data_bytes += size

    async def _read(self, most: int, timeout_ms: float) -> Sequence[ConsumerRecord]:
        from aioprod.errors import OffsetOutOfRangeError

        try:
            return await self._consumer.getmany(most, timeout_ms)
        except OffsetOutOfRangeError as error:
            partition = error.topic_partition
            begin = (await self._consumer.beginning_offsets([partition]))[partition]
            if error.offset >= begin:
                raise
            self._lost(partition, error.offset, begin)
            self._consumer.seek(partition, begin)
            return ()

    async def _send(self, records: Sequence[ConsumerRecord]) -> Deliveries:
        from aioprod.types import ProducerRecord, TopicPartition

        to_topic = self.pair.to_topic
        deliveries = await self._producer.send_many(
            to_topic,
            [
                ProducerRecord(
                    to_topic,
                    each.value,
                    each.key,
                    each.partition,
                    each.timestamp,
                    each.headers,
                )
                for each in records
            ],
        )
        for each in records:
            self._epochs[TopicPartition(each.topic, each.partition)] = each.leader_epoch
        return deliveries

    async def _commit_positions(self) -> None:
        async with self._producer.transaction():
            sent_positions = await self._send_positions()
        self._note_commit(sent_positions)

    async def _send_positions(self) -> _SentPositions:
        """Add the changed positions to the transaction, and all of them once an hour."""
        from aioprod.types import OffsetAndMetadata

        positions = await self._positions()
        everything = time.monotonic() - self._committed_at >= _COMMIT_EACH_S
        await self._producer.send_offsets_to_transaction(
            {
                self._copied(partition): OffsetAndMetadata(
                    offset, self.pair.topic_id, self._epochs.get(partition, -1)
                )
                for partition, offset in positions.items()
                if everything or self._committed.get(partition) != offset
            },
            self.pair.identity,
        )
        return _SentPositions(positions, everything)

    def _note_commit(self, sent: _SentPositions) -> None:
        self._committed = sent.positions
        if sent.everything:
            self._committed_at = time.monotonic()

    async def _positions(self) -> dict[TopicPartition, int]:
        return {
            partition: await self._consumer.position(partition)
            for partition in self._consumer.assignment()
        }

    def _copied(self, partition: TopicPartition) -> TopicPartition:
        return partition._replace(topic=self.pair.to_topic)

    def _lost(self, partition: TopicPartition, offset: int, begin: int) -> None:
        """Log that the copy lacks records, or raise CommandError without --skip-deleted."""
        gap = (
            f"{partition.topic}-{partition.partition}: offsets {offset} to {begin - 1} were "
            "deleted before they were copied"
        )
        if not self._skip_deleted:
            raise CommandError(f"{gap}; give --skip-deleted to continue at {begin}")
        log.warning("%s; continuing at %d", gap, begin)


def sum_of(lags: Sequence[int | None]) -> int | None:
    """Return the sum; None if one is unknown."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if len(known) == len(lags) else None
