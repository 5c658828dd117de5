"""Checks of heartbeats that do not depend on the state of the group, and of their patterns."""

from __future__ import annotations

import re
from functools import lru_cache

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.testing.broker.epoch_groups.assignors import ASSIGNORS
from aioprod.testing.broker.epoch_groups.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
)
from aioprod.testing.broker.errors import RequestError

_IDS_OF_MEMBERS_FROM = 1  # from this version on, members generate their ids (KIP-1082)
# Look-around, atomic groups, conditions, comments, references to groups. Kafka uses RE2, which
# lacks these; Python supports RE2's expressions.
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>#(]|<[=!]|P=)|\\[1-9])")


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise RequestError if a heartbeat is invalid."""
    problem = _problem(request, version)
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}.",
        )


def _problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    epoch = request.member_epoch
    needs_id = version >= _IDS_OF_MEMBERS_FROM or epoch != JOIN_EPOCH
    if needs_id and not request.member_id.strip():
        return "MemberId can't be empty."
    texts = {
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    for name, text in texts.items():
        if text is not None and not text.strip():
            return f"{name} can't be empty."
    if epoch == JOIN_EPOCH:
        return _problem_of_join(request)
    if epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVE_FOR_A_WHILE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _problem_of_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    return None


def leaves(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether this is the heartbeat of a member that leaves."""
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)


@lru_cache(maxsize=1000)
def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, which must match whole names; raise RequestError
    (INVALID_REGULAR_EXPRESSION) if it is not a valid RE2 expression.
    """
    try:
        if _NOT_IN_RE2.search(text):
            raise re.error("RE2 does not support this operator", text)
        return re.compile(text)
    except re.error as error:
        raise RequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
        ) from None
