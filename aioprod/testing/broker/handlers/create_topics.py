"""CreateTopics. One node, so one replica: a higher replication factor is refused as a real single node does."""

from __future__ import annotations

from collections import Counter

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.store import StoreError

_TOPIC_CONFIG_SOURCE = 1  # DYNAMIC_TOPIC_CONFIG


async def handle(request: CreateTopicsRequest, exchange: Exchange) -> CreateTopicsResponse:
    """Create what can be created; each topic has its own result."""
    counts = Counter(topic.name for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreateTopicsResponse(topics=[_create(topic, counts[name] > 1, request.validate_only, exchange) for name, topic in by_name.items()])


def _create(wanted: CreatableTopic, repeated: bool, validate_only: bool, exchange: Exchange) -> CreatableTopicResult:
    try:
        if code := exchange.failure(wanted.name):
            raise StoreError(code, code.description)
        if repeated:
            raise StoreError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        return _create_checked(wanted, validate_only, exchange)
    except StoreError as error:
        return CreatableTopicResult(name=wanted.name, error_code=error.code, error_message=error.text, configs=None)


def _create_checked(wanted: CreatableTopic, validate_only: bool, exchange: Exchange) -> CreatableTopicResult:
    store = exchange.store
    count = _partition_count(wanted, exchange)
    configs = {config.name: config.value for config in wanted.configs}
    store.check_new_topic(wanted.name, count, configs)
    result = CreatableTopicResult(
        name=wanted.name,
        num_partitions=count,
        replication_factor=1,
        configs=[CreatableTopicConfigs(name=name, value=value, config_source=_TOPIC_CONFIG_SOURCE) for name, value in configs.items()],
    )
    if not validate_only:
        result.topic_id = store.create_topic(wanted.name, count, configs).topic_id
    return result


def _partition_count(wanted: CreatableTopic, exchange: Exchange) -> int:
    """Read the number of partitions from the number or from the manual assignment, and check the replicas."""
    own = [exchange.node.node_id]
    if not wanted.assignments:
        if wanted.replication_factor not in (-1, 1):
            raise StoreError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {wanted.replication_factor}: there is one broker")
        return exchange.store.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    if wanted.num_partitions != -1 or wanted.replication_factor != -1:
        raise StoreError(ErrorCode.INVALID_REQUEST, "A manual partition assignment excludes a number of partitions and a replication factor.")
    numbers = sorted(assignment.partition_index for assignment in wanted.assignments)
    if numbers != list(range(len(numbers))) or any(assignment.broker_ids != own for assignment in wanted.assignments):
        raise StoreError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions must be 0, 1, ... and each on broker {own[0]}")
    return len(numbers)
