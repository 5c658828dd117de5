"""ConsumerGroupHeartbeat: join a group of the consumer protocol (KIP-848), move to the assigned
partitions, or leave.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.handlers.assignments import by_topic
from aioprod.testing.broker.handlers.coordination import check_group_coordinator
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.request_context import RequestContext


@handles(ConsumerGroupHeartbeatRequest)
async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Return the member's epoch, and its partitions if they have changed."""
    if code := context.failure():
        return ConsumerGroupHeartbeatResponse(error_code=code)
    groups = context.store.groups
    # Clients are on this machine.
    caller = Caller(context.client_id, f"/{context.node.host}", context.api_version)
    try:
        if request.group_id:
            check_group_coordinator(context, request.group_id)
        beat = groups.consumer_heartbeat(request, caller)
    except RequestError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.text)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        heartbeat_interval_ms=groups.settings_of(request.group_id).consumer_heartbeat_interval_ms
        if beat.epoch >= 0
        else 0,
        assignment=None
        if beat.assignment is None
        else Assignment(
            [
                ResponseTopicPartitions(topic_id, numbers)
                for topic_id, numbers in by_topic(beat.assignment).items()
            ]
        ),
    )
