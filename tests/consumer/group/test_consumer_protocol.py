"""The bytes that consumers of a classic group exchange: what Java and aiokafka write and read."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import ProtocolError
from aioprod.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aioprod.types import TopicPartition

names = st.text("abc.-_", min_size=1, max_size=6)
places = (
    st.lists(st.builds(TopicPartition, names, st.integers(0, 99)), max_size=6, unique=True)
    .map(sorted)
    .map(tuple)
)
subscriptions = st.builds(
    Subscription,
    st.lists(names, max_size=4, unique=True).map(sorted).map(tuple),
    st.none() | st.binary(max_size=9),
    places,
    st.integers(-1, 99),
    st.none() | names,
)


def test_the_newest_subscription_byte_for_byte() -> None:
    """The bytes are those of Kafka's ConsumerProtocolSubscription, version 3."""
    encoded = encode_subscription(
        Subscription(("u", "t"), b"\x01", (TopicPartition("t", 5), TopicPartition("t", 2)), 7, "r1")
    )
    assert encoded == bytes.fromhex(
        "0003 00000002 000174 000175 00000001 01 00000001 000174 00000002 00000002 00000005 "
        "00000007 0002 7231"
    )


def test_the_newest_assignment_byte_for_byte() -> None:
    assert encode_assignment(Assignment((TopicPartition("t", 1),))) == bytes.fromhex(
        "0003 00000001 000174 00000001 00000001 ffffffff"
    )


@given(subscriptions, st.integers(0, 3))
def test_what_a_version_has_comes_back(subscription: Subscription, version: int) -> None:
    expected = Subscription(
        subscription.topics,
        subscription.user_data,
        subscription.owned if version >= 1 else (),
        subscription.generation if version >= 2 else -1,
        subscription.rack if version >= 3 else None,
    )
    assert decode_subscription(encode_subscription(subscription, version)) == expected


@given(subscriptions)
def test_newer_versions_are_read_as_far_as_they_are_known(subscription: Subscription) -> None:
    assert (
        decode_subscription(b"\x00\x09" + encode_subscription(subscription)[2:] + b"more")
        == subscription
    )


@given(places, st.none() | st.binary(max_size=9))
def test_assignments_come_back(
    partitions: tuple[TopicPartition, ...], user_data: bytes | None
) -> None:
    assignment = Assignment(partitions, user_data)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == Assignment()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00",
        b"\x00\x03\x7f\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff",
    ],
)
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(data)


@given(subscriptions)
def test_aiokafka_reads_ours_and_we_read_its(subscription: Subscription) -> None:
    theirs = ConsumerProtocolMemberMetadata.decode(encode_subscription(subscription))
    assert (theirs.subscription, theirs.user_data) == (
        list(subscription.topics),
        subscription.user_data,
    )
    written = ConsumerProtocolMemberMetadata(
        0, list(subscription.topics), subscription.user_data or b""
    ).encode()
    assert decode_subscription(written) == Subscription(
        subscription.topics, subscription.user_data or b""
    )


@given(places)
def test_aiokafka_reads_our_assignments(partitions: tuple[TopicPartition, ...]) -> None:
    theirs = ConsumerProtocolMemberAssignment.decode(encode_assignment(Assignment(partitions)))
    assert [(tp.topic, tp.partition) for tp in theirs.partitions()] == list(partitions)
