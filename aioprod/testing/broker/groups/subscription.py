"""What consumers tell each other in their groups' bytes: the topics that they read, and the
partitions that they are given.
"""

from __future__ import annotations

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader
from aioprod.types import TopicPartition


def read_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics of a consumer's subscription; None where it can't be read as one."""
    reader = Reader(metadata)
    try:
        reader.int16()  # versions only add to the end
        return tuple(reader.string() for _ in range(reader.array_length(False)))
    except ProtocolError:
        return None


def read_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions that a consumer is given, none for an empty assignment; None where it can't be
    read as one.
    """
    if not assignment:
        return ()
    reader = Reader(assignment)
    try:
        reader.int16()
        found = []
        for _ in range(reader.array_length(False)):
            topic = reader.string()
            found += [
                TopicPartition(topic, reader.int32()) for _ in range(reader.array_length(False))
            ]
    except ProtocolError:
        return None
    return tuple(found)
