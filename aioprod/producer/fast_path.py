"""The fast path of ``send``: a record of bytes for a batch that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioprod.native import accelerated
from aioprod.producer.batch import FULL, ProducerBatch
from aioprod.producer.delivery import Delivery
from aioprod.producer.partition_queue import PartitionQueue, Topic
from aioprod.producer.partitioner import key_hash
from aioprod.producer.transactions.gate import SendStatus
from aioprod.protocol.record_buffer import (
    KEYED,
    KEYLESS,
    KEYLESS_OVERHEAD,
    RECORD_OVERHEAD,
    WITH_HEADERS,
)
from aioprod.protocol.record_encoder import NO_HEADERS

FAR_MS = 2**62  # timestamps are below it, and not below its negative; also in fast_path.c
TakeFirst = Callable[
    [PartitionQueue, bytes | None, bytes, bytes, int, float, bool], Delivery | None
]


@accelerated
class FastPath:
    """Puts records into batches if no call has to wait.

    Args:
        topics: the topics whose records need not wait, by name.
        clock: returns seconds since 1970.
        check: called before the first record of each millisecond, and before each record that has
            a timestamp; raises if the call comes from another event loop.
        status: asked for each record whether it may be appended; None if it always may.
        encode_headers: encodes a record's headers, if it has any.
        take_first: called with a record for a partition without an open batch that has room:
            partition, key, value, encoded headers, an upper bound on the record's bytes, the time
            in seconds since 1970, and whether another partition may be chosen. Returns None if the
            record may have to wait.
    """

    __slots__ = ("_check", "_clock", "_encode_headers", "_status", "_take_first", "_topics")

    def __init__(
        self,
        topics: dict[str, Topic],
        clock: Callable[[], float],
        check: Callable[[], None],
        status: SendStatus | None,
        encode_headers: Callable[[Any], bytes],
        take_first: TakeFirst,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._check = check
        self._status = status
        self._encode_headers = encode_headers
        self._take_first = take_first

    def append(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any, /
    ) -> Delivery | None:
        """Put a record into a batch, of the key's partition by default. Return None if it may have
        to wait, is invalid (the slow path raises), or would open a batch with a timestamp.

        Raises:
            KafkaError: if the producer accepts no records.
        """
        if type(value) is not bytes or not (key is None or type(key) is bytes):
            return None
        try:
            block = self._encode_headers(headers) if headers else NO_HEADERS
        except (TypeError, ValueError):
            return None
        now: float | None = None  # few calls from here on: they take half of the time
        if timestamp_ms is None:
            clock = self._clock  # called as a method it takes longer
            now = clock()
        elif type(timestamp_ms) is not int or not -FAR_MS <= timestamp_ms < FAR_MS:
            return None
        try:
            known = self._topics[topic]
        except (KeyError, TypeError):
            return None
        if partition is None:
            number = known.sticky.current if key is None else key_hash(key) % known.count
        elif type(partition) is not int or not 0 <= (number := partition) < known.count:
            return None
        queue = known.queues[number]
        kind, size = KEYLESS, len(value) + KEYLESS_OVERHEAD
        if key is not None:
            kind, size = KEYED, len(value) + len(key) + RECORD_OVERHEAD
        if block is not NO_HEADERS:
            kind, size = kind | WITH_HEADERS, size + len(block)
        batch = queue.open
        if (
            batch is None
            or (writer := batch.writer).kind != kind
            or writer.size + size > batch.open_until
        ) and not _makes_room(batch, kind, size):
            return self._open_with(queue, key, value, block, size, now, partition)
        assert batch is not None
        if not (self._status is None or self._status.may_append):
            return None
        if now is None:
            return self._append_at(batch, key, value, block, timestamp_ms)
        if now >= writer.until_s:
            self._check()  # once a millisecond costs nothing
            writer.at(now)
        if key is not None:
            writer.keys.append(key)
        if block is not NO_HEADERS:
            writer.headers.append(block)
        writer.values.append(value)
        writer.size += size
        delivery = Delivery()
        delivery._batch, delivery._index = batch, (index := writer.count)
        writer.count = index + 1
        return delivery

    def _open_with(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes,
        block: bytes,
        size: int,
        now: float | None,
        partition: int | None,
    ) -> Delivery | None:
        """Have a batch opened with a record, unless it has a timestamp."""
        sticky = key is None and partition is None
        first = (queue, key, value, block, size)
        return None if now is None else self._take_first(*first, now, sticky)

    def _append_at(
        self, batch: ProducerBatch, key: bytes | None, value: bytes, block: bytes, timestamp_ms: int
    ) -> Delivery:
        """Put a record with a timestamp into a batch that has room for it."""
        self._check()
        batch.writer.add(timestamp_ms, key, value, block)
        delivery = Delivery()
        delivery._batch, delivery._index = batch, batch.writer.count - 1
        return delivery

    def close(self) -> None:
        """Take no more records."""
        self._topics = {}


def _makes_room(batch: ProducerBatch | None, kind: int, size: int) -> bool:
    """Encode the batch's records, for a record of another kind or one that may not fit, and return
    whether it has room.
    """
    if batch is None:
        return False
    writer = batch.writer
    is_over = writer.size + size > batch.open_until
    writer.encode_pending()  # its size is exact now
    if is_over and writer.size + size > batch.open_until * FULL:
        return False
    writer.kind = kind
    return True
