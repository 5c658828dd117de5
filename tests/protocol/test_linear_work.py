"""Reading a batch takes a bounded amount of work per byte, whatever its producer has written.

Any producer with access to a topic can write such batches. Work is counted, not timed
(``counted_work``).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.compression import compress, decompress
from aioprod.protocol.record_batch import build_batch
from aioprod.protocol.record_reader import read_columns
from tests.protocol.codec_backends import BACKENDS, using
from tests.protocol.counted_work import counted
from tests.protocol.record_bytes import BASE, record
from tests.selection import by_default_each

#: Lines and bytes per byte of a batch and of its decompressed records. Records of the same layout,
#: which are most, take 2 as rows and 9 as columns; no batch here takes more than 5 and 10.
MOST = {"rows": 6, "columns": 12, "no headers": 12, "codec": 12}
#: For one call, even if the batch is small.
ONCE = 10_000
SMALL, LARGE = 4_000, 40_000


def batch(body: bytes, count: int, codec: Codec = Codec.NONE, packed: bytes | None = None) -> bytes:
    return build_batch(
        compress(codec, body) if packed is None else packed,
        attributes=codec,
        last_offset_delta=(1 << 31) - 1,
        base_timestamp=BASE,
        max_timestamp=BASE,
        record_count=count,
    )


def by_rows(data: bytes) -> None:
    for header, place in iter_batches(data):
        read_columns(data, place, header)


def by_columns(data: bytes) -> None:
    for _ in read_arrays(data, iter_batches(data)):
        pass


def by_columns_without_headers(data: bytes) -> None:
    for _ in read_arrays(data, iter_batches(data), include_headers=False):
        pass


READERS = {"rows": by_rows, "columns": by_columns, "no headers": by_columns_without_headers}


def check(reader: str, data: bytes, plain_size: int, *, refused: bool = False) -> None:
    check_work(MOST[reader], lambda: READERS[reader](data), len(data) + plain_size, refused)


def check_decompression(
    codec: Codec, packed: bytes, plain_size: int = 0, *, refused: bool | None = True
) -> None:
    """Read or refused, with no more work than others."""
    size = len(packed) + plain_size
    check_work(MOST["codec"], lambda: decompress(codec, packed), size, refused)


def check_work(most: int, read: Callable[[], object], size: int, refused: bool | None) -> None:
    errors: list[CorruptRecordError] = []

    def outcome() -> None:
        try:
            read()
        except CorruptRecordError as error:
            errors.append(error)

    work = counted(outcome)
    assert refused is None or bool(errors) == refused
    assert work <= ONCE + most * size, f"{work} for {size} bytes: {work / size:.1f} a byte"


Record = Callable[[int], bytes]


def sizes(*values: int) -> Record:
    """Return records with values of these sizes, in turn."""
    return lambda number: record(
        0, number, -1, values[number % len(values)], b"x" * values[number % len(values)], 0
    )


def runs(length: int, *values: int, first: int = 0) -> Record:
    """Return this number of records with values of one size, then as many of the next."""

    def one(number: int) -> bytes:
        size = values[number // length % len(values)]
        return record(0, first + number, -1, size, b"x" * size, 0)

    return one


def broken(
    length: int, stamps: Sequence[int] = (0,), key: bool = False, gap: int = 0, headers: bytes = b""
) -> Record:
    """Return runs of records of the same layout; one record after each run differs."""

    def one(number: int) -> bytes:
        odd = number % (length + 1) == length
        stamp = stamps[number // (length + 1) % len(stamps)]
        key_parts = (1, b"k") if key and odd else (-1,)
        delta = number + number // (length + 1) * gap
        return record(stamp, delta, *key_parts, 1, b"v", headers if headers and odd else 0)

    return one


def with_headers(count: int, vary: bool = False) -> Record:
    def one(number: int) -> bytes:
        block = b"\x02" + bytes([97 + number % 26 if vary else 97]) + b"\x01"
        return record(
            0, number, -1, -1, count + number % 3 * vary, block * (count + number % 3 * vary)
        )

    return one


FAMILIES: dict[str, Record] = {
    "all alike": sizes(1),
    "all empty": sizes(0),
    "sizes alternate": sizes(0, 1),
    "sizes of one and two bytes alternate": sizes(50, 60),
    **{
        f"runs of {length}": runs(length, 1, 2)
        for length in (2, 4, 5, 15, 16, 17, 31, 32, 33, 40, 48, 64, 257)
    },
    "runs of 16, large": runs(16, 60, 61),
    "runs of 16, offsets of three bytes": runs(16, 1, 2, first=9_000),
    "runs of 16, offsets of four bytes": runs(16, 1, 2, first=3_000_000),
    "runs of 16, offsets of five bytes": runs(16, 1, 2, first=1 << 29),
    "all alike, offsets of four bytes": runs(1 << 30, 1, first=3_000_000),
    **{
        f"another timestamp after {length}": broken(length, (0, 100, 20_000))
        for length in (1, 5, 16, 32, 64)
    },
    **{f"a key after {length}": broken(length, key=True) for length in (1, 5, 16, 32, 64)},
    **{f"a gap after {length}": broken(length, gap=3) for length in (1, 5, 16, 32)},
    **{
        f"a header after {length}": broken(length, headers=b"\x02\x02h\x01")
        for length in (1, 5, 16, 32)
    },
    "one header each": with_headers(1),
    "headers vary": with_headers(2, vary=True),
    "300 headers each": with_headers(300),
    "2,000 headers each": with_headers(2_000),
}


def body_of(one: Record, size: int) -> tuple[bytes, int]:
    body, count = bytearray(), 0
    while len(body) < size:
        body += one(count)
        count += 1
    return bytes(body), count


@pytest.mark.parametrize(
    ("family", "reader"),
    [
        pytest.param(
            family, reader, id=f"{family}-{reader}", marks=by_default_each(2, row + column)
        )
        for row, family in enumerate(FAMILIES)
        for column, reader in enumerate(["rows", "columns"])
    ],
)
def test_records_of_all_families(reader: str, family: str) -> None:
    body, count = body_of(FAMILIES[family], LARGE)
    check(reader, batch(body, count), len(body))


@pytest.mark.parametrize("reader", READERS)
def test_one_record_of_many_headers(reader: str) -> None:
    block = b"\x00\x01" * (LARGE // 2)
    body = record(0, 0, -1, -1, len(block) // 2, block)
    check(reader, batch(body, 1), len(body))


@pytest.mark.parametrize("reader", ["rows", "columns"])
@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 30, 57, 58, 63, 64]),  # of the value
            st.sampled_from([0, 1, 64, 9_000]),  # of the timestamp's delta
            st.sampled_from([None, b"", b"key"]),
            st.sampled_from([0, 0, 0, 1, 70]),  # of the gap before
            st.integers(0, 2),  # of headers
            st.integers(1, 70),  # of records
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0, 8_000, 2_000_000]),
)
def test_runs_of_any_kind(
    reader: str, kinds: list[tuple[int, int, bytes | None, int, int, int]], first: int
) -> None:
    body, count, offset = bytearray(), 0, first
    while len(body) < SMALL:
        for size, stamp, key, gap, headers, repeats in kinds:
            offset += gap
            key_parts: tuple[bytes | int, ...] = (-1,) if key is None else (len(key), key)
            for _ in range(repeats):
                body += record(
                    stamp, offset, *key_parts, size, bytes(size), headers, b"\x02h\x01" * headers
                )
                offset += 1
                count += 1
    check(reader, batch(bytes(body), count), len(body))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", Codec)
def test_more_records_are_claimed_than_there_are(reader: str, codec: Codec) -> None:
    zeros = bytes(LARGE)
    same_offset = (LARGE // 7) * record(0, 0, -1, -1, 0)
    behind = body_of(sizes(0), LARGE // 2)[0] + bytes(LARGE // 2)
    endless = b"\xff" * LARGE
    for body in (zeros, same_offset, behind, endless):
        for count in (len(body) // 7, (1 << 31) - 1):
            check(reader, batch(body, count, codec), len(body), refused=True)


@pytest.mark.parametrize("reader", READERS)
def test_sizes_are_claimed_far_beyond_what_there_is(reader: str) -> None:
    good, count = body_of(sizes(0), LARGE)
    huge = (1 << 61) - 1
    ends = [
        record(0, count, huge, b"k", 0),
        record(0, count, -1, huge, b"v", 0),
        record(0, count, -1, -1, huge),
        record(0, count, -1, -1, 1, huge),
        record(0, count, -1, -1, 1, 0, huge),
        record(0, count, -1, -1, 900, b"\x00\x01" * 10),
        b"\xfe\xff\xff\xff\x0f",
    ]
    for end in ends:
        # Headers that were not requested are not checked.
        wrong_headers = end in ends[2:6]
        refused = not (reader == "no headers" and wrong_headers and end != ends[2])
        check(reader, batch(good + end, count + 1), len(good + end), refused=refused)


# -- codecs ----------------------------------------------------------------------------------------


def gzip_members(parts: Sequence[bytes]) -> bytes:
    return b"".join(zlib.compress(part, wbits=31) for part in parts)


def xerial(parts: Sequence[bytes]) -> bytes:
    blocks = [compress_raw(part) for part in parts]
    return (
        b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)
    )


def compress_raw(part: bytes) -> bytes:
    """Snappy literals, which are up to 60 bytes."""
    assert len(part) <= 60
    return bytes([len(part)]) + (bytes([len(part) - 1 << 2]) + part if part else b"")


def lz4_blocks(parts: Sequence[bytes]) -> bytes:
    """Blocks that are not compressed; an empty one ends the frame."""
    header = compress(Codec.LZ4, b"")[:7]
    return (
        header
        + b"".join(struct.pack("<I", len(part) | 1 << 31) + part for part in parts if part)
        + bytes(4)
    )


def zstd_blocks(parts: Sequence[bytes]) -> bytes:
    """Raw blocks in one frame."""
    blocks = b"".join((len(part) << 3).to_bytes(3, "little") + part for part in parts)
    return b"\x28\xb5\x2f\xfd\x00\x58" + blocks + b"\x01\x00\x00"


CONTAINERS = {
    Codec.GZIP: gzip_members,
    Codec.SNAPPY: xerial,
    Codec.LZ4: lz4_blocks,
    Codec.ZSTD: zstd_blocks,
}


def test_each_codec_has_a_row_here() -> None:
    assert set(CONTAINERS) == set(Codec) - {Codec.NONE}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each library for lz4 and zstd."""
    with using(request.param):
        yield


