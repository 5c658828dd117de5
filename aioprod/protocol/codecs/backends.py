"""Chooses the libraries for snappy, lz4 and zstd: lz4 and zstandard if they are installed;
otherwise for zstd the standard library from Python 3.14 on; otherwise cramjam.

cramjam is always installed. It is nearly as fast for large batches, and slower for small ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from aioprod.codecs import Codec
from aioprod.protocol.codecs import cramjam_frames, lz4_unchecked
from aioprod.protocol.codecs.backend import Backend
from aioprod.protocol.codecs.faults import Buffer

_LZ4_HIGH: Final = 3  # lowest level of the high-compression mode


def snappy_backend() -> Backend:
    """Return cramjam."""
    from aioprod.protocol.codecs import snappy_frames as library

    return Backend(library.compress, library.decompress, library.ERRORS)


def lz4_backend() -> Backend:
    """Return the library lz4, or cramjam."""
    try:
        from aioprod.protocol.codecs import lz4_frames as library
    except ImportError:
        return CRAMJAM_LZ4
    return _lz4(library.compress, library.decompress, library.ERRORS)


def zstd_backend() -> Backend:
    """Return the library zstandard, Python's ``compression.zstd``, or cramjam."""
    try:
        from aioprod.protocol.codecs import zstd_frames as library
    except ImportError:
        return stdlib_zstd() or CRAMJAM_ZSTD
    return Backend(library.compress, library.decompress, library.ERRORS)


def stdlib_zstd() -> Backend | None:
    """Return Python's ``compression.zstd``; None before Python 3.14."""
    try:
        from aioprod.protocol.codecs import zstd_stdlib as library
    except ImportError:
        return None
    return Backend(library.compress, library.decompress, library.ERRORS)


def _lz4(
    compress: Callable[[Buffer, int], bytes],
    decompress: Callable[[Buffer, int], bytes],
    errors: tuple[type[Exception], ...],
) -> Backend:
    return Backend(
        partial(_lz4_compress, compress),
        partial(lz4_unchecked.decompress, decompress, errors),
        errors,
    )


def _lz4_compress(compress: Callable[[Buffer, int], bytes], data: Buffer, level: int) -> bytes:
    # Kafka's Java client uses the fast mode for the default level, and high compression for others.
    is_default = Codec.LZ4.levels is not None and level == Codec.LZ4.levels.default
    return compress(data, 0 if is_default else max(level, _LZ4_HIGH))


CRAMJAM_LZ4 = _lz4(
    cramjam_frames.lz4_compress, cramjam_frames.lz4_decompress, cramjam_frames.ERRORS
)
CRAMJAM_ZSTD = Backend(
    cramjam_frames.zstd_compress, cramjam_frames.zstd_decompress, cramjam_frames.ERRORS
)
