"""Errors of compressed data that the libraries do not report."""

from __future__ import annotations

from typing import Final

from aioprod.errors import CorruptRecordError

Buffer = bytes | bytearray | memoryview

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def too_large(codec: str, max_size: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{codec} data decompresses to more than the limit of {max_size} bytes"
    )


def cut_off(codec: str) -> CorruptRecordError:
    return CorruptRecordError(f"{codec} data is truncated")


def no_frame(codec: str) -> CorruptRecordError:
    return CorruptRecordError(f"{codec} data does not begin with a frame")
