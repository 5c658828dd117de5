"""Codecs: data decompress to no more than the limit, or are refused; what is compressed comes
back.
"""

from __future__ import annotations

from fuzz.running import instrumented, run

with instrumented(__name__):
    from aioprod.codecs import Codec
    from aioprod.errors import CorruptRecordError
    from aioprod.protocol.compression import compress, decompress

_CODECS = tuple(Codec)
_LIMITS = (1 << 20, 100)


def TestOneInput(data: bytes) -> None:
    """Choose the codec by the first byte."""
    if not data:
        return
    codec, body = _CODECS[data[0] % len(_CODECS)], data[1:]
    assert decompress(codec, compress(codec, body)) == body
    # Not also the errors: libzstd refuses some invalid frames by what it decompressed before.
    found = [_plain(codec, form, limit) for form in (body, memoryview(body)) for limit in _LIMITS]
    assert len(set(found) - {None}) <= 1


def _plain(codec: Codec, body: bytes | memoryview, limit: int) -> bytes | None:
    try:
        plain = decompress(codec, body, limit)
    except CorruptRecordError:
        return None
    assert len(plain) <= limit
    return plain


def seeds() -> list[bytes]:
    """Return compressed data of several lengths, and several of them in a row."""
    texts = (b"", b"a", b"hello " * 200, bytes(range(256)) * 20)
    packed = [(number, codec, text) for number, codec in enumerate(_CODECS) for text in texts]
    return [
        bytes((number,)) + compress(codec, text) * times
        for number, codec, text in packed
        for times in (1, 2)
    ]


if __name__ == "__main__":
    run(TestOneInput, seeds())
