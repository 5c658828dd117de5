"""Builds one batch of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from aioprod.codecs import Codec
from aioprod.protocol.record_batch import HEADER_SIZE, TRANSACTIONAL, join_batch
from aioprod.protocol.record_buffer import RecordBuffer
from aioprod.protocol.record_encoder import NO_HEADERS, encode_headers, estimate_upper_bound


class RecordBatchWriter(RecordBuffer):
    """Collects the records of one batch, and builds the batch."""

    compressed: bytes

    __slots__ = ()

    @classmethod
    def of_encoded(
        cls,
        body: bytes,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        timestamps: Sequence[int] | None,
    ) -> Self:
        """Return a writer with encoded records. No further records can be added.

        Args:
            body: the encoded records, with offset deltas from 0 on.
            count: number of records.
            base_timestamp, max_timestamp: the first and the largest timestamp, in milliseconds
                since 1970.
            timestamps: timestamp of each record; None if all have ``base_timestamp``.
        """
        writer = cls(base_timestamp)
        writer.count = count
        writer.max_timestamp = max_timestamp
        writer.timestamps = timestamps
        writer.take(body)
        return writer

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a record. Bytes-like data is copied.

        Args:
            timestamp: timestamp in milliseconds since 1970.

        Raises:
            TypeError: if key or value are not bytes.
            OverflowError: if the timestamp is too far from the base timestamp.
        """
        block = encode_headers(headers) if headers else NO_HEADERS
        self.add(timestamp, _as_bytes(key), _as_bytes(value), block)

    def body(self) -> bytes:
        """Return all records, encoded but not compressed."""
        return b"".join(self.pieces())

    def halves(self) -> list[RecordBatchWriter]:
        """Return two writers with about half of the records each, for a batch that is too large for
        its topic. It must have at least two records.
        """
        from aioprod.protocol.record_reader import read_records  # few producers need it

        records = read_records(self.build(), check_crc=False)
        first = RecordBatchWriter(records[0].timestamp)
        at = 0
        for record in records[:-1]:
            bound = estimate_upper_bound(record.key, record.value, record.headers) - HEADER_SIZE
            if at and first.size + bound > self.size // 2:
                break
            first.append(record.timestamp, record.key, record.value, record.headers)
            at += 1
        second = RecordBatchWriter(records[at].timestamp)
        for record in records[at:]:
            second.append(record.timestamp, record.key, record.value, record.headers)
        return [first, second]

    def build_in_place(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes | memoryview:
        """Return the batch as :meth:`build` does, but without a copy if the records are all in one
        block and not compressed. The returned view is valid until :meth:`release`.
        """
        if codec is Codec.NONE:
            attributes = TRANSACTIONAL if transactional else 0
            sealed = self.seal(attributes, producer_id, producer_epoch, base_sequence)
            if sealed is not None:
                return sealed
        return self.build(
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """Return the compressed batch with header and checksum. It can be built again with another
        sequence number.
        """
        if codec is Codec.NONE:
            body = self.pieces()
        else:
            if self.compressed is None:
                from aioprod.protocol.compression import compress  # the Compressor has loaded it

                self.compressed = compress(codec, self.body(), level)
            body = [self.compressed]
        count = self.count
        return join_batch(
            body,
            0,
            -1,
            codec | TRANSACTIONAL if transactional else codec,
            count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )


def _as_bytes(field: bytes | None) -> bytes | None:
    return field if field is None or type(field) is bytes else bytes(memoryview(field))
