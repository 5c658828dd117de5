"""Decodes Produce responses without errors. Written by hand, because the generated reader takes
four times as long.

A test compares both, field by field, for every version.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from aioprod.protocol.framing import decode_response
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioprod.protocol.primitives import ZERO_UUID, BytesLike

_FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 13
_LAST: Final = 13

# Correlation id, no tagged fields, number of topics + 1.
_START: Final = struct.Struct(">iBB")
# Index, error code, base offset, log append time, log start offset; then the list of refused
# records, the message and the tagged fields.
_PARTITION: Final = struct.Struct(">ihqqq3s")
_NO_LEADER: Final = LeaderIdAndEpoch()  # shared: responses are only read
_NOTHING_WRONG: Final = b"\1\0\0"
# Throttle time, and no tagged fields.
_END: Final = struct.Struct(">iB")
# Lengths up to these take one byte, and two.
_MAX_SHORT: Final = 0x7F
_MAX_MIDDLE: Final = 0x3FFF


def decode_produce_response(
    request_type: type[Request[Any]], version: int, frame: BytesLike
) -> tuple[int, Message]:
    """Return correlation id and message of a Produce response; raise as
    ``aioprod.protocol.framing.decode_response`` does.
    """
    return (
        read_usual_answer(version, frame) if isinstance(frame, bytes) else None
    ) or decode_response(request_type, version, frame)


def read_usual_answer(version: int, frame: bytes) -> tuple[int, ProduceResponse] | None:
    """Return correlation id and message of a response without errors, with up to 126 topics of up
    to 16,382 partitions each.

    Returns None for any other response (an error, a version other than 9 to 13, invalid bytes),
    which the generated reader decodes.
    """
    if not _FIRST_FLEXIBLE <= version <= _LAST:
        return None
    by_id = version >= _FIRST_TOPIC_ID
    topics: list[TopicProduceResponse] = []
    try:
        correlation_id, tagged_fields, count = _START.unpack_from(frame)
        if tagged_fields or not 0 < count <= _MAX_SHORT:
            return None
        offset = 6
        for _ in range(count - 1):
            if by_id:
                name, topic_id = "", _uuid(frame[offset : offset + 16])
                offset += 16
            else:
                size = frame[offset]
                if not 0 < size <= _MAX_SHORT:
                    return None
                name, topic_id = str(frame[offset + 1 : offset + size], "utf-8"), ZERO_UUID
                offset += size
            partitions, offset = _read_partitions(frame, offset)
            topics.append(TopicProduceResponse(name, topic_id, partitions))
        throttle_time_ms, tagged_fields = _END.unpack_from(frame, offset)
    except (struct.error, IndexError, ValueError):
        return None  # an error, missing bytes, or a name that is not UTF-8
    if tagged_fields or offset + _END.size != len(frame):
        return None
    return correlation_id, ProduceResponse(topics, throttle_time_ms)


def _read_partitions(frame: bytes, offset: int) -> tuple[list[PartitionProduceResponse], int]:
    """Return the partitions at ``offset``, and where the next topic begins; raise ValueError for an
    error or missing bytes.
    """
    count = frame[offset]
    offset += 1
    if count > _MAX_SHORT:
        high = frame[offset]
        offset += 1
        count = count & _MAX_SHORT | high << 7
    end = offset + _PARTITION.size * (count - 1)
    if not 0 < count <= _MAX_MIDDLE or frame[end]:
        raise ValueError
    partitions: list[PartitionProduceResponse] = []
    for at in range(offset, end, _PARTITION.size):
        index, error_code, base_offset, log_append_time_ms, log_start_offset, rest = (
            _PARTITION.unpack_from(frame, at)
        )
        if error_code or rest != _NOTHING_WRONG:
            raise ValueError
        partitions.append(
            PartitionProduceResponse(
                index, 0, base_offset, log_append_time_ms, log_start_offset, [], None, _NO_LEADER
            )
        )
    return partitions, end + 1


@lru_cache(1024)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)
