"""All that Kafka stores is decompressed, by every library, and read by every reader."""

from __future__ import annotations

import pytest

from aioprod.errors import CorruptRecordError
from aioprod.protocol.compression import decompress
from tests.foreign_bytes.batches import PLAIN, VALUES, batch_of
from tests.foreign_bytes.corpus import CORPUS, Packed
from tests.foreign_bytes.readers import ALL_READERS, Reader
from tests.protocol.codec_backends import BACKENDS, using


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("packed", CORPUS, ids=str)
def test_every_library_reads_what_brokers_store(packed: Packed, backend: str) -> None:
    data = packed.pack(PLAIN)
    with using(backend):
        if packed.is_read:
            assert decompress(packed.codec, data) == PLAIN
        else:
            with pytest.raises(CorruptRecordError):
                decompress(packed.codec, data)


@pytest.mark.parametrize("read", ALL_READERS)
def test_every_reader_reads_what_brokers_store(read: Reader) -> None:
    for packed in CORPUS:
        data = batch_of(packed)
        if packed.is_read:
            assert [value for _, _, _, value, _ in read(data)] == VALUES, str(packed)
        else:
            with pytest.raises(CorruptRecordError):
                read(data)


def test_all_that_brokers_store_is_read() -> None:
    assert not [str(each) for each in CORPUS if not (each.answer or each.is_read)]
