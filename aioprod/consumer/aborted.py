"""Finds the batches of a reply that belong to aborted transactions (KIP-98)."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable

from aioprod.errors import CorruptRecordError
from aioprod.protocol.messages.fetch import AbortedTransaction
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import BatchHeader
from aioprod.protocol.record_reader import read_batch_records

_ABORT_MARKER = 0


class AbortedBatches:
    """The aborted transactions of one reply.

    The broker lists them by producer and first offset; the marker in the log is their end.

    Args:
        aborted: the list in the reply.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(item.first_offset, item.producer_id) for item in aborted]
        heapq.heapify(self._coming)
        self._open: set[int] = set()

    def contains(self, data: BytesLike, place: int, header: BatchHeader) -> bool:
        """Return whether to skip a batch. Must be called for each batch, in the order of the log.

        Args:
            header: checked, as ``fetched_batches`` returns it.

        Raises:
            CorruptRecordError: if a marker can't be read.
        """
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(heapq.heappop(self._coming)[1])
        if header.is_control:
            if (
                header.producer_id in self._open
                and _marker_type(data, place, header) == _ABORT_MARKER
            ):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _marker_type(data: BytesLike, place: int, header: BatchHeader) -> int:
    records = read_batch_records(data, place, header)
    key = records[0].key if records else None
    if key is None or len(key) < 4:
        raise CorruptRecordError(f"control batch at offset {header.base_offset} has no marker")
    _, marker = struct.unpack_from(">hh", key)
    return int(marker)
