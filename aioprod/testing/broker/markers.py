"""Transaction markers: the control batch that ends a producer's transaction in a partition
(KIP-98), and the index of aborted transactions.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from aioprod.protocol.record_batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, build_batch
from aioprod.testing.broker.producer_state import COORDINATOR_EPOCH

# Length, attributes, timestamp delta, offset delta, key (version 0, type), value (version 0,
# coordinator epoch), no headers. Lengths are zigzag varints.
_RECORD = struct.Struct(">bbbb bhh bhi b")
_TYPE_FIELD = 6  # 0 aborts, 1 commits


class EndedTransaction(NamedTuple):
    """A transaction that was committed or aborted in one partition.

    Attributes:
        first_offset: the offset of its first record.
        last_offset: the offset of its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


def build_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, timestamp_ms: int
) -> bytes:
    """Build the control batch of one marker."""
    body = _RECORD.pack(
        (_RECORD.size - 1) << 1, 0, 0, 0, 4 << 1, 0, int(commit), 6 << 1, 0, COORDINATOR_EPOCH, 0
    )
    return build_batch(
        body,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        record_count=1,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def is_commit(marker: bytes) -> bool:
    """Return whether the control batch of a marker commits."""
    return bool(_RECORD.unpack_from(marker, HEADER_SIZE)[_TYPE_FIELD])


class TransactionIndex:
    """The open and the aborted transactions of a partition."""

    def __init__(self, still_open: Mapping[int, int] | None = None) -> None:
        self._open = dict(still_open or {})  # producer id -> first offset
        self._aborted: list[
            EndedTransaction
        ] = []  # these two are in the order of the markers, for bisecting
        self._aborted_by_producer: dict[int, list[EndedTransaction]] = {}
        self._unmarked: deque[EndedTransaction] = deque()  # replicas may lack their markers

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the start of the oldest transaction that is open, or whose marker is not below the
        high watermark. Return None if there is none.
        """
        while self._unmarked and self._unmarked[0].last_offset < high_watermark:
            self._unmarked.popleft()
        return min(
            chain(self._open.values(), (each.first_offset for each in self._unmarked)),
            default=None,
        )

    def first_offset(self, producer_id: int) -> int:
        """Return the start of the producer's open transaction, or -1 if it has none."""
        return self._open.get(producer_id, -1)

    def is_open(self, producer_id: int) -> bool:
        """Return whether the producer has an open transaction."""
        return producer_id in self._open

    def begin(self, producer_id: int, offset: int) -> None:
        """Record a transactional batch at ``offset``. Only the first batch of a transaction changes
        the state.
        """
        self._open.setdefault(producer_id, offset)

    def end(self, producer_id: int, marker_offset: int, *, commit: bool) -> None:
        """Record a marker. A marker without a transaction is valid: the producer wrote nothing to
        this partition.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        ended = EndedTransaction(producer_id, first_offset, marker_offset)
        self._unmarked.append(ended)
        if not commit:
            self._aborted.append(ended)
            self._aborted_by_producer.setdefault(producer_id, []).append(ended)

    def before(self, offset: int) -> TransactionIndex:
        """Return an index of only the open transactions that began before ``offset``. The caller
        adds the others from the log.
        """
        return TransactionIndex(
            {
                producer_id: first_offset
                for producer_id, first_offset in self._open.items()
                if first_offset < offset
            }
        )

    def aborted_between(self, start: int, end: int) -> Iterator[EndedTransaction]:
        """Return the aborted transactions that overlap the offsets from ``start`` to before
        ``end``.
        """
        first = bisect_left(self._aborted, start, key=_last_offset)
        return (each for each in islice(self._aborted, first, None) if each.first_offset < end)

    def is_committed(self, producer_id: int, offset: int) -> bool:
        """Return whether the producer's transactional batch at ``offset`` belongs to a committed
        transaction.
        """
        first_open = self._open.get(producer_id)
        if first_open is not None and offset >= first_open:
            return False
        aborted = self._aborted_by_producer.get(producer_id, [])
        index = bisect_left(aborted, offset, key=_last_offset)
        return index == len(aborted) or offset < aborted[index].first_offset


def _last_offset(ended: EndedTransaction) -> int:
    return ended.last_offset
