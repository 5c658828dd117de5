"""The values of ``aiokafka.structs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from aioprod import TopicPartition
from aioprod.compat.aiokafka.errors import KafkaError
from aioprod.foreign_text import shown

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]

KT = TypeVar("KT")
VT = TypeVar("VT")


class BrokerMetadata(NamedTuple):
    """The address of a broker."""

    nodeId: int | str
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """The leader and replicas of a partition."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and any text as metadata."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record.

    Attributes:
        topic_partition: the topic and partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 for CreateTime.
        log_start_offset: always None.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """A record that a consumer returns.

    Attributes:
        checksum: always None.
        serialized_key_size, serialized_value_size: in bytes; -1 for a null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes | None]]


def check_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check offsets to commit, each given as an offset or as (offset, metadata).

    Raises:
        ValueError, TypeError: if one is invalid.
    """
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(f"offsets={shown(offsets)}: must be a dict with at least one partition")
    checked = {}
    for tp, given in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"Key should be TopicPartition instance: {shown(tp)}")
        try:
            offset, metadata = (given, "") if isinstance(given, int) else given
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"offset {shown(given)} of {tp}: must be (offset, metadata)"
            ) from error
        if not isinstance(metadata, str):
            raise TypeError(f"Metadata should be a string: {shown(metadata)} of {tp}")
        checked[tp] = OffsetAndMetadata(offset, metadata)
    return checked
