"""Builds one batch of records: the producer's hot path.

A new record is only appended to lists. Many are encoded at once (see ``record_encoder``), when the
batch is full or is sent. Records with null values are encoded at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Self

from aioprod.protocol.compression import Codec, compress
from aioprod.protocol.record_batch import HEADER_SIZE, TRANSACTIONAL, build_batch
from aioprod.protocol.record_encoder import (
    NO_HEADERS,
    encode_headers,
    encode_record,
    encode_records,
    estimate_upper_bound,
)
from aioprod.protocol.record_reader import read_records

#: Bytes of a record without headers beside value and key, at most: length 3, attributes 1,
#: timestamp delta 3, offset delta 3, key and value length 3 each, header count 1. (Deltas and
#: lengths from 2^20 on take more; these few bytes do not matter in such records.)
RECORD_OVERHEAD: Final = 17
KEYLESS_OVERHEAD: Final = RECORD_OVERHEAD - 2
#: Kinds of records that are encoded together.
KEYLESS: Final = 0
KEYED: Final = 1
WITH_HEADERS: Final = 2
NOTHING: Final = -1
_INT64: Final = 1 << 63
# Up to this many records are faster encoded one by one.
_FEW: Final = 4


class RecordBatchWriter:
    """Takes the records of one batch and builds the batch.

    Attributes:
        base_timestamp: of the first record, in milliseconds since 1970.
        max_timestamp: of the newest record; ``base_timestamp`` before the first record.
        count: number of records; remains after :meth:`release`.
        size: bytes of all records, encoded but not compressed, without the batch's header: an upper
            bound, exact after :meth:`encode_pending`.
        values, keys, headers: records that are not encoded yet. ``keys`` has one for each value, or
            is empty if all are null; so have ``headers``, which are encoded. The producer's fast
            path appends to them, and updates ``count`` and ``size``.
        compressed: the records, if the batch is complete and compressed.
        kind: KEYLESS or KEYED, with the bit WITH_HEADERS if they have headers; NOTHING if there are
            no such records.
        timestamps: of each record that was passed to :meth:`of_encoded`; else None.
        key_sizes, value_sizes: bytes of the key and value of each encoded record, -1 for null.
            ``key_sizes`` is empty if all keys are null; both are, for :meth:`of_encoded`.
        until_s: the end of the current millisecond, in seconds since 1970. Before it, a record
            needs no call of :meth:`at`.
    """

    __slots__ = (
        "_encoded",
        "_encoded_count",
        "_encoded_size",
        "_run_starts",
        "_run_timestamps",
        "_timestamp",
        "base_timestamp",
        "compressed",
        "count",
        "headers",
        "key_sizes",
        "keys",
        "kind",
        "max_timestamp",
        "size",
        "timestamps",
        "until_s",
        "value_sizes",
        "values",
    )

    def __init__(self, base_timestamp: int) -> None:
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.count = 0
        self.size = 0
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.headers: list[bytes] = []
        self.kind = NOTHING
        self.compressed: bytes | None = None
        self.timestamps: Sequence[int] | None = None
        self.until_s = 0.0
        self.key_sizes: array[int] = array("i")
        self.value_sizes: array[int] = array("i")
        self._encoded: list[bytes] = []
        self._encoded_count = 0
        self._encoded_size = 0
        # Consecutive records often share their timestamp, so each run of them has one.
        self._timestamp = base_timestamp
        self._run_starts = [0]
        self._run_timestamps = [base_timestamp]

    @classmethod
    def of_encoded(
        cls,
        body: bytes,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        timestamps: Sequence[int] | None,
    ) -> Self:
        """Return a writer with encoded records; no others can be added.

        Args:
            body: the records, with offset deltas from 0.
            count: the number of records.
            base_timestamp, max_timestamp: of the first and the newest record, in milliseconds since
                1970.
            timestamps: of each record; None if all have ``base_timestamp``.
        """
        writer = cls(base_timestamp)
        writer.count = count
        writer.max_timestamp = max_timestamp
        writer.timestamps = timestamps
        writer._take(body)
        return writer

    def at(self, now_s: float) -> None:
        """Set the time of the next records, in seconds since 1970."""
        timestamp = int(now_s * 1000)
        if timestamp != self._timestamp:
            self._start_run(timestamp)
        self.until_s = (timestamp + 1) / 1000

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a record. Bytes-like data is copied.

        Args:
            timestamp: in milliseconds since 1970.

        Raises:
            TypeError: if key or value are not bytes.
            OverflowError: if the timestamp is too far from the base timestamp.
        """
        delta = timestamp - self.base_timestamp
        if not -_INT64 <= delta < _INT64:
            raise OverflowError(
                f"timestamp {timestamp} is more than 64 bits away from {self.base_timestamp}"
            )
        block = encode_headers(headers) if headers else NO_HEADERS
        kind = (KEYED if key is not None else KEYLESS) | (WITH_HEADERS if headers else 0)
        singly = None
        if type(value) is not bytes or not (key is None or type(key) is bytes):
            kind, singly = NOTHING, encode_record(delta, self.count, key, value, block)
        if kind != self.kind:
            self.encode_pending()
        if timestamp != self._timestamp:
            self._start_run(timestamp)
            self.until_s = 0.0
        self.count += 1
        if singly is not None:
            self._note_sizes(
                [-1 if key is None else len(key)], [-1 if value is None else len(value)]
            )
            self._take(singly)
            return
        assert type(value) is bytes
        self.kind = kind
        self.values.append(value)
        self.size += len(value) + KEYLESS_OVERHEAD
        if key is not None:
            self.keys.append(key)
            self.size += len(key) + RECORD_OVERHEAD - KEYLESS_OVERHEAD
        if headers:
            self.headers.append(block)
            self.size += len(block)

    def _start_run(self, timestamp: int) -> None:
        self._timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if self._run_starts[-1] == self.count:
            self._run_timestamps[-1] = timestamp
        else:
            self._run_starts.append(self.count)
            self._run_timestamps.append(timestamp)

    @property
    def timestamp_runs(self) -> tuple[Sequence[int], Sequence[int]]:
        """Indexes of records from which on a timestamp holds, the first is 0; these timestamps."""
        if self.timestamps is not None:
            return range(self.count), self.timestamps
        return self._run_starts, self._run_timestamps

    def timestamp(self, index: int) -> int:
        """Return the timestamp of the record at ``index``, in milliseconds since 1970."""
        return (
            self._run_timestamps[bisect_right(self._run_starts, index) - 1]
            if self.timestamps is None
            else self.timestamps[index]
        )

    def encode_pending(self) -> None:
        """Encode the records that are not encoded yet, which saves memory and makes ``size``
        exact.
        """
        if not self.values:
            return
        first, keys, values, headers = self._encoded_count, self.keys, self.values, self.headers
        self.keys, self.values, self.headers, self.kind = [], [], [], NOTHING
        lengths = list(map(len, values))
        self._note_sizes(list(map(len, keys)), lengths)
        if len(values) <= _FEW:
            encoded = b"".join(
                encode_record(
                    self.timestamp(first + index) - self.base_timestamp,
                    first + index,
                    keys[index] if keys else None,
                    value,
                    headers[index] if headers else NO_HEADERS,
                )
                for index, value in enumerate(values)
            )
        else:
            at = bisect_right(self._run_starts, first) - 1
            starts = [0, *(start - first for start in self._run_starts[at + 1 :])]
            deltas = [timestamp - self.base_timestamp for timestamp in self._run_timestamps[at:]]
            encoded = encode_records(first, keys, values, headers, starts, deltas)
        self._take(encoded)

    def _note_sizes(self, keys: list[int], values: list[int]) -> None:
        """Add the sizes of the next records' values and keys; no keys if all are null."""
        if keys or self.key_sizes:
            missing = len(self.value_sizes) - len(self.key_sizes)
            self.key_sizes.extend([-1] * missing)
            self.key_sizes.extend(keys or [-1] * len(values))
        self.value_sizes.extend(values)

    def _take(self, encoded: bytes) -> None:
        self._encoded.append(encoded)
        self._encoded_count = self.count
        self._encoded_size += len(encoded)
        self.size = self._encoded_size

    def body(self) -> bytes:
        """Return all records, encoded but not compressed."""
        self.encode_pending()
        if len(self._encoded) != 1:
            self._encoded = [b"".join(self._encoded)]
        return self._encoded[0]

    def halves(self) -> list[RecordBatchWriter]:
        """Return two writers with about half of the records each, for a batch that is too large for
        its topic. It must have at least two records.
        """
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

    def release(self) -> None:
        """Free the records after their delivery or failure; count and timestamps remain."""
        self.keys, self.values, self.headers, self._encoded, self.compressed = [], [], [], [], None

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
        """Return the batch, compressed, with header and checksum. It can be built again with
        another sequence number.
        """
        self.encode_pending()
        body = self._encoded
        if codec is not Codec.NONE:
            if self.compressed is None:
                self.compressed = compress(codec, self.body(), level)
            body = [self.compressed]
        return build_batch(
            *body,
            attributes=codec | TRANSACTIONAL if transactional else int(codec),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.count,
        )
