"""Compressed records as other encoders write them, and as no encoder should, with Kafka's answers.

The answers to Produce requests are those of Kafka 4.4; a test compares them with a real one.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cramjam
import lz4.block  # type: ignore[import-untyped]
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from aioprod.codecs import Codec
from aioprod.error_codes import ErrorCode
from aioprod.protocol.compression import compress

Pack = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Packed:
    """Records in a compressed form.

    Attributes:
        name: its special property.
        codec: the number in the batch's attributes.
        pack: compresses the records.
        answer: Kafka's: NONE if it stores the batch.
        is_read: whether our readers read it. They read all that Kafka stores.
    """

    name: str
    codec: Codec
    pack: Pack
    answer: ErrorCode = ErrorCode.NONE
    is_read: bool = True

    def __str__(self) -> str:
        return f"{self.codec.name.lower()}: {self.name}"


def _halves(pack: Pack) -> Pack:
    """Compress the data in two parts; the first ends within a record."""
    return lambda data: pack(data[: len(data) // 2 + 1]) + pack(data[len(data) // 2 + 1 :])


def _before(prefix: bytes, pack: Pack) -> Pack:
    return lambda data: prefix + pack(data)


def _after(pack: Pack, suffix: bytes) -> Pack:
    return lambda data: pack(data) + suffix


# -- gzip ------------------------------------------------------------------------------------------


def _zlib(bits: int) -> Pack:
    def pack(data: bytes) -> bytes:
        stream = zlib.compressobj(6, zlib.DEFLATED, bits)
        return stream.compress(data) + stream.flush()

    return pack


def _gzip_with_all_fields(data: bytes) -> bytes:
    """A header with extra field, file name, comment and header checksum (RFC 1952)."""
    head = b"\x1f\x8b\x08\x1e" + struct.pack("<I", 1_700_000_000) + b"\0\xff"
    head += struct.pack("<H", 4) + b"abcd" + b"file name\0" + b"comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    end = struct.pack("<II", zlib.crc32(data), len(data))
    return head + _zlib(-15)(data) + end


def _gzip_stored(data: bytes) -> bytes:
    return gzip.compress(data, 0)


def _gzip_flushed(data: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = [stream.compress(data[:50]), stream.flush(zlib.Z_FULL_FLUSH)]
    return b"".join([*parts, stream.compress(data[50:]), stream.flush()])


_GZIP_EMPTY = gzip.compress(b"")

# -- snappy ----------------------------------------------------------------------------------------

_XERIAL = b"\x82SNAPPY\0"


def _raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _xerial(block_size: int = 32 << 10, version: int = 1, compatible: int = 1) -> Pack:
    def pack(data: bytes) -> bytes:
        parts = [_XERIAL + struct.pack(">ii", version, compatible)]
        for start in range(0, len(data), block_size):
            block = _raw_snappy(data[start : start + block_size])
            parts += [struct.pack(">i", len(block)), block]
        return b"".join(parts)

    return pack


def _framed_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(data))


# -- lz4 -------------------------------------------------------------------------------------------


def _lz4(**options: object) -> Pack:
    chosen = {"block_linked": False, "store_size": False, **options}
    return lambda data: bytes(lz4.frame.compress(data, **chosen))


def _lz4_with_dictionary_id(data: bytes) -> bytes:
    frame = _lz4()(data)
    descriptor = bytes([frame[4] | 1, frame[5]]) + struct.pack("<I", 7)
    return frame[:4] + descriptor + _lz4_checksum(descriptor) + frame[7:]


def _lz4_checksum(descriptor: bytes) -> bytes:
    """The second byte of XXH32 of fewer than 16 bytes."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = (
        0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    )  # fmt: skip
    mask = 0xFFFFFFFF
    found, whole = prime_5 + len(descriptor), len(descriptor) // 4 * 4
    for (word,) in struct.iter_unpack("<I", descriptor[:whole]):
        found = found + word * prime_3 & mask
        found = (found << 17 | found >> 15) & mask
        found = found * prime_4 & mask
    for byte in descriptor[whole:]:
        found = found + byte * prime_5 & mask
        found = (found << 11 | found >> 21) & mask
        found = found * prime_1 & mask
    found = (found ^ found >> 15) * prime_2 & mask
    found = (found ^ found >> 13) * prime_3 & mask
    return bytes([(found ^ found >> 16) >> 8 & 0xFF])


