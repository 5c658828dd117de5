"""CreatePartitions (KIP-195): add partitions to topics."""

from __future__ import annotations

from collections import Counter

from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from aioprod.testing.broker.errors import RequestError, check_timeout
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import MAX_PARTITIONS, Topic


@handles(CreatePartitionsRequest)
async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add the partitions; each topic has a separate result."""
    counts = Counter(topic.name for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreatePartitionsResponse(
        results=[
            _grow(topic, counts[name] > 1, request, context) for name, topic in by_name.items()
        ]
    )


def _grow(
    wanted: CreatePartitionsTopic,
    repeated: bool,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsTopicResult:
    try:
        if code := context.failure(wanted.name):
            raise RequestError(code, code.description)
        if repeated:
            raise RequestError(ErrorCode.INVALID_REQUEST, "a topic is named twice")
        check_timeout(request.timeout_ms)
        topic = context.store.get_topic(wanted.name)
        assignment = _assignment(wanted, topic, context)
        if not request.validate_only:
            context.store.grow_topic(topic, assignment)
    except RequestError as error:
        return CreatePartitionsTopicResult(wanted.name, error.code, error.text)
    return CreatePartitionsTopicResult(wanted.name)


def _assignment(
    wanted: CreatePartitionsTopic, topic: Topic, context: RequestContext
) -> list[tuple[int, ...]]:
    """Return the nodes of each new partition; raise RequestError if the request is invalid."""
    present = len(topic.partitions)
    if not present < wanted.count <= MAX_PARTITIONS:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"{counted(wanted.count, 'partition')}: must be {present + 1} to {MAX_PARTITIONS}",
        )
    factor = len(topic.partitions[0].leadership.replicas)
    if wanted.assignments is None:
        return context.store.choose_replicas(wanted.count, factor)[present:]
    added = wanted.count - present
    if len(wanted.assignments) != added:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(wanted.assignments)} assignments: must be {added}, the number of new partitions",
        )
    placed = context.store.check_assignment([each.broker_ids for each in wanted.assignments])
    if len(placed[0]) != factor:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(placed[0])} replicas for each partition: must be {factor} as for the others",
        )
    return placed
