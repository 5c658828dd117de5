"""What can be wrong with compressed data, apart from what the libraries say."""

from __future__ import annotations

from typing import Final

from aioprod.errors import CorruptRecordError

Buffer = bytes | bytearray | memoryview

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def too_large(codec: str, max_size: int) -> CorruptRecordError:
    return CorruptRecordError(f"{codec} data holds more than the {max_size} bytes that are allowed")


def cut_off(codec: str) -> CorruptRecordError:
    return CorruptRecordError(f"{codec} data is cut off")


def left_over(codec: str) -> CorruptRecordError:
    return CorruptRecordError(f"{codec} data has bytes behind its end")


def check_magic(codec: str, data: Buffer, magic: bytes) -> None:
    """Refuse what is not a frame of this format: libraries pass over frames to be skipped."""
    if data[:4] != magic:
        raise CorruptRecordError(f"{codec} data does not begin with a frame")
