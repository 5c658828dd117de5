"""Reads the dead letters of a topic, and the records of share groups that they stand for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Unpack, cast

from aioprod import (
    AdminSettings,
    ClientSettings,
    ConfigError,
    Consumer,
    ConsumerSettings,
    OffsetOutOfRangeError,
    TopicPartition,
)
from aioprod.admin import Admin
from aioprod.closing import close_in_turn
from aioprod.processing.dead_letters.letters import DeadLetter
from aioprod.processing.dead_letters.progress import Progress, group_of, read_progress
from aioprod.processing.dead_letters.selection import SELECTED, Selection
from aioprod.types import ConsumerRecord

_CLOSE_MS = 2_000
_LOOK_MS = 500
_UNKNOWN_TOPIC_LIMIT_S = 1.0
_UNKNOWN_TOPIC_PAUSE_S = 0.1
_ORIGINAL_MS = 10_000
_AT_ONCE = 500
_MOST_BYTES = 4 << 20
_ORIGINAL_BYTES = 64 << 10


def make_consumer(servers: str, settings: Mapping[str, Any], isolation: str) -> Consumer:
    """Create a consumer without a group."""
    given: dict[str, Any] = {
        **settings,
        "isolation_level": isolation,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
    }
    return Consumer(bootstrap_servers=servers, **cast("ConsumerSettings", given))


class SingleRecords:
    """Reads records one by one."""

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        # Share groups read uncommitted records, too, unless they are set otherwise.
        small = {**settings, "max_partition_fetch_bytes": _ORIGINAL_BYTES}
        self._consumer = make_consumer(servers, small, "read_uncommitted")
        self._started = False

    async def complete(self, letter: DeadLetter) -> DeadLetter:
        """Return a share group's dead letter with the content of its record, others unchanged."""
        if not letter.needs_original:
            return letter
        assert letter.original_topic is not None
        assert letter.original_partition is not None
        assert letter.original_offset is not None
        partition = TopicPartition(letter.original_topic, letter.original_partition)
        return letter.with_original(await self.find(partition, letter.original_offset))

    async def find(
        self, partition: TopicPartition, offset: int
    ) -> ConsumerRecord[bytes | None, bytes | None] | None:
        """Return a record; None if it is deleted."""
        consumer = self._consumer
        if not self._started:
            await consumer.start()
            self._started = True
        if partition.partition not in await consumer.partitions_for_topic(partition.topic):
            return None
        if consumer.assignment() != {partition}:
            consumer.assign([partition])
        if await self._begin(partition) > offset or await self._end(partition) <= offset:
            return None
        consumer.seek(partition, offset)
        try:
            found = await consumer.getmany(1, _ORIGINAL_MS)
        except OffsetOutOfRangeError:
            return None
        return found[0] if found and found[0].offset == offset else None

    async def _begin(self, partition: TopicPartition) -> int:
        return (await self._consumer.beginning_offsets([partition]))[partition]

    async def _end(self, partition: TopicPartition) -> int:
        return (await self._consumer.end_offsets([partition]))[partition]

    async def close(self) -> None:
        """Close the consumer."""
        if self._started:
            await self._consumer.close(_CLOSE_MS)


