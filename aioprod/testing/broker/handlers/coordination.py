"""Checks that the handlers of transaction and group requests share."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from aioprod.error_codes import ErrorCode
from aioprod.protocol.acls import ResourceType
from aioprod.testing.broker.cluster import GROUP, TRANSACTION
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.request_context import RequestContext
from aioprod.types import TopicPartition

COORDINATED = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def check_coordinator(context: RequestContext, transactional_id: str) -> None:
    """Raise RequestError if the client is not authorized for this transactional id, or
    (NOT_COORDINATOR) if another node coordinates it.
    """
    _check(context, TRANSACTION, transactional_id)


def check_group_coordinator(context: RequestContext, group_id: str) -> None:
    """Raise RequestError if the client is not authorized for this group, or (NOT_COORDINATOR) if
    another node coordinates it.
    """
    _check(context, GROUP, group_id)


def check_group(context: RequestContext, group_id: str) -> None:
    """Raise RequestError if this node can't handle a group's request: a test's rule makes it fail,
    the id is empty, or another node coordinates the group.
    """
    if code := context.failure():
        raise RequestError(code, code.description)
    if not group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    check_group_coordinator(context, group_id)


def _check(context: RequestContext, kind: int, key: str) -> None:
    if code := context.refusal_of(COORDINATED[kind], key):
        raise RequestError(code, code.description)
    if (
        context.store.coordinator_node(kind, key) != context.node.node_id
        and not context.store.cluster.imitation.any_node_serves
    ):
        raise RequestError(ErrorCode.NOT_COORDINATOR, f"another node coordinates {key!r}")


def topic_name(context: RequestContext, name: str, topic_id: uuid.UUID) -> str | None:
    """Return the name of a topic in a request that has names or, in later versions, ids (KIP-848,
    KIP-1319); None if no topic has the id.
    """
    if not topic_id.int:
        return name
    topic = context.store.find_topic("", topic_id)
    return None if topic is None else topic.name


def check_place(context: RequestContext, place: TopicPartition, refusal: ErrorCode) -> ErrorCode:
    """Return the error if an offset can't be committed or deleted, or NONE. It comes from a test's
    rule, an unknown partition, or the refusal of the whole request.
    """
    topic = context.store.find_topic(place.topic)
    code = context.failure(*place)
    if not code and (topic is None or topic.partition(place.partition) is None):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code or refusal


def fenced_code(code: ErrorCode, version: int, known_from: int) -> ErrorCode:
    """Return the code that clients support in this version: PRODUCER_FENCED is newer than the
    requests (KIP-588).
    """
    return (
        ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.PRODUCER_FENCED and version < known_from
        else code
    )


def commit_offset(
    context: RequestContext,
    topic: str | None,
    partition: int,
    refusal: ErrorCode,
    commit: Callable[[TopicPartition], None],
) -> ErrorCode:
    """Commit an offset with ``commit``, unless its topic or partition is unknown, a test's rule
    makes it fail, or the whole request was refused. Return the code for the response.
    """
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    place = TopicPartition(topic, partition)
    code = check_place(context, place, refusal)
    if code:
        return code
    try:
        commit(place)
    except RequestError as error:
        return error.code
    return ErrorCode.NONE
