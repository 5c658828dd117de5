"""The accelerator builds batches and Produce requests as its Python sources do, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import ProtocolError
from aioprod.protocol import produce_decoder as produce_decoder  # has read_places
from aioprod.protocol.produce_encoder import MAX_VERSION, MIN_VERSION
from aioprod.protocol.record_batch import check_crc, read_header
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native, python

FIRST_TOPIC_ID = 13


def integers(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << bits - 1
    return st.integers(-limit, limit - 1) | st.sampled_from([-limit, -1, 0, limit - 1])


contents = st.binary(max_size=300)
pieces: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(contents, contents.map(bytearray), contents.map(lambda data: memoryview(data))),
    max_size=4,
)
header_fields = st.tuples(
    *map(integers, (64, 32, 16, 32, 64, 64, 64, 16, 32, 32)),
)
partitions = st.lists(st.tuples(integers(32), st.binary(max_size=20_000)), max_size=4)


def requests(version: int) -> st.SearchStrategy[list[Any]]:
    ids, names = st.binary(min_size=16, max_size=16), st.text(max_size=150)
    topic = ids if version >= FIRST_TOPIC_ID else names
    return st.lists(st.tuples(topic, partitions), max_size=4)


@needs_native
@given(pieces, header_fields)
def test_batches_are_alike(body: list[Any], fields: tuple[int, ...]) -> None:
    assert accelerator().join_batch(body, *fields) == python("join_batch")(body, *fields)


@needs_native
def test_a_batch_is_whole() -> None:
    built = accelerator().join_batch([b"a" * 70_000, b"b"], 5, -1, 0, 1, 7, 8, 9, 2, 3, 2)
    header = read_header(built)
    check_crc(built, 0, header)
    assert (header.size_in_bytes, header.base_offset) == (len(built), 5)
    assert built.endswith(b"ab")


@needs_native
@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
@given(data=st.data(), correlation_id=integers(32), start=st.binary(max_size=400))
def test_requests_are_alike(
    version: int, data: st.DataObject, correlation_id: int, start: bytes
) -> None:
    topics = data.draw(requests(version))
    found = accelerator().join_request(version, correlation_id, start, topics)
    expected = python("join_request")(version, correlation_id, start, topics)
    assert found == expected, "also cut into the same buffers"


@needs_native
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 16_383, 16_384])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_numbers_of_partitions(version: int, count: int) -> None:
    name: str | bytes = b"i" * 16 if version >= FIRST_TOPIC_ID else "name"
    topics = [(name, [(index, b"v" * (index % 300)) for index in range(count)])]
    found = accelerator().join_request(version, 1, b"", topics)
    assert found == python("join_request")(version, 1, b"", topics)


@needs_native
@pytest.mark.parametrize("version", [8, 9])
def test_a_long_name_is_refused_alike(version: int) -> None:
    for join in (accelerator().join_request, python("join_request")):
        with pytest.raises(ProtocolError, match=r"^string of 32768 bytes, Kafka's limit is 32767$"):
            join(version, 1, b"", [("n" * 32_768, [])])


class Shrinking:
    """An index that empties the list that it is read from."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __index__(self) -> int:
        self._items.clear()
        return 1


@needs_native
def test_what_changes_meanwhile_is_survived() -> None:
    partitions: list[Any] = []
    topics: list[Any] = [("t", partitions)]
    partitions += [(Shrinking(partitions), b"v" * 100), (2, b"w")]
    assert len(accelerator().join_request(12, 1, b"", topics)) == 3
    partitions += [(Shrinking(topics), b"v" * 100)]
    assert len(accelerator().join_request(12, 1, b"", topics)) == 3


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def response(
    version: int, topics: list[tuple[bytes, list[tuple[int, int, int, int]]]], throttle_ms: int
) -> bytes:
    """Return a response without size, whose counts take one byte."""
    parts = [number(-7, 4), b"\0", bytes([len(topics) + 1])]
    for name, listed in topics:
        parts.append(name if version >= FIRST_TOPIC_ID else bytes([len(name) + 1]) + name)
        parts.append(bytes([len(listed) + 1]))
        for index, *offsets in listed:
            parts += [number(index, 4), bytes(2), *(number(each, 8) for each in offsets), b"\1\0\0"]
        parts.append(b"\0")
    return b"".join([*parts, number(throttle_ms, 4), b"\0"])


