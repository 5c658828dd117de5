"""Batches of a fixed number of records, made by hand."""

from __future__ import annotations

from aioprod.protocol.record_batch import build_batch
from tests.foreign_bytes.corpus import Packed
from tests.protocol.record_bytes import BASE, record

VALUES = [b"value %d " % number * 20 for number in range(20)]
PLAIN = b"".join(
    record(number, number, 1, b"k", len(value), value, 1, 1, b"h", 1, b"x")
    for number, value in enumerate(VALUES)
)


def batch_of(packed: Packed) -> bytes:
    """Return a batch of `VALUES` in this compressed form."""
    return batch(packed.pack(PLAIN), attributes=packed.codec, count=len(VALUES))


def batch(
    body: bytes,
    *,
    count: int,
    attributes: int = 0,
    last_delta: int | None = None,
    base_timestamp: int = BASE,
) -> bytes:
    """Return a batch of any records, as a producer sends it."""
    return build_batch(
        body,
        attributes=attributes,
        last_offset_delta=count - 1 if last_delta is None else last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=min(base_timestamp + count, 2**63) - 1,
        record_count=count,
    )
