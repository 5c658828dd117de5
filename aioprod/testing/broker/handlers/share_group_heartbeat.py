"""ShareGroupHeartbeat: join a share group (KIP-932), get the assigned partitions, or leave."""

from __future__ import annotations

from aioprod.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from aioprod.testing.broker.epoch_groups.member import LEAVE_EPOCH, Partitions
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.handlers.assignments import by_topic
from aioprod.testing.broker.handlers.coordination import check_group_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext
from aioprod.testing.broker.share_groups.share_partitions import ShareKey


@handles(ShareGroupHeartbeatRequest)
async def handle(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Return the member's epoch, and its partitions if they have changed."""
    if code := context.failure():
        return ShareGroupHeartbeatResponse(error_code=code)
    # Clients are on this machine.
    caller = Caller(context.client_id, f"/{context.node.host}", context.api_version)
    try:
        if request.group_id:
            check_group_coordinator(context, request.group_id)
        beat = context.store.groups.share_heartbeat(request, caller)
    except RequestError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.text)
    answer = ShareGroupHeartbeatResponse(member_id=beat.member_id, member_epoch=beat.epoch)
    if beat.epoch != LEAVE_EPOCH:
        settings = context.store.group_configs.share(request.group_id)
        answer.heartbeat_interval_ms = settings.heartbeat_interval_ms
    if beat.assignment is not None:
        _initialize(request.group_id, beat.assignment, context)
        answer.assignment = Assignment(
            [
                TopicPartitions(topic_id, numbers)
                for topic_id, numbers in by_topic(beat.assignment).items()
            ]
        )
    return answer


def _initialize(group_id: str, assigned: Partitions, context: RequestContext) -> None:
    """Add the partitions that a member reads to the group."""
    for topic_id, number in assigned:
        topic = context.store.find_topic("", topic_id)
        partition = None if topic is None else topic.partition(number)
        if partition is not None:
            context.store.shares.initialize(ShareKey(group_id, topic_id, number), partition)
