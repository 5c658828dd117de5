"""Finds the batches in fetched bytes, and checks each batch once.

A batch is represented by its checked header and the index of its first byte. Only this module
iterates over batches, and only the length in a header is used before the checksum is verified.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from aioprod.errors import CorruptRecordError
from aioprod.native import accelerated
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    OLD_FORMATS,
    BatchHeader,
    read_header,
)
from aioprod.protocol.record_batch import check_crc as check_batch_crc
from aioprod.protocol.record_headers import LIMIT

#: A checked header, and the index of the batch's first byte.
Batch = tuple[BatchHeader, int]

_BASE_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">8xi")


class BatchCursor:
    """Iterates over the batches of one partition in a response, in order.

    Only one iteration is possible. The checksum does not cover the base offset, which is therefore
    compared with the requested offset and the adjacent batches. Gaps are valid, as compaction
    leaves some.

    Args:
        data: encoded batches; the last one may be incomplete.
        asked: the requested offset. A response begins with the batch that contains it, or with the
            next one.
        check_crcs: whether to verify checksums.

    Attributes:
        place: the index of the next batch's first byte; the size of the data after the last one.
    """

    __slots__ = ("_asked", "_check_crcs", "_data", "_index", "_last", "_places", "place")

    def __init__(self, data: BytesLike, asked: int, *, check_crcs: bool) -> None:
        self._data = data
        self._asked = asked
        self._check_crcs = check_crcs
        self._places = places = batch_places(data)
        self._index = 0  # of the next batch
        self.place: int = places[0] if places else len(data)
        # The last batch's header, or why it is corrupt; set once it was checked.
        self._last: BatchHeader | str | None = None

    def last_header(self) -> BatchHeader | None:
        """Return the header of the last batch; None if there is no batch, or the last one is
        corrupt.

        Earlier batches are checked when they are reached. If one of them is corrupt, reading ends
        there, and data that was fetched after this response is discarded.
        """
        if self._last is None and self._places:
            try:
                self._last = checked_header(self._data, self._places[-1], self._check_crcs)
            except CorruptRecordError as error:
                self._last = str(error)  # the error itself would keep the data alive
        return None if isinstance(self._last, str) else self._last

    @property
    def mean_size(self) -> float:
        """The average number of bytes of the batches."""
        return len(self._data) / max(len(self._places), 1)

    @property
    def unchecked_until(self) -> int:
        """The checksums of the batches before this byte, from the next batch on, are not verified
        yet, and have to be.
        """
        if not self._check_crcs:
            return 0
        return self._places[-1] if isinstance(self._last, BatchHeader) else len(self._data)

    def next(self) -> Batch | None:
        """Return the next complete batch; None at the end.

        Raises:
            CorruptRecordError: if it fails its checks.
        """
        data, index, places = self._data, self._index, self._places
        if index == len(places):
            return None
        place = places[index]
        known = self._last if index + 1 == len(places) else None
        if isinstance(known, str):
            raise CorruptRecordError(known)
        header = known or checked_header(data, place, self._check_crcs)
        base = header.base_offset
        last = base + header.last_offset_delta
        if last < self._asked:
            raise CorruptRecordError(
                f"batch of offsets {base} to {last} before offset {self._asked}"
            )
        # Checked before the records are returned, which moves the position.
        following = place + LOG_OVERHEAD + header.batch_length
        if len(data) - following >= _BASE_OFFSET.size:
            (after,) = _BASE_OFFSET.unpack_from(data, following)
            if after <= last:
                raise CorruptRecordError(
                    f"batch of offsets {base} to {last} before one at offset {after}"
                )
        self._index = index = index + 1
        self.place = places[index] if index < len(places) else len(data)
        return header, place

    def pass_over(self, count: int) -> list[int]:
        """Go on after ``count`` batches that were checked as :meth:`next` does, and return where
        they begin.
        """
        first, places = self._index, self._places
        self._index = index = first + count
        self.place = places[index] if index < len(places) else len(self._data)
        return places[first:index]

    def __iter__(self) -> Iterator[Batch]:
        """Yield the complete batches.

        Raises:
            CorruptRecordError: if a batch fails its checks, after the batches before it.
        """
        while (batch := self.next()) is not None:
            yield batch


def iter_batches(data: BytesLike, *, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the complete batches in ``data``, without checking their order.

    Raises:
        CorruptRecordError: if a batch fails its checks, after the batches before it.
    """
    for place in batch_places(data):
        yield checked_header(data, place, check_crc), place


@accelerated
def batch_places(data: BytesLike, /) -> list[int]:
    """Return the index of the first byte of each batch.

    Only lengths are read. Brokers truncate a response at a byte limit, so an incomplete last batch
    is left out. Messages of an old format after batches are also left out: the next fetch begins
    with them, and converts them. A batch with an impossible length, which fails its checks, is the
    last one.
    """
    places: list[int] = []
    position, size = 0, len(data)
    while position + HEADER_SIZE <= size:
        (length,) = _LENGTH.unpack_from(data, position)
        following = position + LOG_OVERHEAD + length
        if following > size or (position and data[position + MAGIC_OFFSET] in OLD_FORMATS):
            break
        places.append(position)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            break
        position = following
    return places


def checked_header(data: BytesLike, place: int, check_crc: bool) -> BatchHeader:
    """Return the checked header of the batch at ``place``. All readers use this function.

    Raises:
        CorruptRecordError: if bytes are missing, the checksum differs, or a number is impossible.
    """
    header = read_header(data, place)
    if check_crc:
        check_batch_crc(data, place, header)
    # The checksum does not cover the base offset, and the next offset must fit into a request.
    if not 0 <= header.base_offset < LIMIT:
        raise CorruptRecordError(
            f"record batch at byte {place} has impossible base offset {header.base_offset}"
        )
    return header
