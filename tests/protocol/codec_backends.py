"""Run tests with each library for lz4 and zstd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioprod.protocol import compression
from aioprod.protocol.codecs.backends import (
    CRAMJAM_LZ4,
    CRAMJAM_ZSTD,
    Backend,
    lz4_backend,
    stdlib_zstd,
    zstd_backend,
)
from aioprod.protocol.compression import Codec

BACKENDS: dict[str, dict[Codec, Backend]] = {
    "libraries": {Codec.LZ4: lz4_backend(), Codec.ZSTD: zstd_backend()},
    "cramjam": {Codec.LZ4: CRAMJAM_LZ4, Codec.ZSTD: CRAMJAM_ZSTD},
}
if (stdlib := stdlib_zstd()) is not None:
    BACKENDS["stdlib"] = {Codec.LZ4: CRAMJAM_LZ4, Codec.ZSTD: stdlib}


@contextmanager
def using(name: str) -> Iterator[None]:
    """Compress and decompress by these libraries."""
    chosen = BACKENDS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_LZ4", chosen[Codec.LZ4])
        patch.setitem(compression._COMPRESS, Codec.ZSTD, chosen[Codec.ZSTD].compress)
        errors = (*compression._ERRORS, *chosen[Codec.LZ4].errors, *chosen[Codec.ZSTD].errors)
        patch.setattr(compression, "_ERRORS", errors)
        for codec, backend in chosen.items():
            patch.setitem(compression._DECOMPRESS, codec, backend.decompress)
        yield
