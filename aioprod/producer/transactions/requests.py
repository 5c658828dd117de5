"""Makes the requests of transactions for each version, and reads their replies. No I/O.

There are two protocols (KIP-890). In the first, the client adds every partition and group to the
transaction before it writes there. In the second, brokers do that themselves when the first records
or offsets arrive, and each end of a transaction gives the producer its next epoch. The version of
each request names the one that is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError, SerializationError, UnsupportedVersionError
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.protocol.group_offsets import (
    LAST_TRANSACTIONAL_COMMIT_BY_NAME,
    TopicIds,
    named,
)
from aioprod.protocol.message import Request
from aioprod.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioprod.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aioprod.protocol.primitives import ZERO_UUID
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

# From these versions on a request belongs to the second protocol.
_FIRST_OF_V2: dict[type[Request[Any]], int] = {
    ProduceRequest: 12,
    EndTxnRequest: 5,
    TxnOffsetCommitRequest: 5,
}
NEWEST_PRODUCE_OF_V1 = _FIRST_OF_V2[ProduceRequest] - 1
# Later versions are only for requests between brokers.
_NEWEST_ADD_PARTITIONS = 3
_FEATURE = "transaction.version"
_MAX_OFFSET = 2**63 - 1
_MAX_STRING = 2**15 - 1


class Peer(Protocol):
    """The properties of a connection that a request needs."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and newest version of each API that the broker supports."""

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """The level of each feature in the whole cluster (KIP-584)."""

    def pick_version(self, request_type: type[Request[Any]], newest: int | None = None) -> int:
        """Return the newest version that both sides support."""


def speaks_v2(peer: Peer) -> bool:
    """Return whether the second protocol can be used: the cluster has finalized it, and the broker
    supports the versions.
    """
    return peer.finalized_features.get(_FEATURE, 0) >= 2 and all(
        peer.versions.get(kind.API_KEY, (0, -1))[1] >= first for kind, first in _FIRST_OF_V2.items()
    )


def _version(peer: Peer, kind: type[Request[Any]], *, v2: bool, newest: int | None = None) -> int:
    first = _FIRST_OF_V2[kind]
    version = peer.pick_version(kind, newest if v2 else first - 1)
    if v2 and version < first:
        raise UnsupportedVersionError(
            f"{kind.__name__} version {first} is needed for transaction.version=2, the "
            f"broker has {version}"
        )
    return version


def init_producer_id(
    peer: Peer, transactional_id: str, timeout_ms: int, identity: ProducerIdAndEpoch | None
) -> tuple[InitProducerIdRequest, int]:
    """Make a request for a producer id or, with the current id and epoch, for the next epoch
    (KIP-360).

    Before Kafka 2.5 only the first form exists. It returns a new epoch too, but does not detect
    that this producer was replaced by a newer one.
    """
    version = peer.pick_version(InitProducerIdRequest)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if identity is not None and version >= 3:
        request.producer_id, request.producer_epoch = identity
    return request, version


def add_partitions(
    peer: Peer,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
) -> tuple[AddPartitionsToTxnRequest, int]:
    """Make a request that adds partitions to the transaction (first protocol)."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()
        ],
    )
    return request, peer.pick_version(AddPartitionsToTxnRequest, _NEWEST_ADD_PARTITIONS)


def codes_of_partitions(
    reply: AddPartitionsToTxnResponse, asked: Iterable[TopicPartition]
) -> list[ErrorCode]:
    """Return the error code of each requested partition.

    Raises:
        ProtocolError: if the reply lacks one.
    """
    codes = {
        TopicPartition(topic.name, result.partition_index): ErrorCode.of(
            result.partition_error_code
        )
        for topic in reply.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    return _codes(codes, asked, "AddPartitionsToTxn")


def add_offsets(
    peer: Peer, transactional_id: str, identity: ProducerIdAndEpoch, group_id: str
) -> tuple[AddOffsetsToTxnRequest, int]:
    """Make a request that adds a group's offsets to the transaction (first protocol)."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )
    return request, peer.pick_version(AddOffsetsToTxnRequest)


