"""Counts the work of reading: lines of Python, and the bytes and numbers that calls in C process.

Times mean little on a busy machine. Counted are each executed line of aioprod's modules and, with
substitutes for the primitives that they use, each byte that is sliced, copied, compared, summed or
decompressed, and each element of each array that numpy creates or reads.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, SupportsIndex

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import numpy as np
import pytest
import zstandard

import aioprod
from aioprod import native
from aioprod.protocol import (
    arrow_reader,
    compression,
    fixed_width_records,
    record_reader,
    variable_width_records,
)
from aioprod.protocol.codecs import cramjam_frames, lz4_frames, snappy_frames, zstd_frames

_HERE = str(Path(aioprod.__file__).parent)


class Work:
    """The count."""

    def __init__(self) -> None:
        self.steps = self.touched = 0

    @property
    def total(self) -> int:
        return self.steps + self.touched

    def touch(self, count: int) -> None:
        self.touched += count

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(_HERE):
            return None
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":  # each iteration of a loop within a line counts, too
            self.steps += 1
        return self._step


_work = Work()  # of the current measurement: methods of bytes take no other argument


class CountedBytes(bytes):
    """Bytes whose operations count the bytes that they process; so do their results."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            _work.touch(len(found))
            return CountedBytes(found)
        return found

    def __add__(self, other: Any) -> Any:
        return _counted(super().__add__(other))

    def __radd__(self, other: Any) -> Any:
        return _counted(other + bytes(self))

    def __mul__(self, count: SupportsIndex) -> Any:
        return _counted(super().__mul__(count))

    def __eq__(self, other: object) -> bool:
        _work.touch(len(self))
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        _work.touch(len(self))
        return super().__ne__(other)

    def __hash__(self) -> int:
        _work.touch(len(self))
        return super().__hash__()

    def count(self, *args: Any) -> int:
        _work.touch(len(self))
        return super().count(*args)

    def lstrip(self, *args: Any) -> Any:
        return _counted(super().lstrip(*args))

    def isascii(self) -> bool:
        _work.touch(len(self))
        return super().isascii()

    def decode(self, *args: Any) -> str:
        _work.touch(len(self))
        return super().decode(*args)


def _counted(data: bytes) -> CountedBytes:
    _work.touch(len(data))
    return CountedBytes(data)


class _CountedNumbers(list[int]):
    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            _work.touch(len(found))
        return found


class _CountedArray(np.ndarray[Any, Any]):
    """Counts the elements of each array that is derived from it, including views."""

    def __array_finalize__(self, source: object) -> None:
        _work.touch(self.size)


class _Numpy:
    """numpy; counts the arguments and results of its functions."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            _work.touch(sum(arg.size for arg in args if isinstance(arg, np.ndarray)))
            result = found(*args, **named)
            return result.view(_CountedArray) if isinstance(result, np.ndarray) else result

        return call


class _Struct:
    def __init__(self, layout: str) -> None:
        _work.touch(len(layout))
        self._struct = struct.Struct(layout)
        self.size = self._struct.size

    def unpack_from(self, data: Any, position: int = 0) -> Any:
        _work.touch(self.size)
        return self._struct.unpack_from(data, position)

    def iter_unpack(self, data: Any) -> Any:
        _work.touch(len(data))
        return self._struct.iter_unpack(data)


class _GzipMember:
    """zlib copies the bytes after the end, or after the limit."""

    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits=wbits)

    def decompress(self, data: Any, max_length: int) -> bytes:
        _work.touch(len(data) - len(self._stream.unused_data))
        plain = self._stream.decompress(data, max_length)
        _work.touch(len(self._stream.unused_data) + len(self._stream.unconsumed_tail))
        return _counted(plain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Lz4Frame:
    """Each step copies the rest of the input: at most all of it."""

    def __init__(self) -> None:
        self._frame, self._size = lz4.frame.LZ4FrameDecompressor(), 0

    def decompress(self, data: Any, max_length: int = -1) -> bytes:
        self._size += len(data)
        _work.touch(self._size)
        return _counted(self._frame.decompress(data, max_length))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()

    def decompress(self, data: Any) -> bytes:
        _work.touch(len(data))
        return _counted(self._stream.decompress(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _snappy(block: bytes) -> bytes:
    """The announced size of the block is allocated before it is read."""
    shift = size = 0
    for byte in block[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    _work.touch(len(block) + size)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_into(
    into: Callable[[bytes, bytearray], int], frame: bytes, plain: bytearray
) -> int:
    """The buffer is not counted: pages that are not written cost nothing."""
    size = into(frame, plain)
    _work.touch(len(frame) + size)
    return size


def _stand_ins(patch: pytest.MonkeyPatch) -> None:
    counting_struct = SimpleNamespace(Struct=_Struct, error=struct.error)
    for module in (fixed_width_records, variable_width_records):
        patch.setattr(module, "struct", counting_struct)
    _forget_layouts()
    for module in (record_reader, fixed_width_records):
        patch.setattr(module, "bytes", _bytes, raising=False)
    lowest = {flag: CountedBytes(row) for flag, row in fixed_width_records._LOWEST_BYTES.items()}
    patch.setattr(fixed_width_records, "_LOWEST_BYTES", lowest)
    encoded = _CountedNumbers(variable_width_records._encoded())
    patch.setattr(variable_width_records, "_encoded", lambda: encoded)
    patch.setattr(arrow_reader, "np", _Numpy())
    patch.setattr(compression, "zlib", SimpleNamespace(decompressobj=_GzipMember, error=zlib.error))
    frame = SimpleNamespace(frame=SimpleNamespace(LZ4FrameDecompressor=_Lz4Frame))
    patch.setattr(lz4_frames, "lz4", frame)
    patch.setattr(zstd_frames, "_decompressor", lambda: SimpleNamespace(decompressobj=_Zstd))
    snappy = SimpleNamespace(decompress_raw=_snappy)
    patch.setattr(snappy_frames, "cramjam", SimpleNamespace(snappy=snappy))
    patch.setattr(cramjam_frames, "bytes", _bytes, raising=False)
    for codec in (cramjam.lz4, cramjam.zstd):
        patch.setattr(codec, "decompress_into", partial(_decompress_into, codec.decompress_into))


def _forget_layouts() -> None:
    fixed_width_records._struct_of.cache_clear()
    variable_width_records._layout.cache_clear()


def _bytes(data: Any) -> CountedBytes:
    return _counted(bytes(data))


def counted(read: Callable[[], object]) -> int:
    """Return the work of a call."""
    global _work
    before = sys.gettrace()
    variable_width_records._sizes()  # a table that is made once
    variable_width_records._encoded()
    with pytest.MonkeyPatch.context() as patch:
        _stand_ins(patch)
        # The accelerator goes through the bytes once, and leaves invalid ones to these lines.
        patch.setattr(record_reader, "parse_records", native.python_sources["parse_records"])
        patch.setattr(arrow_reader, "record_starts", native.python_sources["record_starts"])
        _work = Work()
        sys.settrace(_work.trace)
        try:
            read()
        finally:
            sys.settrace(before)
    _forget_layouts()
    return _work.total
