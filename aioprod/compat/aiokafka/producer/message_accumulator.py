"""Batches that the application fills, as in ``aiokafka.producer.message_accumulator``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aioprod import ProducerRecord
from aioprod.header_names import encode_name
from aioprod.varints import varint_size

_BATCH_OVERHEAD = 61


class BatchRecordMetadata(NamedTuple):
    """The place of a record in a batch.

    Attributes:
        crc: always None.
        size: in bytes, before compression.
    """

    crc: int | None
    offset: int
    size: int
    timestamp: int


def _record_size(
    key: Any, value: Any, headers: Sequence[Any], offset: int, timestamp_delta: int
) -> int:
    size = 1 + varint_size(timestamp_delta) + varint_size(offset) + varint_size(len(headers))
    size += _sized(key) + _sized(value)
    for name, data in headers:
        size += _sized(encode_name(name)) + _sized(data)
    return varint_size(size) + size


def _sized(data: Any) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)


class BatchBuilder:
    """A batch for ``send_batch``, created by ``create_batch``.

    Args:
        batch_size: the maximum size in bytes; a batch with a single record may be larger.
        serialize: converts key and value to bytes.
    """

    def __init__(
        self, batch_size: int, serialize: Callable[[Any, Any], tuple[bytes | None, bytes | None]]
    ) -> None:
        self._batch_size = batch_size
        self._serialize = serialize
        self._records: list[ProducerRecord] = []
        self._size = _BATCH_OVERHEAD
        self._closed = False

    @property
    def records(self) -> list[ProducerRecord]:
        """The records, without their topic and partition."""
        return self._records

    def append(
        self,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Sequence[tuple[str, bytes]] | None = (),
    ) -> BatchRecordMetadata | None:
        """Add a record.

        Args:
            timestamp: milliseconds since 1970; now if None.

        Returns:
            Its place in the batch; None if the batch is full or closed.
        """
        if self._closed:
            return None
        key_bytes, value_bytes = self._serialize(key, value)
        for what, data in (("key", key_bytes), ("value", value_bytes)):
            if data is not None and not isinstance(data, bytes | bytearray | memoryview):
                raise TypeError(f"Unsupported type for {what}: {type(data)}")
        timestamp = int(time.time() * 1000) if timestamp is None else timestamp
        kept = tuple(headers or ())
        first = self._records[0].timestamp_ms if self._records else timestamp
        assert first is not None
        size = _record_size(key_bytes, value_bytes, kept, len(self._records), timestamp - first)
        if self._records and self._size + size > self._batch_size:
            self.close()
            return None
        record = ProducerRecord("", value_bytes, key_bytes, timestamp_ms=timestamp, headers=kept)
        self._records.append(record)
        self._size += size
        return BatchRecordMetadata(None, len(self._records) - 1, size, timestamp)

    def close(self) -> None:
        """Accept no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether the batch accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size in bytes, before compression."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self._records)
