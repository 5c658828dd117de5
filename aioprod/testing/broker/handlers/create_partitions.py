"""CreatePartitions (KIP-195): topics get more partitions, never fewer."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import MAX_PARTITIONS, StoreError, Topic
from aioprod.testing.broker.store_error import check_timeout


@handles(CreatePartitionsRequest)
async def handle(request: CreatePartitionsRequest, exchange: Exchange) -> CreatePartitionsResponse:
    """Grow each topic that can grow."""
    counts = Counter(topic.name for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreatePartitionsResponse(
        results=[
            _grow(topic, counts[name] > 1, request, exchange) for name, topic in by_name.items()
        ]
    )


def _grow(
    wanted: CreatePartitionsTopic,
    repeated: bool,
    request: CreatePartitionsRequest,
    exchange: Exchange,
) -> CreatePartitionsTopicResult:
    try:
        if code := exchange.failure(wanted.name):
            raise StoreError(code, code.description)
        if repeated:
            raise StoreError(ErrorCode.INVALID_REQUEST, "a topic may be named once")
        check_timeout(request.timeout_ms)
        topic = exchange.store.get_topic(wanted.name)
        assignment = _assignment(wanted, topic, exchange)
        if not request.validate_only:
            exchange.store.grow_topic(topic, assignment)
    except StoreError as error:
        return CreatePartitionsTopicResult(wanted.name, error.code, error.text)
    return CreatePartitionsTopicResult(wanted.name)


def _assignment(
    wanted: CreatePartitionsTopic, topic: Topic, exchange: Exchange
) -> list[tuple[int, ...]]:
    """The nodes of each new partition; StoreError where it can't be had."""
    present = len(topic.partitions)
    if not present < wanted.count <= MAX_PARTITIONS:
        raise StoreError(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted.count} partitions: must be {present + 1} to {MAX_PARTITIONS}",
        )
    factor = len(topic.partitions[0].leadership.replicas)
    if wanted.assignments is None:
        return exchange.store.choose_replicas(wanted.count, factor)[present:]
    added = wanted.count - present
    if len(wanted.assignments) != added:
        raise StoreError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(wanted.assignments)} assignments for {added} new partitions",
        )
    placed = exchange.store.check_assignment([each.broker_ids for each in wanted.assignments])
    if len(placed[0]) != factor:
        raise StoreError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(placed[0])} replicas for each partition: the topic has {factor}",
        )
    return placed
