"""How a member that has an epoch leaves its group: a consumer group (KIP-848) or a share group
(KIP-932).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from aioprod.cluster.retry import is_retriable, retry
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi, action_for, refusal_of
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.protocol.message import Request
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

log = logging.getLogger(__name__)

LEAVE_LIMIT_S = 5.0
"""How long a member tries to leave. To try longer is useless: the session times out anyway."""

# The second: the coordinator has removed the member before, or has lost only its response.
_LEFT = (ErrorAction.DONE, ErrorAction.LOST_GENERATION)

ResponseT = TypeVar("ResponseT", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


async def tell_leaving(
    connections: GroupConnections, api: GroupApi, heartbeat: Request[ResponseT], group: str
) -> None:
    """Send the heartbeat that leaves a group, within ``LEAVE_LIMIT_S``. Retry while the coordinator
    moves, loads the group or can't be reached. Log a failure.

    Args:
        connections: the way to the coordinator.
        api: the kind of heartbeat.
        heartbeat: the request.
        group: the group, for the log.
    """

    async def attempt() -> None:
        reply = await connections.ask(
            lambda connection: (heartbeat, connection.pick_version(type(heartbeat)))
        )
        code = ErrorCode.of(reply.error_code)
        action = action_for(api, code)
        if action is ErrorAction.NEW_COORDINATOR:
            connections.forget_coordinator()
        if action not in _LEFT:
            raise refusal_of(api, code, group, reply.error_message, connections.principal)

    pause_s = connections.backoff.seconds
    deadline = asyncio.get_running_loop().time() + LEAVE_LIMIT_S
    try:
        async with asyncio.timeout_at(deadline):
            await retry(attempt, pause_s, is_retriable=is_retriable, deadline=deadline)
    except TimeoutError:
        _log(group, connections.trouble or "the coordinator does not answer")
    except KafkaError as error:
        _log(group, error)


def _log(group: str, reason: object) -> None:
    log.info("%s: leaving failed; its partitions wait for the session timeout: %s", group, reason)
