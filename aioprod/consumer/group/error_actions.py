"""The action of a group member after each error code of its coordinator, as a table with the rules
of Kafka 4.1's consumer. Other codes have a default action, so that an unknown code ends no task.
"""

from __future__ import annotations

from enum import Enum

from aioprod.error_codes import COORDINATOR_MOVED, ErrorCode
from aioprod.errors import BrokerError
from aioprod.foreign_text import reason_of
from aioprod.net.refusals import explain


class GroupApi(Enum):
    """The requests of group members."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    CONSUMER_HEARTBEAT = "ConsumerGroupHeartbeat"
    SHARE_HEARTBEAT = "ShareGroupHeartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    FETCH_OFFSETS = "OffsetFetch"


class ErrorAction(Enum):
    """The action after a response."""

    DONE = "done"
    RETRY = "retry"
    """Send the request again, after a backoff."""
    NEW_COORDINATOR = "new coordinator"
    """Find the coordinator, then send the request again."""
    TAKE_MEMBER_ID = "take member id"
    """Join again at once, with the member id in the response (KIP-394)."""
    REJOIN = "rejoin"
    """The group rebalances: join again; partitions are kept until then."""
    LOST_GENERATION = "lost generation"
    """The group rebalanced without this member: its partitions are lost, its id is still valid."""
    LOST_MEMBER = "lost member"
    """The coordinator does not know the member: its partitions are lost, it joins as a new one."""
    STALE_EPOCH = "stale epoch"
    """The member's epoch has changed: send the request again with the current one (KIP-848)."""
    REFUSED = "refused"
    """Raise the error to the caller; the membership is not affected."""
    FENCED = "fenced"
    """Another member has the same ``group_instance_id``: this one can't continue."""


_E = ErrorCode
_V = ErrorAction
_MOVED = dict.fromkeys(COORDINATOR_MOVED, _V.NEW_COORDINATOR)
_FENCED = {_E.FENCED_INSTANCE_ID: _V.FENCED}
_LOST = {_E.UNKNOWN_MEMBER_ID: _V.LOST_MEMBER, _E.ILLEGAL_GENERATION: _V.LOST_GENERATION}
# The epoch is that of a former member (KIP-848): it joins again with epoch 0.
_FENCED_EPOCH = {_E.FENCED_MEMBER_EPOCH: _V.LOST_GENERATION}

_RULES: dict[GroupApi, dict[ErrorCode, ErrorAction]] = {
    GroupApi.FIND_COORDINATOR: {},
    GroupApi.JOIN: {
        **_MOVED,
        **_FENCED,
        **_LOST,
        _E.MEMBER_ID_REQUIRED: _V.TAKE_MEMBER_ID,
        # The group has begun to rebalance since the member got its id.
        _E.REBALANCE_IN_PROGRESS: _V.RETRY,
    },
    GroupApi.SYNC: {**_MOVED, **_FENCED, **_LOST, _E.REBALANCE_IN_PROGRESS: _V.REJOIN},
    GroupApi.HEARTBEAT: {**_MOVED, **_FENCED, **_LOST, _E.REBALANCE_IN_PROGRESS: _V.REJOIN},
    GroupApi.CONSUMER_HEARTBEAT: {
        **_MOVED,
        **_FENCED,
        **_FENCED_EPOCH,
        _E.UNKNOWN_MEMBER_ID: _V.LOST_GENERATION,
        # Another member with the same instance id has not left yet.
        _E.UNRELEASED_INSTANCE_ID: _V.REFUSED,
    },
    GroupApi.SHARE_HEARTBEAT: {
        **_MOVED,
        **_FENCED_EPOCH,
        _E.UNKNOWN_MEMBER_ID: _V.LOST_GENERATION,
    },
    GroupApi.LEAVE: {**_MOVED, _E.UNKNOWN_MEMBER_ID: _V.LOST_MEMBER},
    GroupApi.COMMIT: {
        **_MOVED,
        **_FENCED,
        **_LOST,
        _E.REQUEST_TIMED_OUT: _V.NEW_COORDINATOR,
        _E.REBALANCE_IN_PROGRESS: _V.REJOIN,
        _E.STALE_MEMBER_EPOCH: _V.STALE_EPOCH,
        # The coordinator may not know a new topic yet.
        _E.UNKNOWN_TOPIC_OR_PARTITION: _V.RETRY,
    },
    GroupApi.FETCH_OFFSETS: {
        **_MOVED,
        _E.STALE_MEMBER_EPOCH: _V.STALE_EPOCH,
        _E.UNKNOWN_MEMBER_ID: _V.STALE_EPOCH,
        # An open transaction has offsets of the partition (KIP-447).
        _E.UNSTABLE_OFFSET_COMMIT: _V.RETRY,
        _E.UNKNOWN_TOPIC_OR_PARTITION: _V.RETRY,
    },
}


#: What groups of KIP-848 need, for errors.
EPOCH_GROUPS_NEED = 'group_protocol="consumer" needs Kafka 4.0, or 3.7 with it enabled'


def refusal_of(
    api: GroupApi, code: ErrorCode, group: str, text: str | None, principal: str
) -> BrokerError:
    """Return the error of a heartbeat with a member epoch, or of leaving.

    Args:
        api: the request.
        code: the error code of the response.
        group: the group, for the text.
        text: the text of the broker.
        principal: the principal of the client.
    """
    said = reason_of(text)
    error = BrokerError(code, f"{group}: {api.value}" + (f" ({said})" if said else ""))
    if code == _E.GROUP_ID_NOT_FOUND:  # joining creates a group, unless there is another one
        error.explain("a group of another type has this id: choose another group_id")
    if code == _E.UNSUPPORTED_VERSION and api is GroupApi.CONSUMER_HEARTBEAT:
        error.explain(EPOCH_GROUPS_NEED)  # Kafka 3.9 announces the request nevertheless
    return explain(error, api.value, principal)


def action_for(api: GroupApi, code: ErrorCode) -> ErrorAction:
    """Return the action after this error code in a response."""
    if code == _E.NONE:
        return _V.DONE
    rule = _RULES[api].get(code)
    if rule is not None:
        return rule
    return _V.RETRY if code.retriable else _V.REFUSED