def _lz4_legacy(data: bytes) -> bytes:
    """The format of lz4's command line tool before 2013: blocks without descriptor or end."""
    block = bytes(lz4.block.compress(data, store_size=False))
    return b"\x02\x21\x4c\x18" + struct.pack("<I", len(block)) + block


def _lz4_bad_header_checksum(data: bytes) -> bytes:
    frame = bytearray(_lz4()(data))
    frame[6] ^= 0x55
    return bytes(frame)


def _lz4_bad_content_checksum(data: bytes) -> bytes:
    frame = bytearray(_lz4(content_checksum=True)(data))
    frame[-1] ^= 0x55
    return bytes(frame)


def _lz4_bad_size(data: bytes) -> bytes:
    """The size that the header names is not that of the data."""
    frame = _lz4(store_size=True)(data)
    descriptor = frame[4:6] + struct.pack("<Q", len(data) + 5)
    return frame[:4] + descriptor + _lz4_checksum(descriptor) + frame[15:]


# -- zstd ------------------------------------------------------------------------------------------

_SKIPPABLE = b"\x5e\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"
_SKIPPABLE_EMPTY = b"\x50\x2a\x4d\x18" + struct.pack("<I", 0)


def _zstd(**options: object) -> Pack:
    return lambda data: zstandard.ZstdCompressor(**options).compress(data)  # type: ignore[arg-type]


