"""The hand-written reader of Produce responses and the generated one say the same."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.protocol.framing import decode_response, encode_response
from aioprod.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.protocol.produce_decoder import (
    StoredBatches,
    decode_produce_response,
    read_places,
)

VERSIONS = range(ProduceResponse.MIN_VERSION, ProduceResponse.MAX_VERSION + 1)
FIRST_FLEXIBLE = ProduceResponse.FLEXIBLE_FROM
FLEXIBLE = range(FIRST_FLEXIBLE, ProduceResponse.MAX_VERSION + 1)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
stored = st.builds(PartitionProduceResponse, int32, st.just(0), int64, int64, int64)
refused = st.builds(
    PartitionProduceResponse,
    int32,
    st.integers(-1, 130),
    int64,
    int64,
    int64,
    st.lists(
        st.builds(BatchIndexAndErrorMessage, int32, st.none() | st.text(max_size=5)), max_size=2
    ),
    st.none() | st.text(max_size=5),
    st.builds(LeaderIdAndEpoch, st.integers(-1, 5), st.integers(-1, 5)),
)
endpoints = st.builds(
    NodeEndpoint, int32, st.text(max_size=5), int32, st.none() | st.text(max_size=5)
)


def responses(
    partitions: st.SearchStrategy[PartitionProduceResponse], ends: st.SearchStrategy[Any]
) -> st.SearchStrategy[ProduceResponse]:
    topics = st.builds(
        TopicProduceResponse, st.text(max_size=20), st.uuids(), st.lists(partitions, max_size=4)
    )
    return st.builds(ProduceResponse, st.lists(topics, max_size=4), int32, ends)


def frame(response: ProduceResponse, version: int, correlation_id: int = 77) -> bytes:
    """Return the response without its size and the fields that the version does not have."""
    for topic in response.responses:
        topic.name, topic.topic_id = (
            (topic.name, ZERO_UUID) if version < 13 else ("", topic.topic_id)
        )
        for partition in topic.partition_responses:
            if version < 10:
                partition.current_leader = LeaderIdAndEpoch()
    if version < 10:
        response.node_endpoints = []
    return encode_response(response, version, correlation_id)[4:]


def stored_batches(response: ProduceResponse, version: int) -> StoredBatches:
    """Return what a response without errors says, as the generated reader has it."""
    places: dict[tuple[str | bytes, int], tuple[int, int]] = {}
    for topic in response.responses:
        name = topic.topic_id.bytes if version >= 13 else topic.name
        for each in topic.partition_responses:
            assert not each.error_code
            places[name, each.index] = each.base_offset, each.log_append_time_ms
    return StoredBatches(places, response.throttle_time_ms)


def assert_equal_outcomes(version: int, data: bytes) -> None:
    """Check that both readers show the same of any bytes."""
    try:
        correlation_id, expected = decode_response(ProduceRequest, version, data)
    except KafkaError as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            decode_produce_response(ProduceRequest, version, data)
        return
    found_id, found = decode_produce_response(ProduceRequest, version, data)
    assert found_id == correlation_id
    if isinstance(found, StoredBatches):
        assert not expected.node_endpoints
        assert found == stored_batches(expected, version)
    else:
        assert found == expected


@pytest.mark.parametrize("version", VERSIONS)
@given(response=responses(stored, st.just([])), correlation_id=st.integers(0, (1 << 31) - 1))
def test_stored_batches_are_read_by_hand(
    version: int, response: ProduceResponse, correlation_id: int
) -> None:
    data = frame(response, version, correlation_id)
    found = read_places(version, data)
    if version < FIRST_FLEXIBLE:
        assert found is None
    else:
        _, expected = decode_response(ProduceRequest, version, data)
        stored = stored_batches(expected, version)
        assert found == (correlation_id, stored.throttle_time_ms, stored.places)
    assert_equal_outcomes(version, data)


@pytest.mark.parametrize("version", FLEXIBLE)
@given(response=responses(stored | refused, st.lists(endpoints, max_size=1)))
def test_whatever_else_is_reported_is_read_too(version: int, response: ProduceResponse) -> None:
    data = frame(response, version)
    assert_equal_outcomes(version, data)


@pytest.mark.parametrize("version", FLEXIBLE)
@given(
    response=responses(stored, st.just([])),
    at=st.integers(0, 1000),
    byte=st.integers(0, 255),
    cut=st.integers(0, 40),
    more=st.binary(max_size=2),
)
@example(
    ProduceResponse([TopicProduceResponse("t", ZERO_UUID, [PartitionProduceResponse()])]),
    4,
    1,
    0,
    b"",
)
def test_damaged_bytes_mean_the_same_to_both(
    version: int, response: ProduceResponse, at: int, byte: int, cut: int, more: bytes
) -> None:
    data = bytearray(frame(response, version))
    data[at % len(data)] = byte
    damaged = bytes(data[: len(data) - cut] if cut % 2 else data) + more
    assert_equal_outcomes(version, damaged)


def test_a_version_of_the_future_is_refused_as_ever() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_produce_response(
            ProduceRequest,
            ProduceResponse.MAX_VERSION + 1,
            frame(ProduceResponse(), ProduceResponse.MAX_VERSION),
        )


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 1_000, 16_382, 16_383])
def test_many_partitions(version: int, count: int) -> None:
    partitions = [PartitionProduceResponse(index, 0, 10 * index) for index in range(count)]
    data = frame(
        ProduceResponse([TopicProduceResponse("many", uuid.UUID(int=3), partitions)]), version
    )
    usual = read_places(version, data)
    assert (usual is not None) == (count < 16_383)
    assert_equal_outcomes(version, data)


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize(
    ("topics", "name_size"), [(0, 0), (126, 3), (127, 3), (1, 126), (1, 127), (2, 249)]
)
def test_many_topics_and_long_names(version: int, topics: int, name_size: int) -> None:
    listed = [
        TopicProduceResponse("n" * name_size, uuid.uuid4(), [PartitionProduceResponse()])
        for _ in range(topics)
    ]
    data = frame(ProduceResponse(listed, 5), version)
    assert (read_places(version, data) is not None) == (
        topics < 127 and (name_size < 127 or version >= 13)
    )
    assert_equal_outcomes(version, data)
