"""Collects the encoded records of one batch: the producer's hot path.

A new record is only appended to lists. Many records are encoded together (see ``record_encoder``)
when the batch is full or is sent. Records with null values are encoded immediately. The accelerator
encodes each record as it is added, and computes the same sizes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from aioprod.native import accelerated
from aioprod.protocol.record_encoder import NO_HEADERS, encode_record, encode_records

#: Maximum size of a record without headers, value and key: length 3, attributes 1, timestamp delta
#: 3, offset delta 3, key and value length 3 each, header count 1. (Deltas and lengths from 2^20 on
#: take more, but these few bytes do not matter in such records.)
RECORD_OVERHEAD: Final = 17
KEYLESS_OVERHEAD: Final = RECORD_OVERHEAD - 2
#: Kinds of records that are encoded together.
KEYLESS: Final = 0
KEYED: Final = 1
WITH_HEADERS: Final = 2
NOTHING: Final = -1
_INT64: Final = 1 << 63
# Up to this number, records are encoded faster one by one.
_FEW: Final = 4


@accelerated
class RecordBuffer:
    """The records of one batch.

    Args:
        base_timestamp: timestamp of the first record, in milliseconds since 1970.
        blocks: free memory blocks. The accelerator encodes into one, which :meth:`release` returns.
            Not used here.
        block_size: size of a block in bytes.

    Attributes:
        base_timestamp: the argument.
        max_timestamp: the largest timestamp; ``base_timestamp`` before the first record.
        count: number of records; not reset by :meth:`release`.
        size: size of all records in bytes, encoded but not compressed, without the batch's header.
            An upper bound, which is exact after :meth:`encode_pending`.
        kind: the kind of the records since the last :meth:`encode_pending`: KEYLESS or KEYED, with
            the bit WITH_HEADERS if they have headers; NOTHING if there are none.
        until_s: the end of the current millisecond, in seconds since 1970. Records that are added
            before it need no call of :meth:`at`.
        timestamps: timestamp of each record if encoded records were passed to :meth:`take`; else
            None.
        compressed: the compressed batch; only set by callers.
    """

    # `values`, `keys`, `headers`: records that are not encoded yet. `keys` has an element for each
    # value, or is empty if all keys are null. The same applies to `headers`, whose elements are
    # encoded. The fast path of `send` appends to these lists, and updates count and size. The
    # accelerator does not have them.
    __slots__ = (
        "_encoded_count",
        "_encoded_size",
        "_pieces",
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

    key_sizes: Sequence[int]
    """Size of the key of each encoded record, -1 for null; empty if all are null."""
    value_sizes: Sequence[int]
    """Size of the value of each encoded record, -1 for null."""

    def __init__(
        self, base_timestamp: int, blocks: list[bytearray] | None = None, block_size: int = 0
    ) -> None:
        self.base_timestamp: int = base_timestamp
        self.max_timestamp: int = base_timestamp
        self.count: int = 0
        self.size: int = 0
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.headers: list[bytes] = []
        self.kind: int = NOTHING
        self.compressed: bytes | None = None
        self.timestamps: Sequence[int] | None = None
        self.until_s: float = 0.0
        self.key_sizes = array("i")
        self.value_sizes = array("i")
        self._pieces: list[bytes] = []
        self._encoded_count = 0
        self._encoded_size = 0
        # Consecutive records often have the same timestamp, which is stored once for each run.
        self._timestamp = base_timestamp
        self._run_starts = [0]
        self._run_timestamps = [base_timestamp]

    def at(self, now_s: float) -> None:
        """Set the time of the next records, in seconds since 1970. At least one record must follow.

        Raises:
            OverflowError: if it is too far from the base timestamp.
        """
        timestamp = int(now_s * 1000)
        if timestamp != self._timestamp:
            self._start_run(timestamp)
        self.until_s = (timestamp + 1) / 1000

    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes = NO_HEADERS
    ) -> None:
        """Add a record.

        Args:
            timestamp: in milliseconds since 1970.
            headers: the result of ``encode_headers``.

        Raises:
            OverflowError: if the timestamp is too far from the base timestamp.
        """
        kind = NOTHING
        if value is not None:
            kind = KEYLESS if key is None else KEYED
            if headers != NO_HEADERS:
                kind |= WITH_HEADERS
        if kind != self.kind:
            self.encode_pending()
        if timestamp != self._timestamp:
            self._start_run(timestamp)
            self.until_s = 0.0
        self.count += 1
        if value is None:
            delta = timestamp - self.base_timestamp
            self._note_sizes([-1 if key is None else len(key)], [-1])
            self.take(encode_record(delta, self.count - 1, key, value, headers))
            return
        self.kind = kind
        self.values.append(value)
        self.size += len(value) + KEYLESS_OVERHEAD
        if key is not None:
            self.keys.append(key)
            self.size += len(key) + RECORD_OVERHEAD - KEYLESS_OVERHEAD
        if kind & WITH_HEADERS:
            self.headers.append(headers)
            self.size += len(headers)

    def add_values(self, values: list[bytes], start: int, room: int, now_s: float) -> int:
        """Add values from index ``start`` on as records without keys and headers, until ``size``
        would exceed ``room``. Return the index after the last one added. ``kind`` must be KEYLESS.

        Args:
            now_s: their time, in seconds since 1970.
        """
        upto = start
        while upto < len(values):
            fitting = (room - self.size) // (len(values[upto]) + KEYLESS_OVERHEAD)
            part = values[upto : upto + max(0, fitting)]
            size = sum(map(len, part)) + len(part) * KEYLESS_OVERHEAD
            if self.size + size > room:  # the values after the first are larger
                ends = accumulate(len(value) + KEYLESS_OVERHEAD for value in part)
                part = part[: bisect_right(list(ends), room - self.size)]
                size = sum(map(len, part)) + len(part) * KEYLESS_OVERHEAD
            if not part:
                break
            if now_s >= self.until_s:
                self.at(now_s)
            self.values += part
            self.size += size
            self.count += len(part)
            upto += len(part)
        return upto

    def _start_run(self, timestamp: int) -> None:
        if not (
            -_INT64 <= timestamp < _INT64 and -_INT64 <= timestamp - self.base_timestamp < _INT64
        ):
            raise OverflowError(
                f"timestamp {timestamp} exceeds 64 bits, or differs by as much from "
                f"{self.base_timestamp}"
            )
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
        """The indexes of records at which the timestamp changes, beginning with 0, and the
        timestamps.
        """
        if self.timestamps is not None:
            return range(self.count), self.timestamps
        return self._run_starts, self._run_timestamps

    def encode_pending(self) -> None:
        """Encode the pending records, which saves memory and makes ``size`` exact."""
        if not self.values:
            self.kind = NOTHING
            return
        first, keys, values, headers = self._encoded_count, self.keys, self.values, self.headers
        self.keys, self.values, self.headers, self.kind = [], [], [], NOTHING
        self._note_sizes(list(map(len, keys)), list(map(len, values)))
        at = bisect_right(self._run_starts, first) - 1
        starts = [0, *(start - first for start in self._run_starts[at + 1 :])]
        deltas = [timestamp - self.base_timestamp for timestamp in self._run_timestamps[at:]]
        if len(values) > _FEW:
            self.take(encode_records(first, keys, values, headers, starts, deltas))
            return
        self.take(
            b"".join(
                encode_record(
                    deltas[bisect_right(starts, index) - 1],
                    first + index,
                    keys[index] if keys else None,
                    value,
                    headers[index] if headers else NO_HEADERS,
                )
                for index, value in enumerate(values)
            )
        )

    def _note_sizes(self, keys: list[int], values: list[int]) -> None:
        """Store the sizes of further values and keys; ``keys`` is empty if all are null."""
        noted_keys, noted_values = self.key_sizes, self.value_sizes
        assert isinstance(noted_keys, array)
        assert isinstance(noted_values, array)
        if keys != [-1] * len(keys) or noted_keys:
            missing = len(noted_values) - len(noted_keys)
            noted_keys.extend([-1] * missing)
            noted_keys.extend(keys or [-1] * len(values))
        noted_values.extend(values)

    def take(self, encoded: bytes) -> None:
        """Add the bytes of encoded records, which ``count`` already includes."""
        self._pieces.append(encoded)
        self._encoded_count = self.count
        self._encoded_size += len(encoded)
        self.size = self._encoded_size

    def pieces(self) -> list[bytes]:
        """Return the bytes of all records, in pieces."""
        self.encode_pending()
        return self._pieces

    def seal(
        self, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int, /
    ) -> bytes | memoryview | None:
        """Return the batch without copying its records, or with one copy if they are few. A view
        must not be used after :meth:`release`. Returns None if the records are not all in one
        place, which is always so here.
        """
        return None

    def release(self) -> None:
        """Free the records after their delivery or failure. Count, size and timestamps are kept. No
        further records can be added.
        """
        self.keys, self.values, self.headers, self._pieces, self.compressed = [], [], [], [], None
        self.kind = NOTHING
        self.key_sizes = self.value_sizes = ()
