"""Codecs are compatible with Kafka's clients in both directions, and invalid bytes cost little and
raise one kind of error.
"""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.errors import ConfigError, CorruptRecordError
from aioprod.protocol.compression import compress, decompress
from tests.protocol.codec_backends import BACKENDS, using


@pytest.fixture(scope="module", autouse=True, params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test with each library for lz4 and zstd."""
    with using(request.param):
        yield request.param


COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
# Several blocks of each format.
TEXT = b"".join(
    b"order %d of customer %d;" % (number, number * 7919 % 1000) for number in range(8000)
)


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


@pytest.mark.parametrize("codec", [codec for codec in COMPRESSING if codec.levels])
def test_every_level_comes_back(codec: Codec) -> None:
    sizes = {}
    assert codec.levels is not None
    for level in range(-7, 23):
        if codec.levels.allow(level):
            packed = compress(codec, TEXT, level)
            assert decompress(codec, packed) == TEXT
            sizes[level] = len(packed)
    assert len(set(sizes.values())) > 2, "levels make a difference"


def test_lowest_zstd_level_works() -> None:
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT, -131_072)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, 10),
        (Codec.GZIP, -2),
        (Codec.GZIP, 0),
        (Codec.LZ4, 0),
        (Codec.LZ4, 18),
        (Codec.ZSTD, 23),
        (Codec.SNAPPY, 1),
        (Codec.NONE, 1),
    ],
)
def test_a_level_that_the_codec_lacks_is_refused(codec: Codec, level: int) -> None:
    with pytest.raises(ConfigError, match=str(level)):
        compress(codec, b"", level)


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)])
def test_no_level_is_the_default_level(codec: Codec, level: int) -> None:
    codec.check_level("level", level)
    assert compress(codec, TEXT) == compress(codec, TEXT, level)


def test_codecs_have_their_names_and_wire_numbers() -> None:
    assert [
        (Codec.from_name(name), number)
        for number, name in enumerate(["none", "gzip", "snappy", "lz4", "zstd"])
    ] == [
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
            assert packed[:6] == b"\x04\x22\x4d\x18\x60\x40", (
                "version 1, independent, 64 KiB: Java's reader refuses linked blocks"
            )
            assert lz4.frame.decompress(packed) == TEXT

    def test_lz4_default_level_is_the_fast_compressor_as_in_java(self) -> None:
        fast = lz4.frame.compress(
            TEXT,
            compression_level=0,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        assert compress(Codec.LZ4, TEXT) == fast
        assert len(compress(Codec.LZ4, TEXT, 10)) < len(fast)

    def test_zstd_is_one_frame(self) -> None:
        assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, TEXT)) == TEXT


class TestWhatOthersWrite:
    def test_raw_snappy(self) -> None:
        assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT

    def test_gzip_of_several_members(self) -> None:
        assert (
            decompress(Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"more")) == TEXT + b"more"
        )

    def test_lz4_with_checksums_size_and_linked_blocks(self) -> None:
        packed = lz4.frame.compress(
            TEXT, content_checksum=True, block_checksum=True, store_size=True, block_linked=True
        )
        assert decompress(Codec.LZ4, packed) == TEXT

    def test_zstd_stream_that_does_not_show_its_size(self) -> None:
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
    def test_a_changed_byte_ends_in_one_error_or_in_bytes(
        self, codec: Codec, at: int, byte: int
    ) -> None:
        packed = bytearray(compress(codec, TEXT[:3000]))
        packed[at % len(packed)] = byte
        try:
            assert len(decompress(codec, packed, 10_000)) <= 10_000
        except CorruptRecordError:
            pass

    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_cut_off_data_is_refused(self, codec: Codec) -> None:
        packed = compress(codec, TEXT[:3000])
        # An xerial header with no blocks is a whole stream, and three bytes after it are ignored.
        whole = range(16, 20) if codec is Codec.SNAPPY else range(0)
        for end in range(len(packed)):
            if end in whole:
                assert decompress(codec, packed[:end]) == b""
                continue
            with pytest.raises(CorruptRecordError):
                decompress(codec, packed[:end])

    @pytest.mark.parametrize("codec", Codec)
    def test_the_limit_is_exact(self, codec: Codec) -> None:
        packed = compress(codec, TEXT)
        assert decompress(codec, packed, len(TEXT)) == TEXT
        with pytest.raises(CorruptRecordError, match=f"limit of {len(TEXT) - 1} bytes"):
            decompress(codec, packed, len(TEXT) - 1)

    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_a_bomb_is_stopped(self, codec: Codec) -> None:
        bomb = compress(codec, bytes(64 << 20))
        with pytest.raises(CorruptRecordError, match="limit of 1000000 bytes"):
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


# -- the same by either library --------------------------------------------------------------------

BY_TWO = [Codec.LZ4, Codec.ZSTD]


def outcome(name: str, codec: Codec, packed: bytes, max_size: int = 10_000) -> object:
    with using(name):
        try:
            return decompress(codec, packed, max_size)
        except CorruptRecordError as error:
            return "too large" if "more than the" in str(error) else "corrupt"


def frames(codec: Codec) -> list[bytes]:
    """Return frames of some blocks, with any header."""
    plain = TEXT[:900]
    if codec is Codec.LZ4:
        return [
            lz4.frame.compress(
                plain,
                content_checksum=True,
                block_checksum=True,
                store_size=True,
                block_linked=True,
            ),
            lz4.frame.compress(
                plain[:100], compression_level=-1, block_size=lz4.frame.BLOCKSIZE_MAX4MB
            ),
            compress(codec, bytes(range(256))),  # a block that is stored
            compress(codec, b""),
        ]
    stream = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    blocks = (
        stream.compress(plain)
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        + stream.compress(bytes(300))
        + stream.flush()
    )
    return [
        blocks,
        compress(codec, plain),
        compress(codec, bytes(range(256))),
        compress(codec, bytes(5000)),
        compress(codec, b""),
    ]


class TestEitherLibrary:
    def test_the_faster_one_is_chosen_if_it_is_installed(self) -> None:
        for codec in BY_TWO:
            assert BACKENDS["libraries"][codec] != BACKENDS["cramjam"][codec]

    @pytest.mark.parametrize("codec", BY_TWO)
    def test_frames_cut_off_anywhere_and_with_bits_flipped_come_to_the_same(
        self, codec: Codec
    ) -> None:
        """The libraries may differ in their messages, but refuse the same data."""
        for packed in frames(codec):
            assert (
                outcome("libraries", codec, packed)
                == outcome("cramjam", codec, packed)
                != "corrupt"
            )
            for end in range(len(packed)):
                assert (
                    outcome("cramjam", codec, packed[:end])
                    == outcome("libraries", codec, packed[:end])
                    == "corrupt"
                ), end
            for bit in range(8 * len(packed)):
                broken = bytearray(packed)
                broken[bit // 8] ^= 1 << bit % 8
                found, expected = (
                    outcome("cramjam", codec, bytes(broken)),
                    outcome("libraries", codec, bytes(broken)),
                )
                assert found == expected or {found, expected} == {"corrupt", "too large"}, (
                    packed[:12].hex(),
                    bit,
                )

    @pytest.mark.parametrize("codec", BY_TWO)
    def test_what_is_behind_a_frame_is_read_if_it_is_complete(self, codec: Codec) -> None:
        """Only complete frames count; the first must be one."""
        first, second = compress(codec, TEXT[:500]), compress(codec, TEXT[500:700])
        skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
        between = skippable if codec is Codec.ZSTD else b""
        data = between + first + between + second + between
        for name in BACKENDS:
            assert outcome(name, codec, data) == TEXT[:700], name
        for end in range(len(data)):
            found = {outcome(name, codec, data[:end]) for name in BACKENDS}
            whole = TEXT[:500] if end < len(data) - len(between) else TEXT[:700]
            assert found == {"corrupt" if end < len(between + first) else whole}, end
        for bit in range(8 * len(between + first), 8 * len(data)):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            found = {outcome(name, codec, bytes(broken)) for name in BACKENDS}
            # Whether a broken frame is an error or the end is the library's choice.
            ignored = {TEXT[:500], TEXT[:700]} if bit >= 8 * (len(data) - len(between)) else set()
            assert found <= {"corrupt", "too large", TEXT[:500], *ignored} or len(found) == 1, bit

    @pytest.mark.parametrize("codec", [Codec.GZIP, *BY_TWO])
    def test_the_limit_counts_all_frames(self, codec: Codec) -> None:
        packed = compress(codec, bytes(1000))
        for name in BACKENDS:
            assert outcome(name, codec, packed * 10, 10_000) == bytes(10_000)
            assert outcome(name, codec, packed * 11, 10_000) == "too large"
            bomb = packed + compress(codec, bytes(64 << 20))
            assert outcome(name, codec, bomb, 10_000) == "too large"

    @pytest.mark.parametrize("codec", BY_TWO)
    def test_the_limit_is_the_same(self, codec: Codec) -> None:
        for plain in (TEXT[:3000], bytes(200_000), random.Random(1).randbytes(140_000)):
            packed = compress(codec, plain)
            for size, expected in (
                (len(plain), plain),
                (len(plain) - 1, "too large"),
                (0, "too large"),
                (1, "too large"),
            ):
                assert (
                    outcome("cramjam", codec, packed, size)
                    == expected
                    == outcome("libraries", codec, packed, size)
                )

    @pytest.mark.parametrize("codec", BY_TWO)
    @given(data=st.binary(max_size=300), level=st.sampled_from([1, 3, 9, 10, 17]))
    def test_each_reads_what_the_other_writes(self, codec: Codec, data: bytes, level: int) -> None:
        for text in (data, data * 20, TEXT[: len(data) * 90]):
            packed = {}
            for name in BACKENDS:
                with using(name):
                    packed[name] = compress(codec, text, level)
            for name in BACKENDS:
                assert (
                    outcome(name, codec, packed["libraries"], 30_000)
                    == outcome(name, codec, packed["cramjam"], 30_000)
                    == text
                )

    def test_lz4_frames_are_the_same_but_for_the_versions_of_the_compressor(self) -> None:
        for level in (None, 1, 12):
            heads, blocks = set(), set()
            for name in BACKENDS:
                with using(name):
                    packed = compress(Codec.LZ4, TEXT, level)
                heads.add(packed[:7])
                position, count = 7, 0
                while (
                    size := int.from_bytes(packed[position : position + 4], "little") & 0x7FFFFFFF
                ):
                    position, count = position + 4 + size, count + 1
                assert packed[position:] == bytes(4)
                blocks.add(count)
            assert len(heads) == len(blocks) == 1

    def test_without_the_optional_libraries_everything_is_there(self) -> None:
        program = """
import sys
sys.modules["lz4"] = sys.modules["zstandard"] = sys.modules["compression.zstd"] = None
import aioprod
from aioprod.protocol.codecs.backends import CRAMJAM_LZ4, CRAMJAM_ZSTD
from aioprod.codecs import Codec
from aioprod.protocol.compression import _BACKENDS, compress, decompress
assert (_BACKENDS[Codec.LZ4], _BACKENDS[Codec.ZSTD]) == (CRAMJAM_LZ4, CRAMJAM_ZSTD)
for codec in Codec:
    assert decompress(codec, compress(codec, b"some text" * 99)) == b"some text" * 99
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
