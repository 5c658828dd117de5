"""Codecs: what is written is what Kafka's own clients read, what they write is read, and bad bytes cost little and end in one error."""

from __future__ import annotations

import gzip
import struct
import threading

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import ConfigError, CorruptRecordError
from aioprod.protocol.compression import DEFAULT_LEVELS, LEVELS, Codec, check_level, compress, decompress

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"order %d of customer %d;" % (number, number * 7919 % 1000) for number in range(8000))  # several blocks of each format


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=2000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Codec, kind: type[bytes | bytearray | memoryview]) -> None:
    packed = compress(codec, kind(TEXT))
    assert type(packed) is bytes
    plain = decompress(codec, kind(packed))
    assert type(plain) is bytes
    assert plain == TEXT


@pytest.mark.parametrize("codec", [codec for codec in COMPRESSING if LEVELS[codec]])
def test_every_level_comes_back(codec: Codec) -> None:
    sizes = {}
    for level in LEVELS[codec]:
        if level >= -7 and not (codec is Codec.GZIP and level == 0):
            packed = compress(codec, TEXT, level)
            assert decompress(codec, packed) == TEXT
            sizes[level] = len(packed)
    assert len(set(sizes.values())) > 2, "levels make a difference"


def test_lowest_zstd_level_works() -> None:
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT, LEVELS[Codec.ZSTD].start)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, 10), (Codec.GZIP, -2), (Codec.GZIP, 0), (Codec.LZ4, 0), (Codec.LZ4, 18), (Codec.ZSTD, 23), (Codec.SNAPPY, 1), (Codec.NONE, 1)],
)
def test_a_level_that_the_codec_lacks_is_refused(codec: Codec, level: int) -> None:
    with pytest.raises(ConfigError, match=str(level)):
        compress(codec, b"", level)


@pytest.mark.parametrize(("codec", "level"), DEFAULT_LEVELS.items())
def test_no_level_is_the_default_level(codec: Codec, level: int) -> None:
    check_level(codec, level)
    assert compress(codec, TEXT) == compress(codec, TEXT, level)


def test_codecs_have_their_names_and_wire_numbers() -> None:
    assert [(Codec.from_name(name), number) for number, name in enumerate(["none", "gzip", "snappy", "lz4", "zstd"])] == [
        (Codec.NONE, 0),
        (Codec.GZIP, 1),
        (Codec.SNAPPY, 2),
        (Codec.LZ4, 3),
        (Codec.ZSTD, 4),
    ]
    for name in ("brotli", "GZIP", ""):
        with pytest.raises(ConfigError, match="compression_type"):
            Codec.from_name(name)


class TestWhatJavaReads:
    def test_gzip_is_a_gzip_file(self) -> None:
        assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT

    def test_snappy_is_written_in_xerial_blocks_of_32_kib(self) -> None:
        packed = compress(Codec.SNAPPY, TEXT)
        assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" + b"\0\0\0\1"
        position, plain = 16, b""
        while position < len(packed):
            (size,) = struct.unpack_from(">i", packed, position)
            block = bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))
            assert len(block) <= 32 << 10
            plain += block
            position += 4 + size
        assert plain == TEXT

    def test_lz4_blocks_are_independent_64_kib_without_checksums_or_size(self) -> None:
        for level in (None, 1, 17):
            packed = compress(Codec.LZ4, TEXT, level)
            assert packed[:6] == b"\x04\x22\x4d\x18\x60\x40", "version 1, independent, 64 KiB: Java's reader refuses linked blocks"
            assert lz4.frame.decompress(packed) == TEXT

    def test_lz4_default_level_is_the_fast_compressor_as_in_java(self) -> None:
        fast = lz4.frame.compress(TEXT, compression_level=0, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
        assert compress(Codec.LZ4, TEXT) == fast
        assert len(compress(Codec.LZ4, TEXT, 10)) < len(fast)

    def test_zstd_is_one_frame(self) -> None:
        assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, TEXT)) == TEXT


class TestWhatOthersWrite:
    def test_raw_snappy(self) -> None:
        assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT

    def test_gzip_of_several_members(self) -> None:
        assert decompress(Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"more")) == TEXT + b"more"

    def test_lz4_with_checksums_size_and_linked_blocks(self) -> None:
        packed = lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, store_size=True, block_linked=True)
        assert decompress(Codec.LZ4, packed) == TEXT

    def test_zstd_stream_that_does_not_tell_its_size(self) -> None:
        stream = zstandard.ZstdCompressor(level=3).compressobj()
        packed = stream.compress(TEXT) + stream.flush()
        assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
        assert decompress(Codec.ZSTD, packed) == TEXT


class TestBadBytes:
    @pytest.mark.parametrize("codec", COMPRESSING)
    @given(garbage=st.binary(max_size=200), kept=st.integers(0, 24))
    def test_garbage_ends_in_one_error(self, codec: Codec, garbage: bytes, kept: int) -> None:
        for data in (garbage, compress(codec, b"some text " * 9)[:kept] + garbage):
            try:
                plain = decompress(codec, data, 10_000)
            except CorruptRecordError:
                continue
            assert len(plain) <= 10_000

    @pytest.mark.parametrize("codec", COMPRESSING)
    @given(at=st.integers(0, 400), byte=st.integers(0, 255))
    def test_a_changed_byte_ends_in_one_error_or_in_bytes(self, codec: Codec, at: int, byte: int) -> None:
        packed = bytearray(compress(codec, TEXT[:3000]))
        packed[at % len(packed)] = byte
        try:
            assert len(decompress(codec, packed, 10_000)) <= 10_000
        except CorruptRecordError:
            pass

    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_cut_off_data_is_refused(self, codec: Codec) -> None:
        packed = compress(codec, TEXT[:3000])
        whole_header = 16 if codec is Codec.SNAPPY else 0  # an xerial header with no blocks is a whole stream
        for end in range(len(packed)):
            if end and end == whole_header:
                assert decompress(codec, packed[:end]) == b""
                continue
            with pytest.raises(CorruptRecordError):
                decompress(codec, packed[:end])

    @pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD, Codec.GZIP])
    def test_bytes_behind_the_end_are_refused(self, codec: Codec) -> None:
        with pytest.raises(CorruptRecordError):
            decompress(codec, compress(codec, b"text") + b"more")

    @pytest.mark.parametrize("codec", Codec)
    def test_the_limit_is_exact(self, codec: Codec) -> None:
        packed = compress(codec, TEXT)
        assert decompress(codec, packed, len(TEXT)) == TEXT
        with pytest.raises(CorruptRecordError, match=f"more than the {len(TEXT) - 1} bytes"):
            decompress(codec, packed, len(TEXT) - 1)

    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_a_bomb_is_stopped(self, codec: Codec) -> None:
        bomb = compress(codec, bytes(64 << 20))
        with pytest.raises(CorruptRecordError, match="more than the 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)

    def test_a_snappy_block_that_claims_4_gib_takes_no_memory(self) -> None:
        with pytest.raises(CorruptRecordError, match="more than"):
            decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_threads_do_not_disturb_one_another(codec: Codec) -> None:
    broken: list[int] = []

    def work(seed: int) -> None:
        text = TEXT[seed * 100 : seed * 100 + 60_000]
        for _ in range(10):
            if decompress(codec, compress(codec, text)) != text:
                broken.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not broken
    assert not any(thread.is_alive() for thread in threads)
