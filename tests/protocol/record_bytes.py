"""Record batches as bytes, from rows or written by hand, and random rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from aioprod.codecs import Codec
from aioprod.protocol.record_batch import build_batch
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.varints import encode_varint

BASE = 1_700_000_000_000

timestamps = st.one_of(
    st.just(BASE), st.integers(BASE - 200, BASE + 2_000_000), st.integers(0, 4_000_000_000_000)
)
headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=4)


def batch_of(rows: Sequence[Any], codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of (timestamp, key, value, headers), built by the producer's code."""
    writer = RecordBatchWriter(rows[0][0] if rows else BASE)
    for row in rows:
        writer.append(*row)
    return writer.build(codec=codec)


def handmade(
    *records: bytes,
    count: int | None = None,
    last_delta: int = 1000,
    attributes: int = 0,
    base_offset: int = 50,
    base_timestamp: int = BASE,
) -> bytes:
    """Return a batch of any bytes with a valid checksum."""
    return build_batch(
        b"".join(records),
        attributes=attributes,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=BASE + 9,
        record_count=len(records) if count is None else count,
        base_offset=base_offset,
    )


def record(*parts: bytes | int) -> bytes:
    """Return a record of these parts, with its length; numbers as varints."""
    rest = b"\0" + b"".join(
        part if isinstance(part, bytes) else encode_varint(part) for part in parts
    )
    return encode_varint(len(rest)) + rest
