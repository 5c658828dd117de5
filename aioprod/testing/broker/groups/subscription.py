"""Decodes the subscriptions and assignments that consumers exchange as bytes."""

from __future__ import annotations

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import Reader
from aioprod.types import TopicPartition


def read_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics of a consumer's subscription, or None if the bytes are invalid."""
    reader = Reader(metadata)
    try:
        reader.int16()  # later versions append fields
        return tuple(reader.string() for _ in range(reader.array_length(False)))
    except ProtocolError:
        return None


def read_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of a consumer's assignment, or None if the bytes are invalid. An empty
    assignment has none.
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
