"""Decodes Produce responses without errors. Handwritten, as the generated reader takes four times
as long.

A test compares both field by field, for every version.
"""

import struct
from typing import Any, Final, NamedTuple

from aioprod.native import accelerated
from aioprod.protocol.framing import decode_response
from aioprod.protocol.message import Message, Request
from aioprod.protocol.primitives import BytesLike

_FIRST_FLEXIBLE: Final = 9
_FIRST_TOPIC_ID: Final = 13
_LAST: Final = 13

# Correlation id, no tagged fields, number of topics + 1.
_START: Final = struct.Struct(">iBB")
# Index, error code, base offset, log append time; log start offset (unused); list of refused
# records, message and tagged fields.
_PARTITION: Final = struct.Struct(">ihqq8x3s")
_NOTHING_WRONG: Final = b"\1\0\0"
# Throttle time, and no tagged fields.
_END: Final = struct.Struct(">iB")
# Largest lengths that take one byte, and two bytes.
_MAX_SHORT: Final = 0x7F
_MAX_MIDDLE: Final = 0x3FFF


Places = dict[tuple[str | bytes, int], tuple[int, int]]


class StoredBatches(NamedTuple):
    """The contents of a response without errors.

    Attributes:
        places: by topic and partition, the base offset and log append time of the batch; the latter
            is -1 unless the broker sets timestamps. The topic is given by name; from version 13 on,
            by the bytes of its id.
        throttle_time_ms: the pause that the broker requests.
    """

    places: Places
    throttle_time_ms: int


def decode_produce_response(
    request_type: type[Request[Any]], version: int, frame: BytesLike
) -> tuple[int, Message | StoredBatches]:
    """Return correlation id and contents of a Produce response. Raises the errors of
    ``aioprod.protocol.framing.decode_response``.
    """
    usual = read_places(version, frame) if isinstance(frame, bytes) else None
    if usual is None:
        return decode_response(request_type, version, frame)
    correlation_id, throttle_time_ms, places = usual
    return correlation_id, StoredBatches(places, throttle_time_ms)


@accelerated
def read_places(version: int, frame: bytes, /) -> tuple[int, int, Places] | None:
    """Return correlation id, throttle time and places of a response without errors, with up to 126
    topics of up to 16,382 partitions each.

    Returns None for any other response (an error, a version other than 9 to 13, invalid bytes),
    which the generated reader decodes.
    """
    if not _FIRST_FLEXIBLE <= version <= _LAST:
        return None
    places: Places = {}
    try:
        correlation_id, tagged_fields, count = _START.unpack_from(frame)
        if tagged_fields or not 0 < count <= _MAX_SHORT:
            return None
        offset = 6
        for _ in range(count - 1):
            topic: str | bytes
            if version >= _FIRST_TOPIC_ID:
                start, offset = offset, offset + 16
                topic = frame[start:offset]
            else:
                size = frame[offset]
                if not 0 < size <= _MAX_SHORT:
                    return None
                start, offset = offset + 1, offset + size
                topic = str(frame[start:offset], "utf-8")
            offset = _read_partitions(frame, offset, topic, places)
        throttle_time_ms, tagged_fields = _END.unpack_from(frame, offset)
    except (struct.error, IndexError, ValueError):
        return None  # an error, missing bytes, or a name that is not UTF-8
    if tagged_fields or offset + _END.size != len(frame):
        return None
    return correlation_id, throttle_time_ms, places


def _read_partitions(frame: bytes, offset: int, topic: str | bytes, places: Places) -> int:
    """Add the places of the partitions at ``offset``. Return the position of the next topic. Raise
    ValueError for an error code or missing bytes.
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
    for at in range(offset, end, _PARTITION.size):
        index, error_code, base_offset, log_append_time_ms, rest = _PARTITION.unpack_from(frame, at)
        if error_code or rest != _NOTHING_WRONG:
            raise ValueError
        places[topic, index] = base_offset, log_append_time_ms
    return end + 1
