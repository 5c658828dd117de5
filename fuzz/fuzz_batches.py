"""Record batches: all readers return the same records, or all refuse them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fuzz.running import instrumented, run

with instrumented(__name__):
    from aioprod.codecs import Codec
    from aioprod.consumer import records as consumer_records
    from aioprod.errors import CorruptRecordError
    from aioprod.native import python_sources
    from aioprod.protocol import record_reader
    from aioprod.protocol.batch_cursor import iter_batches
    from aioprod.protocol.compression import compress
    from aioprod.protocol.old_formats import in_current_format
    from aioprod.protocol.record_batch import build_batch
    from aioprod.protocol.record_reader import read_records
    from aioprod.types import TopicPartition
    from aioprod.varints import encode_varint

_TP = TopicPartition("topic", 0)
_AS_IS, _WHOLE, _BODY, _OLD = range(4)
Rows = list[tuple[Any, ...]]


def TestOneInput(data: bytes) -> None:
    """Choose what the bytes are by the first one: batches with checksums, batches whose checksums
    do not count, the records of a batch, or messages of before Kafka 0.11.
    """
    if len(data) < 4:
        return
    form, checked = data[0] % 4, data[0] % 4 == _AS_IS
    if form == _BODY:
        log = build_batch(
            data[4:],
            attributes=data[1] & 0x0F if data[1] & 7 in tuple(Codec) else 0,
            last_offset_delta=max(data[2] - 1, 0),
            base_timestamp=1_700_000_000_000,
            max_timestamp=1_700_000_000_999,
            record_count=data[2],
        )
    else:
        log = data[1:]
    if form == _OLD:
        log = bytes(in_current_format(log, check_crcs=False)) if _fits(log) else b""
    found = [_outcome(read, log, checked) for read in (_records, _consumer)]
    with _without_accelerator():
        found += [_outcome(read, log, checked) for read in (_records, _consumer)]
    assert all(each == found[0] for each in found[1:]), found


def _fits(log: bytes) -> bool:
    try:
        in_current_format(log, check_crcs=False)
    except CorruptRecordError:
        return False
    return True


def _outcome(read: Callable[[bytes, bool], Rows], log: bytes, checked: bool) -> Rows | None:
    try:
        return read(log, checked)
    except CorruptRecordError:
        return None


def _records(log: bytes, checked: bool) -> Rows:
    return [_row(record) for record in read_records(log, check_crc=checked)]


def _consumer(log: bytes, checked: bool) -> Rows:
    rows: Rows = []
    for header, place in iter_batches(log, check_crc=checked):
        if header.is_control:
            continue
        batch = consumer_records.open_batch(_TP, log, place, header, 0)
        rows += [_row(record) for record in batch.take(batch.left)]
    return rows


def _row(record: Any) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


@contextmanager
def _without_accelerator() -> Iterator[None]:
    places = ((record_reader, "parse_records"), (consumer_records, "cut_records"))
    accelerated = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, python_sources[name])
    try:
        yield
    finally:
        for (module, name), function in zip(places, accelerated, strict=True):
            setattr(module, name, function)


def seeds() -> list[bytes]:
    """Return batches with each codec, and records without a batch."""
    body = b"".join(_record(number) for number in range(5))
    found = [bytes((_BODY, 0, 5, 0)) + body, bytes((_OLD,)) + _old_message()]
    for codec in Codec:
        batch = build_batch(
            compress(codec, body),
            attributes=codec,
            last_offset_delta=4,
            base_timestamp=1_700_000_000_000,
            max_timestamp=1_700_000_000_999,
            record_count=5,
        )
        found += [bytes((form,)) + bytes(batch) * (1 + form) for form in (_AS_IS, _WHOLE)]
        found.append(bytes((_BODY, codec, 5, 0)) + compress(codec, body))
    return found


def _record(number: int) -> bytes:
    parts = [b"\0", encode_varint(number), encode_varint(number)]
    for data in (b"key" if number % 2 else None, b"value %d" % number):
        parts += [encode_varint(-1)] if data is None else [encode_varint(len(data)), data]
    parts += [encode_varint(1), encode_varint(1), b"h", encode_varint(-1)]
    record = b"".join(parts)
    return encode_varint(len(record)) + record


def _old_message() -> bytes:
    message = b"\x01\0" + (1_700_000_000_000).to_bytes(8, "big") + b"\0\0\0\1k\0\0\0\1v"
    return bytes(8) + (len(message) + 4).to_bytes(4, "big") + bytes(4) + message


if __name__ == "__main__":
    run(TestOneInput, seeds())
