"""CreateTopics: any node handles it like a controller. The replication factor can't exceed the
number of nodes.
"""

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
from aioprod.testing.broker.errors import RequestError, check_timeout
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.settings.configs import DescribedSetting


@handles(CreateTopicsRequest)
async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the valid topics; each topic has a separate result."""
    counts = Counter(topic.name for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreateTopicsResponse(
        topics=[
            _create(topic, counts[name] > 1, request, context) for name, topic in by_name.items()
        ]
    )


def _create(
    wanted: CreatableTopic, repeated: bool, request: CreateTopicsRequest, context: RequestContext
) -> CreatableTopicResult:
    try:
        if code := context.failure(wanted.name):
            raise RequestError(code, code.description)
        if repeated:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        check_timeout(request.timeout_ms)
        return _create_checked(wanted, request.validate_only, context)
    except RequestError as error:
        return CreatableTopicResult(
            name=wanted.name, error_code=error.code, error_message=error.text
        )


def _create_checked(
    wanted: CreatableTopic, validate_only: bool, context: RequestContext
) -> CreatableTopicResult:
    store = context.store
    assignment = _manual_assignment(wanted, context)
    count = (
        len(assignment)
        if assignment
        else store.num_partitions
        if wanted.num_partitions == -1
        else wanted.num_partitions
    )
    configs = {config.name: config.value for config in wanted.configs}
    store.check_new_topic(wanted.name, count, configs)
    placed = assignment or store.choose_replicas(
        count, None if wanted.replication_factor == -1 else wanted.replication_factor
    )
    result = CreatableTopicResult(
        name=wanted.name,
        error_message=None,
        num_partitions=count,
        replication_factor=len(placed[0]),
        configs=[
            _config(described)
            for described in store.configs.describe_topic(configs, None, context.node.node_id)
        ],
    )
    result.topic_id = (
        store.new_uuid()
        if validate_only
        else store.create_topic(wanted.name, configs=configs, assignment=placed).topic_id
    )
    return result


def _config(described: DescribedSetting) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        described.setting.name, described.value, read_only=False, config_source=described.source
    )


def _manual_assignment(wanted: CreatableTopic, context: RequestContext) -> list[tuple[int, ...]]:
    """Validate and return the nodes of each partition if the client chose them."""
    if not wanted.assignments:
        return []
    if wanted.num_partitions != -1 or wanted.replication_factor != -1:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            (
                "A manual partition assignment excludes a number of partitions and a replication "
                "factor."
            ),
        )
    by_index = {
        assignment.partition_index: assignment.broker_ids for assignment in wanted.assignments
    }
    if len(by_index) != len(wanted.assignments) or sorted(by_index) != list(range(len(by_index))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the partitions must be 0, 1, ..., each named once",
        )
    return context.store.check_assignment([by_index[index] for index in range(len(by_index))])