def commit_offsets(
    peer: Peer,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
    ids: TopicIds,
    *,
    v2: bool,
) -> tuple[TxnOffsetCommitRequest, int]:
    """Make a request that writes offsets in the transaction; they take effect with its commit.

    Args:
        ids: those of all topics, or none: then topics are named, which excludes versions from 6 on
            (KIP-1319).

    Raises:
        UnsupportedVersionError: if the broker is older than Kafka 2.5 and can't check that the
            consumer is still a member of the group (KIP-447).
    """
    newest = None if ids else LAST_TRANSACTIONAL_COMMIT_BY_NAME
    version = _version(peer, TxnOffsetCommitRequest, v2=v2, newest=newest)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
        # Versions 0 and 1 have no leader epoch. It is only a hint.
        committed = TxnOffsetCommitRequestPartition(
            partition, offset, leader_epoch if version >= 2 else -1, metadata
        )
        topics.setdefault(topic, []).append(committed)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(name, ids.get(name, ZERO_UUID), partitions)
            for name, partitions in topics.items()
        ],
    )
    if version >= 3:
        request.generation_id_or_member_epoch = group.generation_id
        request.member_id, request.group_instance_id = group.member_id, group.group_instance_id
    elif group != ConsumerGroupMetadata(group.group_id):
        raise UnsupportedVersionError(
            f"group {group.group_id!r}: the broker can't check group members (needs "
            f"TxnOffsetCommit 3, has {version})"
        )
    return request, version


def codes_of_offsets(
    reply: TxnOffsetCommitResponse, asked: Iterable[TopicPartition], ids: TopicIds
) -> list[ErrorCode]:
    """Return the error code of each partition whose offset was sent.

    Raises:
        ProtocolError: if the reply lacks one.
    """
    codes = {
        TopicPartition(name, p.partition_index): ErrorCode.of(p.error_code)
        for name, topic in named(reply.topics, ids)
        for p in topic.partitions
    }
    return _codes(codes, asked, "TxnOffsetCommit")


def end(
    peer: Peer, transactional_id: str, identity: ProducerIdAndEpoch, *, commit: bool, v2: bool
) -> tuple[EndTxnRequest, int]:
    """Make a request that commits or aborts the transaction."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    return request, _version(peer, EndTxnRequest, v2=v2)


def _codes(
    codes: Mapping[TopicPartition, ErrorCode], asked: Iterable[TopicPartition], name: str
) -> list[ErrorCode]:
    left_out = [tp for tp in asked if tp not in codes]
    if left_out:
        raise ProtocolError(
            f"the broker's reply to {name} lacks {left_out[0].topic}-{left_out[0].partition}"
        )
    return list(codes.values())


def checked_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the checked offsets as OffsetAndMetadata.

    Raises:
        SerializationError: if a value has the wrong type or is outside its limits; the message
            names it.
    """
    if not isinstance(offsets, Mapping):
        raise SerializationError(
            f"offsets of type {type(offsets).__name__}: must be a mapping of TopicPartition "
            "to an offset"
        )
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for place, given in offsets.items():
        if not (
            isinstance(place, tuple)
            and len(place) == 2
            and isinstance(place[0], str)
            and _is_number(place[1], 2**31 - 1)
        ):
            raise SerializationError(
                f"offsets: {place!r} must be a TopicPartition (topic name, partition number)"
            )
        entry = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        if not _is_number(entry.offset, _MAX_OFFSET):
            raise SerializationError(
                f"offset {entry.offset!r} of {place[0]}-{place[1]}: must be a whole number "
                "from 0 to 2^63-1"
            )
        if not isinstance(entry.metadata, str) or len(entry.metadata.encode()) > _MAX_STRING:
            raise SerializationError(
                f"metadata of the offset of {place[0]}-{place[1]}: must be a string of at "
                f"most {_MAX_STRING} bytes"
            )
        if entry.leader_epoch != -1 and not _is_number(entry.leader_epoch, 2**31 - 1):
            raise SerializationError(
                f"leader_epoch {entry.leader_epoch!r} of {place[0]}-{place[1]}: must be a "
                "number from -1 to 2^31-1"
            )
        checked[TopicPartition(*place)] = entry
    return checked


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def checked_group(group: str | ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """Return the checked group as ConsumerGroupMetadata.

    Raises:
        SerializationError: if it is neither a group id nor metadata, or a field has the wrong type.
    """
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise SerializationError(
            f"group of type {type(group).__name__}: must be a group id or ConsumerGroupMetadata"
        )
    if not isinstance(group.group_id, str) or not group.group_id:
        raise SerializationError(f"group_id={group.group_id!r}: must be the id of a consumer group")
    if not isinstance(group.member_id, str) or not isinstance(group.group_instance_id, str | None):
        raise SerializationError(
            f"{group!r}: member_id must be a string, group_instance_id a string or None"
        )
    if group.generation_id != -1 and not _is_number(group.generation_id, 2**31 - 1):
        raise SerializationError(
            f"generation_id={group.generation_id!r}: must be a number from -1 to 2^31-1"
        )
    if group.generation_id > 0 and not group.member_id:
        raise SerializationError(
            f"generation_id={group.generation_id} of group {group.group_id!r} needs the "
            "member_id of that generation"
        )
    return group
