"""OffsetDelete: what a group has committed for topics that none of its members reads (KIP-496)."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.groups.group import CONSUMER, Group, GroupState
from aioprod.testing.broker.handlers.coordination import check_group, check_place
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.store import StoreError
from aioprod.types import TopicPartition


@handles(OffsetDeleteRequest)
async def handle(request: OffsetDeleteRequest, exchange: Exchange) -> OffsetDeleteResponse:
    """Refuse as a whole, or answer for each partition."""
    try:
        check_group(exchange, request.group_id)
        read = _topics_in_use(exchange.store.groups.groups.get(request.group_id))
    except StoreError as error:
        return OffsetDeleteResponse(error_code=error.code)
    topics = [
        OffsetDeleteResponseTopic(
            topic.name,
            [
                OffsetDeleteResponsePartition(
                    asked.partition_index,
                    _delete(
                        request.group_id,
                        TopicPartition(topic.name, asked.partition_index),
                        read,
                        exchange,
                    ),
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)


def _topics_in_use(group: Group | None) -> frozenset[str]:
    if group is None:
        raise StoreError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no such group")
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        raise StoreError(ErrorCode.NON_EMPTY_GROUP, "nobody knows what its members read")
    return group.subscribed_topics


def _delete(
    group_id: str, place: TopicPartition, read: frozenset[str], exchange: Exchange
) -> ErrorCode:
    refusal = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if place.topic in read else ErrorCode.NONE
    code = check_place(exchange, place, refusal)
    if not code:
        exchange.store.offsets.delete_one(group_id, place)
    return code
