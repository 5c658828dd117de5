"""Assignments of modern groups as responses name them, which have a class of their own each."""

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
    """Return the id, name and partition numbers of each topic; topics that were deleted are left
    out.
    """
    for topic_id, numbers in by_topic(partitions).items():
        topic = context.store.find_topic("", topic_id)
        if topic is not None:
            yield topic_id, topic.name, numbers


def failure_of(assignments: Iterable[Partitions], context: RequestContext) -> ErrorCode:
    """Return why the client may not see a topic of these, or NONE."""
    everything = frozenset[tuple[uuid.UUID, int]]().union(*assignments)
    for _, name, _ in with_names(everything, context):
        if code := context.failure(name):
            return code
    return ErrorCode.NONE
