"""Informs the coordinator that a member leaves: with LeaveGroup, or with a heartbeat if the member
has an epoch, in a consumer group (KIP-848) or a share group (KIP-932).
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from aioprod.cluster.retry import is_retriable, retry
from aioprod.consumer.group.connections import GroupConnections, Prepare
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for, refusal_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from aioprod.protocol.messages.leave_group import LeaveGroupResponse
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

log: Logger = get_logger(__name__)

LEAVE_LIMIT_S = 5.0
"""Seconds for which a member tries to leave. More would be useless: the session times out anyway.
"""

# The last two: the coordinator has removed the member before, or only its response was lost.
_LEFT = (ErrorAction.DONE, ErrorAction.LOST_GENERATION, ErrorAction.LOST_MEMBER)

ResponseT = TypeVar(
    "ResponseT", LeaveGroupResponse, ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse
)


async def send_leave(
    connections: GroupConnections, api: GroupApi, prepare: Prepare[ResponseT], group: str
) -> None:
    """Inform the coordinator, within ``LEAVE_LIMIT_S``. Retry while it moves, loads the group or
    can't be reached. Log a failure.

    Args:
        connections: the way to the coordinator.
        api: the request.
        prepare: makes the request.
        group: the group, for the log.
    """

    async def attempt() -> None:
        reply = await connections.ask(prepare)
        code = ErrorCode.of(reply.error_code)
        action = action_for(api, code)
        if action is ErrorAction.NEW_COORDINATOR:
            connections.forget_coordinator()
        if action not in _LEFT:
            text = None if isinstance(reply, LeaveGroupResponse) else reply.error_message
            raise refusal_of(api, code, group, text, connections.principal)

    pause_s = connections.backoff.seconds
    deadline = asyncio.get_running_loop().time() + LEAVE_LIMIT_S
    try:
        async with asyncio.timeout_at(deadline):
            await retry(attempt, pause_s, is_retriable=is_retriable, deadline=deadline)
    except TimeoutError:
        _log(connections, group, connections.trouble or "the coordinator does not answer")
    except KafkaError as error:
        _log(connections, group, error)


def _log(connections: GroupConnections, group: str, reason: object) -> None:
    text = "%s: %s: leaving failed; its partitions wait for the session timeout: %s"
    log.info(text, connections.client_id, group, reason)