def _zstd_stream(data: bytes) -> bytes:
    """A frame without the size of its content, in several blocks."""
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    parts = [stream.compress(data[:70]), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    return b"".join([*parts, stream.compress(data[70:]), stream.flush()])


def _zstd_window(log: int) -> Pack:
    """A frame whose header claims a window of 2**log bytes."""

    def pack(data: bytes) -> bytes:
        blocks = [data[start : start + 1000] for start in range(0, len(data), 1000)]
        parts = [b"\x28\xb5\x2f\xfd\0", bytes([log - 10 << 3])]
        for index, block in enumerate(blocks):
            last = index == len(blocks) - 1
            parts += [(len(block) << 3 | last).to_bytes(3, "little"), block]
        return b"".join(parts)

    return pack


def _zstd_dictionary(data: bytes) -> bytes:
    trained = zstandard.ZstdCompressionDict(data * 9, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(dict_data=trained).compress(data)


def _zstd_magicless(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(format=zstandard.FORMAT_ZSTD1_MAGICLESS)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _refused(
    name: str,
    codec: Codec,
    pack: Pack,
    answer: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
    *,
    is_read: bool = False,
) -> Packed:
    return Packed(name, codec, pack, answer, is_read)


GZIP, SNAPPY, LZ4, ZSTD = Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD

CORPUS = [
    *(Packed("our own", codec, partial(compress, codec)) for codec in Codec),
    Packed("several members", GZIP, _halves(gzip.compress)),
    Packed("an empty member first", GZIP, _before(_GZIP_EMPTY, gzip.compress)),
    Packed("an empty member last", GZIP, _after(gzip.compress, _GZIP_EMPTY)),
    Packed("a byte after it", GZIP, _after(gzip.compress, b"\0")),
    Packed("zeros after it", GZIP, _after(gzip.compress, bytes(512))),
    Packed("text after it", GZIP, _after(gzip.compress, b"some text of no member at all")),
    Packed("a magic number after it", GZIP, _after(gzip.compress, b"\x1f\x8b")),
    Packed("half a header after it", GZIP, _after(gzip.compress, b"\x1f\x8b\x08\0\0\0")),
    Packed("half a member after it", GZIP, _after(gzip.compress, gzip.compress(bytes(99))[:-9])),
    _refused(
        "a member with a wrong checksum after it",
        GZIP,
        _after(gzip.compress, gzip.compress(b"x" * 40)[:-8] + bytes(8)),
        ErrorCode.INVALID_RECORD,
    ),
    Packed("all optional fields", GZIP, _gzip_with_all_fields),
    Packed("stored", GZIP, _gzip_stored),
    Packed("flushed in the middle", GZIP, _gzip_flushed),
    _refused(
        "a wrong checksum",
        GZIP,
        lambda data: gzip.compress(data)[:-8] + b"abcd" + gzip.compress(data)[-4:],
    ),
    _refused("a wrong size", GZIP, lambda data: gzip.compress(data)[:-1] + b"\x7f"),
    _refused("no trailer", GZIP, lambda data: gzip.compress(data)[:-8]),
    _refused("half a trailer", GZIP, lambda data: gzip.compress(data)[:-4]),
    _refused("zlib", GZIP, _zlib(15)),
    _refused("raw deflate", GZIP, _zlib(-15)),
    _refused("zeros before it", GZIP, _before(bytes(4), gzip.compress)),
    Packed("raw", SNAPPY, _raw_snappy),
    Packed("small blocks", SNAPPY, _xerial(64)),
    Packed("one large block", SNAPPY, _xerial(1 << 20)),
    Packed("several streams", SNAPPY, _halves(_xerial())),
    Packed("an empty stream first", SNAPPY, _before(_xerial()(b""), _xerial())),
    Packed("an empty stream last", SNAPPY, _after(_xerial(), _xerial()(b""))),
    Packed("an empty block", SNAPPY, lambda data: _xerial()(data) + struct.pack(">i", 1) + b"\0"),
    _refused("a block of no bytes", SNAPPY, _after(_xerial(), struct.pack(">i", 0))),
    _refused(
        "a block of no bytes first",
        SNAPPY,
        lambda data: _xerial()(b"") + bytes(4) + _xerial()(data)[16:],
    ),
    Packed("three bytes after it", SNAPPY, _after(_xerial(), b"\0\0\0")),
    _refused(
        "a block that is cut off after it",
        SNAPPY,
        _after(_xerial(), struct.pack(">i", 9) + b"\x09"),
    ),
    _refused("text after it", SNAPPY, _after(_xerial(), b"some text of no block at all")),
    _refused("half a header after it", SNAPPY, _after(_xerial(), _XERIAL)),
    Packed("another header after it", SNAPPY, _after(_xerial(), b"\x82SNAzzz\0" + bytes(8))),
    Packed("version 2", SNAPPY, _xerial(version=2)),
    Packed("version 2, compatible with 2", SNAPPY, _xerial(version=2, compatible=2)),
    Packed("version 0", SNAPPY, _xerial(version=0, compatible=0)),
    _refused("raw and a byte after it", SNAPPY, _after(_raw_snappy, b"\0")),
    _refused("raw twice", SNAPPY, _halves(_raw_snappy)),
    _refused("framing format", SNAPPY, _framed_snappy),
    Packed("content checksum", LZ4, _lz4(content_checksum=True)),
    Packed("block checksums", LZ4, _lz4(block_checksum=True)),
    Packed("content size", LZ4, _lz4(store_size=True)),
    Packed("everything", LZ4, _lz4(store_size=True, block_checksum=True, content_checksum=True)),
    Packed("blocks of 256 KiB", LZ4, _lz4(block_size=lz4.frame.BLOCKSIZE_MAX256KB)),
    Packed("blocks of 1 MiB", LZ4, _lz4(block_size=lz4.frame.BLOCKSIZE_MAX1MB)),
    Packed("blocks of 4 MiB", LZ4, _lz4(block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    _refused("linked blocks", LZ4, lambda data: bytes(cramjam.lz4.compress(data)), is_read=True),
    Packed("one block of linked ones", LZ4, _lz4(block_linked=True)),
    _refused("several frames", LZ4, _halves(_lz4()), ErrorCode.INVALID_RECORD, is_read=True),
    _refused(
        "an empty frame first",
        LZ4,
        _before(_lz4()(b""), _lz4()),
        ErrorCode.INVALID_RECORD,
        is_read=True,
    ),
    Packed("an empty frame last", LZ4, _after(_lz4(), _lz4()(b""))),
    Packed("a byte after it", LZ4, _after(_lz4(), b"\0")),
    Packed("text after it", LZ4, _after(_lz4(), b"some text of no frame at all")),
    Packed("half a frame after it", LZ4, _after(_lz4(), _lz4()(bytes(99))[:-6])),
    Packed("a skippable frame after it", LZ4, _after(_lz4(), _SKIPPABLE)),
    _refused("a skippable frame before it", LZ4, _before(_SKIPPABLE, _lz4())),
    _refused("no end mark", LZ4, lambda data: _lz4()(data)[:-4]),
    _refused(
        "no content checksum at its end", LZ4, lambda data: _lz4(content_checksum=True)(data)[:-4]
    ),
    _refused("a wrong header checksum", LZ4, _lz4_bad_header_checksum),
    Packed("a wrong content checksum", LZ4, _lz4_bad_content_checksum),
    Packed("a wrong size", LZ4, _lz4_bad_size),
    _refused("a dictionary id", LZ4, _lz4_with_dictionary_id, is_read=True),
    _refused("the legacy format", LZ4, _lz4_legacy),
    _refused("a raw block", LZ4, lambda data: lz4.block.compress(data, store_size=False)),
    _refused("a raw block with its size", LZ4, lz4.block.compress),
    Packed("without the size", ZSTD, _zstd_stream),
    Packed("checksum", ZSTD, _zstd(write_checksum=True)),
    Packed("level 22", ZSTD, _zstd(level=22)),
    Packed("several frames", ZSTD, _halves(_zstd())),
    Packed("several streams", ZSTD, _halves(_zstd_stream)),
    Packed("an empty frame first", ZSTD, _before(_zstd()(b""), _zstd())),
    Packed("an empty frame last", ZSTD, _after(_zstd(), _zstd()(b""))),
    Packed("a skippable frame first", ZSTD, _before(_SKIPPABLE, _zstd())),
    Packed("a skippable frame last", ZSTD, _after(_zstd(), _SKIPPABLE)),
    Packed("an empty skippable frame first", ZSTD, _before(_SKIPPABLE_EMPTY, _zstd())),
    Packed("an empty skippable frame last", ZSTD, _after(_zstd(), _SKIPPABLE_EMPTY)),
    Packed(
        "skippable frames around two frames",
        ZSTD,
        _before(_SKIPPABLE, _after(_halves(_after(_zstd(), _SKIPPABLE)), _SKIPPABLE)),
    ),
    Packed("a window of 128 MiB", ZSTD, _zstd_window(27)),
    _refused("a window of 256 MiB", ZSTD, _zstd_window(28)),
    _refused("a window of 2 GiB", ZSTD, _zstd_window(31)),
    _refused("a byte after it", ZSTD, _after(_zstd(), b"\0"), is_read=True),
    _refused("zeros after it", ZSTD, _after(_zstd(), bytes(64)), is_read=True),
    Packed("half a frame after it", ZSTD, _after(_zstd(), _zstd()(bytes(99))[:-2])),
    Packed("half a skippable frame after it", ZSTD, _after(_zstd(), _SKIPPABLE[:-2])),
    _refused(
        "a wrong checksum", ZSTD, lambda data: _zstd(write_checksum=True)(data)[:-1] + b"\x55"
    ),
    _refused("cut off", ZSTD, lambda data: _zstd()(data)[:-2]),
    _refused("a raw dictionary", ZSTD, _zstd_dictionary),
    _refused("no magic number", ZSTD, _zstd_magicless),
    _refused("the wrong codec", ZSTD, gzip.compress),
    _refused("the wrong codec", GZIP, _zstd()),
    _refused("not compressed", GZIP, bytes),
    _refused("not compressed", SNAPPY, bytes),
    _refused("not compressed", LZ4, bytes),
    _refused("not compressed", ZSTD, bytes),
]
