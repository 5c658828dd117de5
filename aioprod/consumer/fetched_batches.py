"""The batches of a fetch. Each is checked before any of its fields is used."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aioprod.consumer.subscription import Position
from aioprod.errors import CorruptRecordError
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    OLD_FORMATS,
    BatchHeader,
)
from aioprod.protocol.record_reader import checked_header, iter_batches

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">8xi")


def fetched_batches(
    data: BytesLike, asked: int, *, check_crcs: bool
) -> Iterator[tuple[BatchHeader, int]]:
    """Yield the header of each complete batch, and the index of its first byte.

    The checksum does not cover the base offset, so it is compared with the requested offset and
    with the batches before and after. Gaps are valid, because compaction leaves some.

    Args:
        asked: the requested offset. A broker begins with the batch that holds it, or the next one.

    Raises:
        CorruptRecordError: if a batch fails its checks, after the batches before it.
    """
    least = 0
    for header, place in iter_batches(data, check_crc=check_crcs):
        base, last = header.base_offset, header.last_offset
        if last < asked:
            raise CorruptRecordError(f"batch of offsets {base} to {last} before offset {asked}")
        if base < least:
            raise CorruptRecordError(f"batch at offset {base} after one that ends at {least - 1}")
        # Checked now: once the records are returned, the position has moved.
        following = place + header.size_in_bytes
        if len(data) - following >= _BASE_OFFSET.size:
            (after,) = _BASE_OFFSET.unpack_from(data, following)
            if after <= last:
                raise CorruptRecordError(
                    f"batch of offsets {base} to {last} before one at offset {after}"
                )
        least = last + 1
        yield header, place


def end_of(data: BytesLike, *, check_crcs: bool) -> Position | None:
    """Return the position after the last complete batch; None if there is none, or it is corrupt.

    Only the lengths of the other batches are read. If one of them is corrupt, reading it fails, and
    the data fetched after it are dropped.
    """
    position, last = 0, -1
    while position + HEADER_SIZE <= len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        following = position + LOG_OVERHEAD + length
        if length < HEADER_SIZE - LOG_OVERHEAD or following > len(data):
            break
        if position and data[position + MAGIC_OFFSET] in OLD_FORMATS:
            break  # where reading ends, too
        last, position = position, following
    try:
        header = checked_header(data, last, check_crcs) if last >= 0 else None
    except CorruptRecordError:
        return None
    if header is None:
        return None
    return Position(header.last_offset + 1, header.partition_leader_epoch)
