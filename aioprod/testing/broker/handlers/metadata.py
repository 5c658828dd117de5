"""Metadata: the running nodes, and topics with their partitions. May create the requested
topics.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import AclOperation, ResourceType
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.authorized_operations import operations
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.internal_topics import create_by_use, is_internal
from aioprod.testing.broker.leaders import describe_partition
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.store import Topic

_NULL_MEANS_ALL_FROM = 1  # in version 0, an empty list means all topics
_CREATION_FLAG_FROM = 4
_NULL_NAME_FROM = 12


@handles(MetadataRequest)
async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the cluster, and the requested topics or all topics."""
    wants_all = request.topics is None or (
        context.api_version < _NULL_MEANS_ALL_FROM and not request.topics
    )
    if wants_all:
        topics = [
            _describe(topic, context)
            for topic in context.store.topics.values()
            if context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        create = request.allow_auto_topic_creation or context.api_version < _CREATION_FLAG_FROM
        topics = [_answer(wanted, create, context) for wanted in request.topics or ()]
    for topic in topics:
        topic.is_internal = is_internal(topic.name)
        topic.topic_authorized_operations = operations(
            context,
            ResourceType.TOPIC,
            topic.name or "",
            wanted=request.include_topic_authorized_operations
            and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    cluster = context.store.cluster
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
            for node in cluster.running
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=operations(
            context, ResourceType.CLUSTER, wanted=request.include_cluster_authorized_operations
        ),
    )


def _answer(
    wanted: MetadataRequestTopic, create: bool, context: RequestContext
) -> MetadataResponseTopic:
    store = context.store
    by_id = wanted.topic_id.int != 0
    topic = store.find_topic(wanted.name or "", wanted.topic_id)
    code = context.failure(wanted.name if topic is None else topic.name)
    if not code and topic is not None:
        return _describe(topic, context)
    if not code and by_id:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    if not code:
        try:
            store.check_new_topic(wanted.name or "", store.num_partitions, {})
            if create and store.auto_create_topics:
                if not _may_create(wanted.name or "", context):
                    raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "CREATE is missing")
                return _describe(create_by_use(store, wanted.name or ""), context)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except RequestError as error:
            code = error.code
    name = wanted.name if context.api_version >= _NULL_NAME_FROM else wanted.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id)


def _may_create(name: str, context: RequestContext) -> bool:
    return context.allows(AclOperation.CREATE, ResourceType.CLUSTER) or context.allows(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _describe(topic: Topic, context: RequestContext) -> MetadataResponseTopic:
    code = context.failure(topic.name)
    if code:
        return MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id)
    partitions = [
        MetadataResponsePartition(**describe_partition(topic, index, context))
        for index in range(len(topic.partitions))
    ]
    return MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
