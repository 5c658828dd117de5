"""ListOffsets and OffsetForLeaderEpoch: makes one request per leader, and reads the response for
each partition.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple, TypeVar

from aioprod.cluster.snapshot import PartitionInfo
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, ProtocolError, RequestTimedOutError
from aioprod.net.refusals import explain
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aioprod.types import OffsetAndTimestamp, TopicPartition

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
_ALWAYS_THERE = (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP)
# The field's default is a follower's id; the leader would return offsets that consumers may not
# read yet.
_CONSUMER = -1

T = TypeVar("T")


class EpochEnd(NamedTuple):
    """The end of a leader epoch, or of the last earlier one in the log; -1 and -1 if the broker
    does not know it.
    """

    leader_epoch: int
    end_offset: int


def by_leader(
    leaders: Mapping[TopicPartition, PartitionInfo],
) -> dict[int, dict[TopicPartition, PartitionInfo]]:
    """Return the partitions by the node id of their leader."""
    nodes: defaultdict[int, dict[TopicPartition, PartitionInfo]] = defaultdict(dict)
    for tp, info in leaders.items():
        nodes[info.leader][tp] = info
    return nodes


def list_offsets_request(
    leaders: Mapping[TopicPartition, PartitionInfo],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: float,
) -> ListOffsetsRequest:
    """Make a request to one node for one offset per partition, by timestamp: -1 for the end, -2 for
    the beginning, else milliseconds since 1970.
    """
    asked = _by_topic(
        leaders,
        lambda tp, info: ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=info.leader_epoch,
            timestamp=timestamps[tp],
        ),
    )
    topics = [
        ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in asked.items()
    ]
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation_level,
        topics=topics,
        timeout_ms=int(timeout_ms),
    )


def found_offsets(
    reply: ListOffsetsResponse, timestamps: Mapping[TopicPartition, int], principal: str
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """Return the offset of each partition in a response; -1 if all records are earlier.

    Args:
        timestamps: those of the request. A log always has a beginning and an end, so -1 is an error
            for these.
        principal: the client's, for errors.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | KafkaError] = {}
    for topic in reply.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                error = BrokerError(
                    ErrorCode.of(answer.error_code), f"offset of {tp.topic}-{tp.partition}"
                )
                found[tp] = explain(error, "ListOffsets", principal)
            elif answer.offset < (0 if timestamps.get(tp) in _ALWAYS_THERE else -1):
                where = f"{tp.topic}-{tp.partition}"
                found[tp] = ProtocolError(
                    f"the broker gives impossible offset {answer.offset} for {where}"
                )
            else:
                found[tp] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
    return found


def left_out(
    timestamps: Iterable[TopicPartition], found: Container[TopicPartition]
) -> RequestTimedOutError | None:
    """Return the error, which a retry may solve, if not all partitions are in the responses."""
    for tp in timestamps:
        if tp not in found:
            return RequestTimedOutError(f"no offset of {tp.topic}-{tp.partition} in the response")
    return None


def epoch_request(
    leaders: Mapping[TopicPartition, PartitionInfo], epochs: Mapping[TopicPartition, int]
) -> OffsetForLeaderEpochRequest:
    """Make a request to one node for the ends of these leader epochs (KIP-320)."""
    asked = _by_topic(
        leaders,
        lambda tp, info: OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=info.leader_epoch, leader_epoch=epochs[tp]
        ),
    )
    topics = [
        OffsetForLeaderTopic(topic=topic, partitions=partitions)
        for topic, partitions in asked.items()
    ]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)


def found_epochs(
    reply: OffsetForLeaderEpochResponse, principal: str
) -> dict[TopicPartition, EpochEnd | BrokerError]:
    """Return the end of the epoch, or the error, of each partition in a response."""
    found: dict[TopicPartition, EpochEnd | BrokerError] = {}
    for topic in reply.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.topic, answer.partition)
            if answer.error_code:
                error = BrokerError(
                    ErrorCode.of(answer.error_code), f"leader epoch of {tp.topic}-{tp.partition}"
                )
                found[tp] = explain(error, "OffsetForLeaderEpoch", principal)
            else:
                found[tp] = EpochEnd(answer.leader_epoch, answer.end_offset)
    return found


def _by_topic(
    leaders: Mapping[TopicPartition, PartitionInfo],
    ask: Callable[[TopicPartition, PartitionInfo], T],
) -> dict[str, list[T]]:
    topics: defaultdict[str, list[T]] = defaultdict(list)
    for tp, info in leaders.items():
        topics[tp.topic].append(ask(tp, info))
    return topics