def answers(version: int) -> st.SearchStrategy[bytes]:
    stored = st.tuples(integers(32), integers(64), integers(64), integers(64))
    by_id = version >= FIRST_TOPIC_ID
    name = st.binary(min_size=16, max_size=16) if by_id else st.text(max_size=8).map(str.encode)
    topics = st.lists(st.tuples(name, st.lists(stored, max_size=3)), max_size=3)
    return st.builds(response, st.just(version), topics, integers(32))


@needs_native
@pytest.mark.parametrize("version", [9, 12, FIRST_TOPIC_ID])
@given(data=st.data())
def test_responses_are_read_alike(version: int, data: st.DataObject) -> None:
    frame = data.draw(answers(version))
    places = accelerator().read_places(version, frame)
    assert places is not None
    assert places == python("read_places")(version, frame)


@needs_native
@pytest.mark.parametrize("version", [9, 12, FIRST_TOPIC_ID])
@given(data=st.data(), changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_damaged_responses_are_read_alike(
    version: int, data: st.DataObject, changes: list[tuple[int, int]]
) -> None:
    frame = bytearray(data.draw(answers(version)))
    for at, byte in changes[:3]:
        frame[at % len(frame)] = byte
    for cut in (len(frame), data.draw(st.integers(0, len(frame)))):
        damaged = bytes(frame[:cut]) + data.draw(st.binary(max_size=2))
        assert accelerator().read_places(version, damaged) == python("read_places")(
            version, damaged
        )


@needs_native
@given(st.integers(8, 14), st.binary(max_size=120))
def test_any_bytes_are_survived(version: int, frame: bytes) -> None:
    assert accelerator().read_places(version, frame) == python("read_places")(version, frame)


@needs_native
@pytest.mark.parametrize("version", [12, FIRST_TOPIC_ID])
def test_each_beginning_of_a_response_is_refused(version: int) -> None:
    """Its memory ends with it, so that sanitizers detect a read after the end."""
    frame = response(version, [(b"a" * 16, [(1, 2, 3, 4)]), (b"b" * 16, [])], 5)
    for size in range(len(frame)):
        assert accelerator().read_places(version, frame[:size]) is None
    assert accelerator().read_places(version, frame) == python("read_places")(version, frame)


WRONG_TOPICS: list[list[Any]] = [
    [5],
    [("t",)],
    [("t", ())],
    [(5, [])],
    [("t", [5])],
    [("t", [(0,)])],
    [("t", [("0", b"")])],
    [("t", [(0, "v")])],
    [("\ud800", [])],
]
WRONG_PIECES: list[list[Any]] = [
    [5],
    ["text"],
    [b"a", None],
    [memoryview(b"abcd").cast("H")],
    [[b"a"]],
]


@needs_native
@pytest.mark.parametrize("topics", WRONG_TOPICS)
def test_wrong_topics_are_refused(topics: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        accelerator().join_request(13, 1, b"", topics)


@needs_native
@pytest.mark.parametrize("body", WRONG_PIECES)
def test_wrong_pieces_are_refused(body: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        accelerator().join_batch(body, 0, -1, 0, 0, 0, 0, 0, 0, 0, 1)


def refused(call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises((TypeError, ValueError, ProtocolError)):
        call(*arguments)


def new_topics() -> list[Any]:
    """Return topics whose objects are not shared: a reference to one that is left is a leak."""
    return [(f"t{at}", [(number, bytes(2_000)) for number in range(2)]) for at in range(2)]


def refuse_topics(wrong: list[Any]) -> None:
    refused(accelerator().join_request, 12, 1, b"", [*new_topics(), *wrong])


@pytest.mark.usefixtures("quick_collections")
@needs_native
def test_nothing_leaks() -> None:
    join_batch, join_request = accelerator().join_batch, accelerator().join_request
    read_places = accelerator().read_places
    frame = response(12, [(b"a", [(1, 1 << 40, 1 << 41, 4)] * 3), (b"b", [])], 5)
    for read in (frame, frame[:-1], frame.replace(b"\2a", b"\2\xff")):
        assert_no_leak(partial(read_places, 12, read))
    fields = 0, -1, 0, 0, 0, 0, 0, 0, 0, 1
    assert_no_leak(partial(join_batch, [b"v" * 5_000, bytearray(b"w")], *fields))
    assert_no_leak(lambda: join_request(12, 1, b"start", new_topics()))
    for body in WRONG_PIECES:
        assert_no_leak(partial(refused, join_batch, body, *fields), times=100)
    for wrong in [*WRONG_TOPICS, [("n" * 40_000, [])]]:
        assert_no_leak(partial(refuse_topics, wrong), times=100)
