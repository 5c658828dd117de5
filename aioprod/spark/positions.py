"""Positions of a stream: offsets, and the topics that they belong to. No I/O.

A checkpoint stores them as JSON in the format of Spark's Kafka connector, with one more entry for
each topic: ``{"orders": {"0": 23}, "orders#<topic id>": {}}``. Such a name can't be a topic, and
has no partitions, so the connector ignores it. Thus the connector can continue a checkpoint of this
source, and this source can continue the connector's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from aioprod.spark.json_options import ID_MARK
from aioprod.spark.offsets import OffsetJson, Offsets, offsets_from_json, offsets_to_json


class Position(NamedTuple):
    """The position of a stream.

    Attributes:
        offsets: the offset of each partition.
        topic_ids: for each name, the id (KIP-516) of the topic that its offsets belong to. Unknown
            on brokers before Kafka 2.8, and in checkpoints of Spark's connector.
    """

    offsets: Offsets
    topic_ids: Mapping[str, uuid.UUID]

    def recreated(self, later: Position) -> set[str]:
        """Return the topics that were recreated between this position and ``later``."""
        return {
            name
            for name, topic_id in self.topic_ids.items()
            if later.topic_ids.get(name, topic_id) != topic_id
        }

    def valid_in(self, later: Position) -> Offsets:
        """Return the offsets that are still valid in ``later``."""
        gone = self.recreated(later)
        return {tp: offset for tp, offset in self.offsets.items() if tp.topic not in gone}

    def losses(self, later: Position) -> list[str]:
        """Describe each topic that was recreated."""
        return [
            f"topic {name} was deleted and created again (topic id {later.topic_ids[name]}, before "
            f"{self.topic_ids[name]}): the query's offsets are those of the deleted topic ("
            + ", ".join(
                f"partition {tp.partition}: {offset}"
                for tp, offset in sorted(self.offsets.items())
                if tp.topic == name
            )
            + "), and the new one is to be read from its first record"
            for name in sorted(self.recreated(later))
        ]


def position_from_json(given: Mapping[str, Mapping[str, int]]) -> Position:
    """Parse a position in a checkpoint of this source or of Spark's Kafka connector."""
    named = (name.partition(ID_MARK) for name in given if ID_MARK in name)
    ids = {topic: uuid.UUID(text) for topic, _, text in named}
    return Position(offsets_from_json(given), ids)


def position_to_json(position: Position) -> OffsetJson:
    """Reverse `position_from_json`; equal positions result in equal text."""
    nested = offsets_to_json(position.offsets)
    ids = sorted(position.topic_ids.items())
    return nested | {f"{name}{ID_MARK}{topic_id}": {} for name, topic_id in ids if name in nested}
