"""Compares the positions of a checkpoint with the offsets on the brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import list_offsets, partitions_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.spark.coordination import Coordination
from aioprod.spark.dead_letters import Written, group_of
from aioprod.spark.exactly_once.decision_log import committed_offsets
from aioprod.spark.offsets import EARLIEST, LATEST, Offsets, check_not_lost
from aioprod.spark.planning import topic_ids
from aioprod.spark.positions import Position, position_from_json
from aioprod.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """The position of a query in a partition.

    Attributes:
        offset: the offset of the next record to read.
        begin, end: the first and the end offset on the brokers; None if the partition does not
            exist any more.
    """

    topic: str
    partition: int
    offset: int
    begin: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """The number of offsets to read; None if the partition does not exist any more."""
        if self.begin is None or self.end is None:
            return None
        return max(0, self.end - max(self.offset, self.begin))


def kafka_positions(ends: Iterable[str]) -> list[Position]:
    """Return the positions in Kafka sources, both aioprod's and Spark's; other sources are
    ignored.
    """
    found = []
    for end in ends:
        try:
            found.append(position_from_json(json.loads(end)))
        except (AttributeError, TypeError, ValueError, RecursionError):
            continue
    return found


async def dead_letter_counts(
    coordination: Coordination, prefix: str, query_id: str
) -> dict[TopicPartition, int]:
    """Return the number of dead letters that a query has written from each partition, within
    `Coordination.limit_s`.

    Raises:
        SinkError: if another program has committed the group's offsets.
        KafkaError: if they can't be read within the limit.
    """
    found = await committed_offsets(coordination, group_of(prefix, query_id), stable=True)
    return {place: Written.of(found[place], "").count for place in sorted(found)}


async def look_up(
    client: ClusterClient, positions: Sequence[Position]
) -> tuple[list[PartitionPosition], list[str]]:
    """Return the position of each partition, and descriptions of lost data.

    There are three lookups for each source, each within a minute.
    """
    found: list[PartitionPosition] = []
    losses: list[str] = []
    for position in positions:
        partitions = await _existing(client, {tp.topic for tp in position.offsets})
        begin = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
        end = await list_offsets(client, dict.fromkeys(partitions, LATEST))
        now = Position(end, topic_ids(client, partitions))
        losses += position.losses(now)
        losses += check_not_lost(position.valid_in(now), begin, end)[1]
        found += _compared(position.offsets, begin, end)
    return found, losses


def _compared(offsets: Offsets, begin: Offsets, end: Offsets) -> list[PartitionPosition]:
    return [
        PartitionPosition(tp.topic, tp.partition, offset, begin.get(tp), end.get(tp))
        for tp, offset in sorted(offsets.items())
    ]


async def _existing(client: ClusterClient, topics: Iterable[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for topic in sorted(topics):
        try:
            found += await partitions_of(client, [topic])
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return found
