"""Records that brokers store are read, however odd; others are refused."""

from __future__ import annotations

import pytest

from aioprod.errors import CorruptRecordError
from tests.foreign_bytes.odd_records import ODD, Odd
from tests.foreign_bytes.readers import ALL_READERS, SPARK, Reader


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("read", ALL_READERS)
def test_every_reader_reads_them(read: Reader, odd: Odd) -> None:
    far = odd.rows is not None and any(abs(row[1]) > 2**63 // 1000 for row in odd.rows)
    if odd.rows is None or (far and read is SPARK):  # has microseconds
        with pytest.raises(CorruptRecordError):
            read(odd.data)
    else:
        assert read(odd.data) == odd.rows


def test_all_that_brokers_store_is_read() -> None:
    assert not [str(odd) for odd in ODD if odd.rows is None and not odd.answer]
