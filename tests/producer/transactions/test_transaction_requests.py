"""Messages made from state: every version can be written, the protocol decides which one is used,
arguments are looked at.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError, SerializationError, UnsupportedVersionError
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.producer.transactions import requests
from aioprod.protocol.message import Request
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.producer.transactions.coordinator_script import FakePeer

NO_ID = UUID(int=0)
IDS = {"a": UUID(int=1), "b": UUID(int=2)}
IDENTITY = ProducerIdAndEpoch((4711, 3))
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MEMBER = ConsumerGroupMetadata("g", 5, "member-1", "instance-1")
OFFSETS = {A0: OffsetAndMetadata(10, "note", 2), B0: OffsetAndMetadata(20)}


def peer(newest: dict[type[Request[Any]], int] | None = None, *, level: int = 2) -> FakePeer:
    return FakePeer(newest or {}, level)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (peer(), True),
        (peer(level=1), False),
        (peer(level=3), True),
        (FakePeer({}, None), False),
        (peer({EndTxnRequest: 4}), False),
        (peer({ProduceRequest: 11}), False),
        (peer({TxnOffsetCommitRequest: 4}), False),
        (peer({ProduceRequest: 12}), True),
    ],
)
def test_the_second_protocol_needs_the_feature_and_the_versions(
    there: FakePeer, expected: bool
) -> None:
    """franz-go once looked at the feature only."""
    assert requests.speaks_v2(there) is expected


@pytest.mark.parametrize("newest", range(6))
@pytest.mark.parametrize("identity", [None, IDENTITY])
def test_init_producer_id(newest: int, identity: ProducerIdAndEpoch | None) -> None:
    request, version = requests.init_producer_id(
        peer({InitProducerIdRequest: newest}), "x", 1234, identity
    )
    assert version == newest
    reported = InitProducerIdRequest.decode(request.encode(version), version)
    assert (reported.transactional_id, reported.transaction_timeout_ms) == ("x", 1234)
    known = identity if identity is not None and version >= 3 else (-1, -1)
    assert (reported.producer_id, reported.producer_epoch) == known


@pytest.mark.parametrize("newest", range(6))
def test_add_partitions_keeps_to_the_versions_of_clients(newest: int) -> None:
    request, version = requests.add_partitions(
        peer({AddPartitionsToTxnRequest: newest}), "x", IDENTITY, [A0, B0, A1]
    )
    assert version == min(newest, 3)
    reported = AddPartitionsToTxnRequest.decode(request.encode(version), version)
    assert (
        reported.v3_and_below_transactional_id,
        reported.v3_and_below_producer_id,
        reported.v3_and_below_producer_epoch,
    ) == ("x", 4711, 3)
    assert {topic.name: topic.partitions for topic in reported.v3_and_below_topics} == {
        "a": [0, 1],
        "b": [0],
    }


def partitions_reply(*reported: tuple[str, int, ErrorCode]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name, [AddPartitionsToTxnPartitionResult(number, code)])
            for name, number, code in reported
        ]
    )


def test_codes_of_partitions() -> None:
    reply = partitions_reply(("a", 0, ErrorCode.NONE), ("a", 1, ErrorCode.NOT_COORDINATOR))
    assert requests.codes_of_partitions(reply, [A0, A1]) == [
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
    ]
    with pytest.raises(ProtocolError, match="lacks b-0"):
        requests.codes_of_partitions(reply, [A0, B0])


@pytest.mark.parametrize("newest", range(5))
def test_add_offsets(newest: int) -> None:
    request, version = requests.add_offsets(
        peer({AddOffsetsToTxnRequest: newest}), "x", IDENTITY, "g"
    )
    assert version == newest
    reported = AddOffsetsToTxnRequest.decode(request.encode(version), version)
    assert (
        reported.transactional_id,
        reported.producer_id,
        reported.producer_epoch,
        reported.group_id,
    ) == (
        "x",
        4711,
        3,
        "g",
    )


@pytest.mark.parametrize("newest", range(3, 7))
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("ids", [{}, IDS])
def test_offsets_with_the_groups_member(newest: int, v2: bool, ids: dict[str, UUID]) -> None:
    there = peer({TxnOffsetCommitRequest: newest})
    if v2 and newest < 5:
        with pytest.raises(UnsupportedVersionError, match=r"version 5 is needed"):
            requests.commit_offsets(there, "x", IDENTITY, OFFSETS, MEMBER, ids, v2=v2)
        return
    request, version = requests.commit_offsets(there, "x", IDENTITY, OFFSETS, MEMBER, ids, v2=v2)
    assert version == ((newest if ids else 5) if v2 else min(newest, 4))
    reported = TxnOffsetCommitRequest.decode(request.encode(version), version)
    assert (
        reported.group_id,
        reported.generation_id_or_member_epoch,
        reported.member_id,
        reported.group_instance_id,
    ) == (
        "g",
        5,
        "member-1",
        "instance-1",
    )
    a, b = (topic.partitions[0] for topic in reported.topics)
    assert [(topic.name, topic.topic_id) for topic in reported.topics] == (
        [("", IDS["a"]), ("", IDS["b"])] if version == 6 else [("a", NO_ID), ("b", NO_ID)]
    )
    assert (
        a.partition_index,
        a.committed_offset,
        a.committed_metadata,
        a.committed_leader_epoch,
    ) == (0, 10, "note", 2)
    assert (
        b.partition_index,
        b.committed_offset,
        b.committed_metadata,
        b.committed_leader_epoch,
    ) == (0, 20, "", -1)


@pytest.mark.parametrize("newest", range(3))
def test_an_old_broker_gets_no_member_silently_left_out(newest: int) -> None:
    there = peer({TxnOffsetCommitRequest: newest}, level=0)
    request, version = requests.commit_offsets(
        there, "x", IDENTITY, OFFSETS, ConsumerGroupMetadata("g"), {}, v2=False
    )
    assert TxnOffsetCommitRequest.decode(request.encode(version), version).group_id == "g"
    with pytest.raises(UnsupportedVersionError, match="group 'g'"):
        requests.commit_offsets(there, "x", IDENTITY, OFFSETS, MEMBER, {}, v2=False)


@pytest.mark.parametrize(
    ("name", "topic_id", "ids"), [("a", NO_ID, {}), ("a", NO_ID, IDS), ("", IDS["a"], IDS)]
)
def test_codes_of_offsets(name: str, topic_id: UUID, ids: dict[str, UUID]) -> None:
    refused = TxnOffsetCommitResponsePartition(0, 22)
    reply = TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name, topic_id, [refused])]
    )
    assert requests.codes_of_offsets(reply, [A0], ids) == [ErrorCode.ILLEGAL_GENERATION]
    with pytest.raises(ProtocolError, match="TxnOffsetCommit lacks b-0"):
        requests.codes_of_offsets(reply, OFFSETS, ids)


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize(
    ("newest", "v2", "expected"), [(5, True, 5), (5, False, 4), (4, False, 4), (0, False, 0)]
)
def test_end(newest: int, v2: bool, expected: int, commit: bool) -> None:
    request, version = requests.end(
        peer({EndTxnRequest: newest}), "x", IDENTITY, commit=commit, v2=v2
    )
    assert version == expected
    reported = EndTxnRequest.decode(request.encode(version), version)
    assert (
        reported.transactional_id,
        reported.producer_id,
        reported.producer_epoch,
        reported.committed,
    ) == (
        "x",
        4711,
        3,
        commit,
    )


def test_end_in_the_second_protocol_needs_its_version() -> None:
    with pytest.raises(UnsupportedVersionError, match="EndTxnRequest version 5"):
        requests.end(peer({EndTxnRequest: 4}), "x", IDENTITY, commit=True, v2=True)


def test_offsets_come_in_two_forms() -> None:
    assert requests.checked_offsets({A0: 5, B0: OffsetAndMetadata(7, "n", 1), ("c", 2): 0}) == {  # type: ignore[dict-item]
        A0: OffsetAndMetadata(5),
        B0: OffsetAndMetadata(7, "n", 1),
        TopicPartition("c", 2): OffsetAndMetadata(0),
    }


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "must be a mapping"),
        ({"a": 1}, "'a' must be a TopicPartition"),
        ({("a", -1): 1}, "must be a TopicPartition"),
        ({A0: -1}, "offset -1 of a-0"),
        ({A0: 2**63}, "of a-0"),
        ({A0: True}, "offset True"),
        ({A0: "5"}, "offset '5'"),
        ({A0: OffsetAndMetadata(1, "x" * 32768)}, "at most 32767 bytes"),
        ({A0: OffsetAndMetadata(1, None)}, "metadata of the offset"),  # type: ignore[arg-type]
        ({A0: OffsetAndMetadata(1, "", -2)}, "leader_epoch -2"),
    ],
)
def test_wrong_offsets_are_named(offsets: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        requests.checked_offsets(offsets)


def test_a_group_comes_in_two_forms() -> None:
    assert requests.checked_group("g") == ConsumerGroupMetadata("g")
    assert requests.checked_group(MEMBER) is MEMBER


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (None, "group of type NoneType"),
        ("", "group_id=''"),
        (ConsumerGroupMetadata(b"g"), "group_id=b'g'"),  # type: ignore[arg-type]
        (ConsumerGroupMetadata("g", -2), "generation_id=-2"),
        (ConsumerGroupMetadata("g", 4), "needs the member_id"),
        (ConsumerGroupMetadata("g", 4, None), "member_id must be a string"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_group_is_named(group: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        requests.checked_group(group)
