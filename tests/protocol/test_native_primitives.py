"""The accelerator reads and writes the protocol's primitive types as the sources in Python do, with
the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioprod import native
from aioprod.protocol import primitives as primitives  # has Reader and Writer
from tests.protocol.test_native import accelerator, assert_no_leak, python

needs_native = pytest.mark.skipif(
    not native.in_use, reason="only when they are in use its types have all methods"
)

LENGTHS = ["array_length", "nullable_array_length"]
READS = [
    *["int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "boolean"],
    *["uvarint", "varint", "varlong", "uuid", "skip_tagged_fields", "tagged_fields", "_take"],
    *["string", "nullable_string", "compact_string", "compact_nullable_string"],
    *["bytes_", "nullable_bytes", "compact_bytes", "compact_nullable_bytes"],
    *["nullable_records", "compact_nullable_records", "compact_records", *LENGTHS],
]
LIMITS = [
    sign * (1 << bits) + near
    for bits in (7, 8, 15, 16, 31, 32, 63, 64)
    for sign in (1, -1)
    for near in (-1, 0, 1)
]


class Indexed:
    """A number to ``struct``, but no int."""

    def __index__(self) -> int:
        return 5


numbers = st.integers(-300, 300) | st.sampled_from(LIMITS)
no_numbers: st.SearchStrategy[Any] = st.sampled_from([None, "1", 1.0, True, b"1", [], Indexed()])
texts = st.text(max_size=300) | st.sampled_from(
    ["", "\ud800", "é" * 16_383, "é" * 16_384, "a" * 32_767, "a" * 32_768]
)
WRITES: Mapping[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["int8", "int16", "int32", "int64", "uvarint"], numbers | no_numbers),
    "boolean": numbers | no_numbers,
    **dict.fromkeys(
        ["string", "nullable_string", "compact_string", "compact_nullable_string"],
        texts | no_numbers,
    ),
}


def outcome(reader: Any, method: str, argument: object) -> tuple[Any, ...]:
    """The result of a reader or its error, and its place afterwards."""
    call = getattr(reader, method)
    try:
        if method in {*LENGTHS, "_take"}:
            found = call(argument)
        elif method == "tagged_fields":
            found = [(tag, bytes(part.data), part.offset) for tag, part in call()]
        else:
            found = call()
    except Exception as error:
        return type(error), str(error), reader.offset, reader.remaining
    # As text, since NaN is unequal to itself.
    text = repr(bytes(found) if isinstance(found, memoryview) else found)
    return type(found), text, reader.offset, reader.remaining


tails = st.binary(max_size=40)
# Most lengths at the beginning are possible ones.
datas = st.one_of(
    tails,
    st.builds(lambda size, data: bytes([size]) + data, st.integers(0, 12), tails),
    st.builds(lambda size, data: bytes([0, size]) + data, st.integers(0, 12), tails),
    st.builds(lambda size, data: bytes([0, 0, 0, size]) + data, st.integers(0, 12), tails),
    st.builds(lambda data, rest: b"\xff" * data + rest, st.integers(1, 10), tails),
)
steps = st.lists(
    st.tuples(st.sampled_from(READS), st.booleans() | st.integers(-2, 9)), min_size=1, max_size=8
)


@needs_native
@given(datas, st.integers(0, 3), st.sampled_from([bytes, bytearray, memoryview]), steps)
@example(b"\xff\xff\xff\xff\x0f", 0, bytes, [("uvarint", 0)])
@example(b"\xff\xff\xff\xff\x1f", 0, bytes, [("uvarint", 0)])
@example(b"\x80\x80\x80\x80\x80\x00", 0, bytes, [("uvarint", 0)])
@example(b"\x80\x80\x80\x80\x00", 0, bytes, [("uvarint", 0)])
@example(b"\x03\xff\xff", 0, bytes, [("compact_string", 0)])
@example(b"\x7f\xf8" + bytes(6), 0, bytes, [("float64", 0)])
@example(b"\x03abc", 0, bytes, [("array_length", True), ("nullable_array_length", True)])
def test_both_read_alike(
    data: bytes, start: int, kind: Any, calls: list[tuple[str, object]]
) -> None:
    in_c, source = (make(kind(data), start) for make in (accelerator().Reader, python("Reader")))
    for method, argument in calls:
        found = outcome(in_c, method, argument)
        assert found == outcome(source, method, argument), method


def written(writer: Any, method: str, *given: object) -> tuple[Any, ...]:
    try:
        result = getattr(writer, method)(*given)
    except Exception as error:
        return type(error), str(error), bytes(writer.buffer)
    return type(result), result, bytes(writer.buffer)


@needs_native
@given(
    st.lists(
        st.sampled_from(sorted(WRITES)).flatmap(
            lambda name: st.tuples(st.just(name), WRITES[name])
        ),
        max_size=8,
    )
)
def test_both_write_alike(calls: list[tuple[str, object]]) -> None:
    in_c, source = accelerator().Writer(), python("Writer")()
    for method, value in calls:
        found = written(in_c, method, value)
        assert found == written(source, method, value), (method, value)


@needs_native
@given(numbers | no_numbers, st.booleans())
def test_both_write_alike_the_lengths_of_arrays(length: object, compact: bool) -> None:
    in_c, source = accelerator().Writer(), python("Writer")()
    found = written(in_c, "array_length", length, compact)
    assert found == written(source, "array_length", length, compact)


@needs_native
@pytest.mark.parametrize("tags", [{}, {0: b""}, {1: b"abc", 200: b"x" * 130}])
def test_both_write_alike_tagged_fields(tags: dict[int, bytes]) -> None:
    made = []
    for make in (accelerator().Writer, python("Writer")):
        writer, fields = make(), {}
        for tag, data in tags.items():
            fields[tag] = field = make()
            field.buffer += data
        writer.tagged_fields(fields)
        writer.no_tagged_fields()
        made.append(bytes(writer.buffer))
    assert made[0] == made[1]


@needs_native
@pytest.mark.parametrize("make", ["Reader", "Writer"])
def test_other_arguments_are_refused(make: str) -> None:
    with pytest.raises(TypeError):
        getattr(accelerator(), make)(b"", 0, 0)
    with pytest.raises(TypeError):
        getattr(accelerator(), make)(nothing=0)


@needs_native
def test_a_reader_has_only_one_data() -> None:
    reader = accelerator().Reader(b"abc")
    with pytest.raises(TypeError):
        reader.__init__(b"other")
    with pytest.raises(AttributeError):
        reader.data = b"other"
    with pytest.raises(TypeError, match="bytes-like"):
        accelerator().Reader("text")
    with pytest.raises(BufferError):
        accelerator().Reader(memoryview(b"abcdef")[::2])
    reader.offset = -1
    with pytest.raises(Exception, match="bytes expected at offset -1"):
        reader.int32()


@needs_native
def test_a_writer_writes_to_bytearrays_only() -> None:
    writer = accelerator().Writer()
    with pytest.raises(TypeError):
        writer.array_length()
    writer.buffer = b""
    with pytest.raises(TypeError, match="bytearray"):
        writer.int8(1)
    del writer.buffer
    with pytest.raises(TypeError, match="bytearray"):
        writer.string("a")


@needs_native
def test_a_buffer_that_is_viewed_does_not_change() -> None:
    writer = accelerator().Writer()
    writer.int8(1)
    with memoryview(writer.buffer), pytest.raises(BufferError):
        writer.int64(2)
    assert writer.buffer == b"\x01"


@needs_native
def test_what_is_read_is_not_leaked() -> None:
    module = accelerator()

    def read_and_write() -> None:
        writer = module.Writer()
        writer.string("topic")
        writer.compact_nullable_string(None)
        writer.array_length(3, True)
        for made in (bytes, bytearray, memoryview):
            reader = module.Reader(made(writer.buffer))
            outcome(reader, "string", None)
            outcome(reader, "compact_nullable_string", None)
            outcome(reader, "array_length", True)
            outcome(reader, "_take", 1)

    assert_no_leak(read_and_write, 5_000)
    frame = bytearray(10)
    module.Reader(frame).int32()
    frame.append(1)  # no view is left
