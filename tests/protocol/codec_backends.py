"""Run tests with each library for lz4 and zstd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioprod.codecs import Codec
from aioprod.protocol import compression
from aioprod.protocol.codecs.backend import Backend
from aioprod.protocol.codecs.backends import (
    CRAMJAM_LZ4,
    CRAMJAM_ZSTD,
    lz4_backend,
    stdlib_zstd,
    zstd_backend,
)

BACKENDS: dict[str, dict[Codec, Backend]] = {
    "libraries": {Codec.LZ4: lz4_backend(), Codec.ZSTD: zstd_backend()},
    "cramjam": {Codec.LZ4: CRAMJAM_LZ4, Codec.ZSTD: CRAMJAM_ZSTD},
}
if (stdlib := stdlib_zstd()) is not None:
    BACKENDS["stdlib"] = {Codec.LZ4: CRAMJAM_LZ4, Codec.ZSTD: stdlib}


@contextmanager
def using(name: str) -> Iterator[None]:
    """Compress and decompress by these libraries."""
    with pytest.MonkeyPatch.context() as patch:
        for codec, backend in BACKENDS[name].items():
            patch.setitem(compression._BACKENDS, codec, backend)
        yield