class LetterReader:
    """Reads all partitions of a dead-letter topic in the order of their offsets, without a group.

    Args:
        topic: the topic.
        servers, settings: those of the clients.

    Attributes:
        begins: the oldest offset of each partition at the start.
        ends: the end offset of each partition at the start, before transactions that are open.
        position: for each partition the offset after the last dead letter that was returned.
    """

    def __init__(self, topic: str, servers: str, settings: Mapping[str, Any]) -> None:
        self._topic = topic
        self._consumer = make_consumer(servers, settings, "read_committed")
        self._originals = SingleRecords(servers, settings)
        self._waiting: deque[ConsumerRecord[bytes | None, bytes | None]] = deque()
        self._follows = False
        self.begins: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.position: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect, and read the partitions' offsets.

        Raises:
            ConfigError: if the topic does not exist.
        """
        consumer = self._consumer
        await consumer.start()
        numbers = await self.partitions_of(self._topic)
        if not numbers:
            raise ConfigError(f"topic {self._topic!r} does not exist")
        partitions = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        self.begins = await consumer.beginning_offsets(partitions)
        self.ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        self.seek(self.begins)

    async def partitions_of(self, topic: str) -> frozenset[int]:
        """Return the partitions of any topic; none if it does not exist. Brokers may not know a new
        topic yet, so retry for a second. They do not create it.
        """
        deadline = asyncio.get_running_loop().time() + _UNKNOWN_TOPIC_LIMIT_S
        while not (numbers := await self._consumer.partitions_for_topic(topic)):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_UNKNOWN_TOPIC_PAUSE_S)
        return numbers

    def seek(self, positions: Mapping[TopicPartition, int], *, follow: bool = False) -> None:
        """Continue at these offsets, or at the oldest ones if they are deleted.

        Args:
            follow: read also what is written after the start.
        """
        self._follows = follow
        for partition, offset in positions.items():
            self.position[partition] = max(offset, self.begins[partition])
            self._consumer.seek(partition, self.position[partition])

    async def read(self, most: int) -> list[DeadLetter]:
        """Return the next dead letters, up to a number and to 4 MiB; none after half a second, or
        at the end.
        """
        if not self._waiting and not await self.is_at_end():
            await self._fetch(most)
        letters: list[DeadLetter] = []
        size = 0
        while self._waiting and len(letters) < most and size < _MOST_BYTES:
            record = self._waiting.popleft()
            letters.append(await self._originals.complete(DeadLetter.of(record)))
            size += len(record.key or b"") + len(record.value or b"")
            self.position[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return letters

    async def _fetch(self, most: int) -> None:
        try:
            records = await self._consumer.getmany(most, _LOOK_MS)
        except OffsetOutOfRangeError as error:  # they were deleted meanwhile
            partition = error.topic_partition
            begin = (await self._consumer.beginning_offsets([partition]))[partition]
            if error.offset >= begin:
                raise
            self._consumer.seek(partition, begin)
            return
        self._waiting.extend(
            record
            for record in records
            if self._follows
            or record.offset < self.ends[TopicPartition(record.topic, record.partition)]
        )

    async def is_at_end(self) -> bool:
        """Return whether all records up to the ends were returned; never if it follows."""
        if self._follows or self._waiting:
            return False
        done = [
            partition
            for partition, end in self.ends.items()
            if await self._consumer.position(partition) >= end
        ]
        self._consumer.pause(*done)
        if len(done) < len(self.ends):
            return False
        for partition, end in self.ends.items():  # markers of transactions are not returned
            self.position[partition] = max(self.position[partition], end)
        return True

    async def close(self) -> None:
        """Close the consumers."""

        async def close_consumer() -> None:
            await self._consumer.close(_CLOSE_MS)

        await close_in_turn(close_consumer, self._originals.close)


async def read_dead_letters(
    topic: str,
    bootstrap_servers: str = "localhost:9092",
    *,
    selection: Selection | None = None,
    pending: bool = False,
    group_id: str | None = None,
    **settings: Unpack[ClientSettings],
) -> AsyncGenerator[DeadLetter, None]:
    """Iterate over the dead letters of a topic, up to its end at the start. Nothing is committed.

    Args:
        topic: the dead-letter topic.
        bootstrap_servers: as in :class:`aioprod.Consumer`.
        selection: those to read; by default all.
        pending: only those that a redrive has neither sent again nor dropped. If the group has no
            offset, because it never had one or brokers have deleted it after a week, all are
            pending.
        group_id: with ``pending``, the group of the redrives, as in :class:`Redrive`.
        settings: settings that all clients share, such as security.

    Raises:
        ConfigError: if the topic does not exist, or an argument or a setting is invalid.
        KafkaError: if brokers refuse, or none responds.
    """
    chosen = Selection(max_redrives=None) if selection is None else selection
    if group_id is not None and not pending:
        raise ConfigError(f"group_id={group_id!r}: needs pending=True (--pending)")
    group_id = group_of(topic, group_id)
    reader = LetterReader(topic, bootstrap_servers, settings)
    progress: Mapping[TopicPartition, Progress] = {}
    try:
        await reader.start()
        if pending:
            async with Admin(bootstrap_servers, **cast("AdminSettings", settings)) as admin:
                progress = await read_progress(admin, group_id, topic, reader.ends, stable=False)
        while not await reader.is_at_end():
            for letter in await reader.read(_AT_ONCE):
                is_done = pending and progress[letter.place].is_done(letter)
                if chosen.verdict(letter) == SELECTED and not is_done:
                    yield letter
    finally:
        await reader.close()


async def read_dead_letter(
    topic: str, partition: int, offset: int, bootstrap_servers: str, **settings: Any
) -> DeadLetter | None:
    """Return one dead letter; None if there is no record at this offset.

    Raises:
        KafkaError: if brokers refuse, or none responds.
    """
    records = SingleRecords(bootstrap_servers, settings)
    try:
        found = await records.find(TopicPartition(topic, partition), offset)
        return None if found is None else await records.complete(DeadLetter.of(found))
    finally:
        await records.close()
