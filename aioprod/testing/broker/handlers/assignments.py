"""Converts assignments of modern groups for responses, each of which has its own class."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.epoch_groups.member import Partitions
from aioprod.testing.broker.request_context import RequestContext


def by_topic(partitions: Partitions) -> dict[uuid.UUID, list[int]]:
    """Return the numbers of partitions by topic."""
    topics: dict[uuid.UUID, list[int]] = defaultdict(list)
    for topic_id, number in sorted(partitions):
        topics[topic_id].append(number)
    return topics


def with_names(
    partitions: Partitions, context: RequestContext
) -> Iterator[tuple[uuid.UUID, str, list[int]]]:
    """Return the id, name and partition numbers of each topic, without deleted topics."""
    for topic_id, numbers in by_topic(partitions).items():
        topic = context.store.find_topic("", topic_id)
        if topic is not None:
            yield topic_id, topic.name, numbers


def failure_of(assignments: Iterable[Partitions], context: RequestContext) -> ErrorCode:
    """Return the error if the client is not authorized to see one of these topics, or NONE."""
    everything = frozenset[tuple[uuid.UUID, int]]().union(*assignments)
    for _, name, _ in with_names(everything, context):
        if code := context.failure(name):
            return code
    return ErrorCode.NONE
