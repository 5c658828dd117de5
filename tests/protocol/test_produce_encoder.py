"""The hand-written Produce request equals the generated one, byte by byte, in every version."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import ProtocolError
from aioprod.protocol.framing import encode_request
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.protocol.produce_encoder import (
    MAX_VERSION,
    MIN_VERSION,
    Topic,
    encode_produce_request,
)

Topics = list[tuple[str, uuid.UUID, list[tuple[int, bytes]]]]

partitions = st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.binary(max_size=200)), max_size=4)
topics_strategy = st.lists(
    st.tuples(st.text(min_size=1, max_size=150), st.uuids(), partitions), max_size=4
)


def generated(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Topics,
) -> bytes:
    data = [
        TopicProduceData(
            name=name if version < 13 else "",
            topic_id=topic_id if version >= 13 else ZERO_UUID,
            partition_data=[
                PartitionProduceData(index=index, records=batch) for index, batch in parts
            ],
        )
        for name, topic_id, parts in topics
    ]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=data
    )
    return encode_request(request, version, correlation_id, client_id)


def named(version: int, topics: Topics) -> list[Topic]:
    """Return the topics by name, or by id in the versions that do so."""
    return [
        (topic_id.bytes if version >= 13 else name, partitions)
        for name, topic_id, partitions in topics
    ]


def test_the_versions_are_those_of_the_generated_message() -> None:
    assert (MIN_VERSION, MAX_VERSION) == (ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION)


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
@given(
    correlation_id=st.integers(0, (1 << 31) - 1),
    client_id=st.none() | st.text(max_size=20),
    transactional_id=st.none() | st.text(max_size=140),
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, (1 << 31) - 1),
    topics=topics_strategy,
)
def test_the_bytes_are_those_of_the_generated_encoder(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Topics,
) -> None:
    buffers = encode_produce_request(
        version,
        correlation_id,
        client_id,
        transactional_id,
        acks,
        timeout_ms,
        named(version, topics),
    )
    assert b"".join(buffers) == generated(
        version, correlation_id, client_id, transactional_id, acks, timeout_ms, topics
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_big_batch_goes_through_uncopied(version: int) -> None:
    batches = [bytes(20_000), bytes(300)]
    topics: Topics = [
        ("a", uuid.uuid4(), [(0, batches[0])]),
        ("b", uuid.uuid4(), [(5, batches[1])]),
    ]
    buffers = encode_produce_request(version, 1, "client", None, -1, 30_000, named(version, topics))
    assert [buffer for buffer in buffers if len(buffer) >= 300] == batches
    assert all(any(buffer is batch for buffer in buffers) for batch in batches)
    assert b"".join(buffers) == generated(version, 1, "client", None, -1, 30_000, topics)


@pytest.mark.parametrize("version", [2, 14, -1])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"version {version}"):
        encode_produce_request(version, 1, None, None, -1, 1, [])


@pytest.mark.parametrize("version", [8, 9])
def test_an_overlong_string_is_refused(version: int) -> None:
    for client_id, transactional_id in (("x" * 32_768, None), (None, "x" * 32_768)):
        with pytest.raises(ProtocolError, match="32768 bytes"):
            encode_produce_request(version, 1, client_id, transactional_id, -1, 1, [])