@pytest.mark.parametrize("codec", CONTAINERS)
def test_many_small_parts_of_a_compressed_batch(backend: None, codec: Codec) -> None:
    """Members of gzip, blocks of the others."""
    body, count = body_of(sizes(0), SMALL)
    parts = [body[start : start + 7] for start in range(0, len(body), 7)]
    mixed = [
        part for start in range(0, len(body), 50) for part in (body[start : start + 50], b"", b"")
    ]
    for pieces in (parts, mixed, [b""] * (LARGE // 20) + parts):
        packed = CONTAINERS[codec](pieces)
        assert decompress(codec, packed) == body
        for reader in READERS:
            data = batch(body, count, codec, packed)
            most = MOST["codec"] + MOST[reader]
            check_work(most, partial(READERS[reader], data), len(data) + len(body), refused=False)


@pytest.mark.parametrize("codec", CONTAINERS)
def test_many_empty_parts_and_a_broken_end(backend: None, codec: Codec) -> None:
    packed = CONTAINERS[codec]([b"", b"x"] * (LARGE // 20))
    for data in (
        packed[:-1],
        packed + b"\x1f",
        packed[: len(packed) // 2] + b"\xff" * (len(packed) // 2),
    ):
        check_decompression(codec, data, len(packed), refused=None)


def test_many_frames_and_bytes_after_them(backend: None) -> None:
    skippable = b"\x50\x2a\x4d\x18" + bytes(4)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for plain in (b"x", b""):
            packed = compress(codec, plain) * (LARGE // 20)
            check_decompression(codec, packed, refused=False)
            check_decompression(codec, packed + packed[:-3], refused=None)
            check_decompression(codec, packed[: LARGE // 20] + b"\xff" * LARGE, refused=None)
    packed = compress(Codec.ZSTD, b"x")
    check_decompression(Codec.ZSTD, skippable * LARGE + packed, refused=False)
    check_decompression(Codec.ZSTD, packed + skippable * LARGE, refused=False)
    check_decompression(Codec.ZSTD, (skippable + packed) * (LARGE // 20), refused=False)


def test_a_frame_that_claims_a_size_takes_no_memory_for_it(backend: None) -> None:
    claims = zstandard.ZstdCompressor(write_content_size=True).compress(b"x" * 300)
    assert zstandard.get_frame_parameters(claims).content_size == 300
    zstd = claims[:4] + bytes([0xE0]) + struct.pack("<Q", 1 << 40) + claims[7:]
    assert zstandard.get_frame_parameters(zstd).content_size == 1 << 40
    snappy = b"\xff\xff\xff\x7f" + b"x" * 20
    for codec, packed in (
        (Codec.ZSTD, zstd),
        (Codec.SNAPPY, snappy),
        (Codec.SNAPPY, xerial([b"x"] * 50) + len(snappy).to_bytes(4, "big") + snappy),
    ):
        check_decompression(codec, packed)
