"""Batches that the accelerator encodes into blocks of memory, which are used again: the bytes are
those of a batch that is joined, and they do not change while a view of them is left.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import native
from aioprod.protocol.produce_encoder import encode_produce_request
from aioprod.protocol.record_encoder import encode_headers
from aioprod.protocol.record_reader import read_records
from aioprod.protocol.record_writer import RecordBatchWriter

pytestmark = pytest.mark.skipif(not native.in_use, reason="pure Python joins each batch")

SIZE = 16_384
NUMBERED: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11}
FIELD = st.none() | st.binary(max_size=40) | st.binary(min_size=1_500, max_size=3_000)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2)
RECORDS = st.lists(st.tuples(st.integers(0, 2**41), FIELD, FIELD, HEADERS), min_size=1, max_size=30)


def filled(blocks: list[bytearray] | None, count: int = 100, value: bytes = b"x") -> Any:
    writer = RecordBatchWriter(5, blocks, SIZE)
    for number in range(count):
        writer.add(5, None, value * 90 + b"%d" % number)
    return writer


@given(records=RECORDS, transactional=st.booleans())
def test_the_bytes_are_those_of_a_batch_that_is_joined(
    records: list[Any], transactional: bool
) -> None:
    """Also of records that a block has no room for."""
    blocks: list[bytearray] = []
    writers = RecordBatchWriter(5, blocks, SIZE), RecordBatchWriter(5)
    for timestamp, key, value, headers in records:
        for writer in writers:
            writer.add(timestamp, key, value, encode_headers(headers))
    in_place, joined = writers
    expected = joined.build(transactional=transactional, **NUMBERED)
    assert in_place.build_in_place(transactional=transactional, **NUMBERED) == expected
    assert in_place.build(transactional=transactional, **NUMBERED) == expected
    assert not blocks
    in_place.release()
    assert len(blocks) <= 1


def test_a_block_is_used_again() -> None:
    blocks: list[bytearray] = []
    for number in range(5):
        writer = filled(blocks, value=b"%d" % number)
        view = writer.build_in_place(**NUMBERED)
        assert isinstance(view, memoryview) and not blocks
        request = encode_produce_request(11, 1, "c", None, -1, 1_000, [("t", [(0, view)])])
        assert b"".join(request).count(b"%d" % number * 90) == 100
        del view, request
        writer.release()
        assert len(blocks) == 1


def test_a_block_of_which_a_view_is_left_is_not_used_again() -> None:
    """A transport may still have to send it, though the batch has expired."""
    blocks: list[bytearray] = []
    writer = filled(blocks)
    view = writer.build_in_place(**NUMBERED)
    sent = bytes(view)
    writer.release()
    assert blocks == []
    for _ in range(3):
        filled(blocks, value=b"y").build_in_place(**NUMBERED)
    assert view == sent


def test_other_sequence_numbers_do_not_change_bytes_that_may_have_to_be_sent() -> None:
    writer = filled([])
    view = writer.build_in_place(**NUMBERED)
    sent = bytes(view)
    again = writer.build_in_place(producer_id=7, producer_epoch=4, base_sequence=0)
    assert view == sent != again
    assert read_records(bytes(again)) == read_records(sent)
    assert filled(None).build(producer_id=7, producer_epoch=4, base_sequence=0) == again


def test_other_sequence_numbers_need_no_copy_if_nothing_has_to_be_sent() -> None:
    writer = filled([])
    writer.build_in_place(**NUMBERED)
    again = writer.build_in_place(producer_id=7, producer_epoch=4, base_sequence=0)
    assert isinstance(again, memoryview)
    assert filled(None).build(producer_id=7, producer_epoch=4, base_sequence=0) == again


def test_few_records_take_no_block() -> None:
    blocks = [bytearray(SIZE + 1)]
    writer = filled(blocks, count=5)
    assert isinstance(writer.build_in_place(**NUMBERED), bytes)
    writer.release()
    assert len(blocks) == 1


def test_large_batches_take_no_block() -> None:
    """Their memory grows with their records."""
    blocks: list[bytearray] = []
    writer = RecordBatchWriter(5, blocks, 900_000)
    for _ in range(100):
        writer.add(5, None, b"x" * 100)
    assert isinstance(writer.build_in_place(**NUMBERED), bytes)
    writer.release()
    assert not blocks


def test_a_limited_number_of_free_blocks_is_kept() -> None:
    blocks: list[bytearray] = []
    writers = [filled(blocks) for _ in range(400)]
    for writer in writers:
        writer.build_in_place(**NUMBERED)
        writer.release()
    assert 100 < len(blocks) <= (4 << 20) // SIZE


@pytest.mark.parametrize("free", [[b"x" * (SIZE + 1)], [bytearray(5)], [None]], ids=repr)
def test_what_is_not_a_block_is_not_written_to(free: list[Any]) -> None:
    before = list(free)
    assert read_records(bytes(filled(free).build_in_place(**NUMBERED)))
    assert free == before
