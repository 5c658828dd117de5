"""The progress of sending the dead letters of a partition again, as the metadata of a group's
offset.

A selection sends the dead letters of a partition in the order of their offsets. So the records that
were sent are those that a selection of the past chose, below the position that it reached. That is
known later, however the selections overlap, without a list of records.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field

from aioprod import KafkaError, OffsetAndMetadata, TopicPartition
from aioprod.admin import Admin
from aioprod.config.checks import check_name
from aioprod.processing.dead_letters.letters import DeadLetter
from aioprod.processing.dead_letters.selection import SELECTED, Choice, Selection

# Brokers refuse more by default (offset.metadata.max.bytes).
_MOST_BYTES = 4_096
_VERSION = 1
# What an offset without metadata says: all records before it are done.
_EVERYTHING = Choice(Selection(max_redrives=None), needs_origin=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a redrive in a partition.

    Attributes:
        topic_id: the id of the dead-letter topic; empty if the brokers do not support ids.
        reached: the position that each choice has reached.
        is_known: False if the group has no offset.
    """

    topic_id: str = ""
    reached: dict[Choice, int] = field(default_factory=dict)
    is_known: bool = False

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None, topic_id: str) -> Progress:
        """Return what an offset says; nothing is sent of a topic that was created again.

        Raises:
            KafkaError: if another program has committed the offset.
        """
        if committed is None:
            return cls(topic_id)
        if not committed.metadata:  # such as that of `aioprod groups reset-offsets`
            return cls(topic_id, {_EVERYTHING: committed.offset}, is_known=True)
        try:
            given = json.loads(committed.metadata)
            if given["version"] != _VERSION:
                raise ValueError(given["version"])
            of_topic = str(given["topicId"])
            reached = {Choice.of_json(each): int(offset) for each, offset in given["reached"]}
        except (ValueError, KeyError, TypeError, AttributeError, KafkaError):
            raise KafkaError(
                f"the group has an offset with metadata {committed.metadata[:100]!r}, which "
                "another program, or another version of aioprod, has committed: give another group"
            ) from None
        if topic_id and of_topic and of_topic != topic_id:
            return cls(topic_id)
        return cls(topic_id or of_topic, reached, is_known=True)

    def is_done(self, letter: DeadLetter) -> bool:
        """Return whether a record was sent again, or dropped."""
        offset = letter.record.offset
        return any(
            offset < position and choice.verdict(letter) == SELECTED
            for choice, position in self.reached.items()
        )

    def committed(self, choice: Choice, position: int, begin: int) -> OffsetAndMetadata:
        """Return the offset to commit.

        Args:
            position: the position that the choice has reached.
            begin: the oldest offset of the partition; positions before it say nothing any more.

        Raises:
            KafkaError: if brokers would refuse it.
        """
        reached = {each: offset for each, offset in self.reached.items() if offset > begin}
        reached[choice] = max(position, self.reached.get(choice, 0))
        data = {
            "version": _VERSION,
            "topicId": self.topic_id,
            "reached": [[each.to_json(), offset] for each, offset in reached.items()],
        }
        text = json.dumps(data, separators=(",", ":"))
        if len(text) > _MOST_BYTES:
            raise KafkaError(
                f"{len(reached)} selections of dead letters need {len(text):,} bytes in the "
                f"group's offset, and {_MOST_BYTES:,} are allowed: give another group, which knows "
                "nothing of the records that were sent, or a shorter selection"
            )
        return OffsetAndMetadata(reached[choice], text)


def group_of(topic: str, group_id: str | None) -> str:
    """Return the group whose offsets are the progress of a topic's redrives.

    Raises:
        ConfigError: if the name is invalid.
    """
    name: str = check_name("group_id", group_id or f"aioprod-redrive-{topic}")
    return name


async def read_progress(
    admin: Admin, group_id: str, topic: str, partitions: Collection[TopicPartition], *, stable: bool
) -> dict[TopicPartition, Progress]:
    """Return the progress in each partition.

    Args:
        stable: wait for the end of an open transaction, instead of returning the offsets before it.

    Raises:
        KafkaError: if brokers refuse, or none responds, or another program has committed an offset.
    """
    described = await admin.describe_topics(topic)
    topic_id = "" if described.topic_id is None else str(described.topic_id)
    stored = await admin.list_consumer_group_offsets(
        group_id, list(partitions), require_stable=stable
    )
    stored.check()
    return {partition: Progress.of(stored[partition], topic_id) for partition in partitions}
