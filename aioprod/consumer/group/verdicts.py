"""What a coordinator's error code means for a member of a group. A pure table with the rules of
Kafka 4.1's own consumer.

A code that no rule names gets a verdict all the same, by API: a code that is new or out of place
must not kill a task.
"""

from __future__ import annotations

from enum import Enum

from aioprod.error_codes import COORDINATOR_MOVED, ErrorCode


class Api(Enum):
    """The requests of a group's members."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    CONSUMER_HEARTBEAT = "ConsumerGroupHeartbeat"
    COMMIT = "OffsetCommit"
    FETCH_OFFSETS = "OffsetFetch"


class Verdict(Enum):
    """What to do after an answer."""

    DONE = "done"
    RETRY = "retry"
    """The same request again, after a pause."""
    NEW_COORDINATOR = "new coordinator"
    """The same, but look for the coordinator first."""
    TAKE_MEMBER_ID = "take member id"
    """Join again at once, with the id in the answer (KIP-394)."""
    REJOIN = "rejoin"
    """The group rebalances: join again; partitions are kept until then."""
    LOST_GENERATION = "lost generation"
    """The group went on without this member: what it had is lost, its id still counts."""
    LOST_MEMBER = "lost member"
    """The coordinator does not know the member any more: what it had is lost, it joins as a new
    one.
    """
    STALE_EPOCH = "stale epoch"
    """The member's epoch has changed meanwhile: again with the present one (KIP-848)."""
    REFUSED = "refused"
    """An error for whoever called. The member is sound."""
    FENCED = "fenced"
    """Another member has this one's ``group_instance_id``: it can't go on."""


_E = ErrorCode
_V = Verdict
_MOVED = dict.fromkeys(COORDINATOR_MOVED, _V.NEW_COORDINATOR)
_FENCED = {_E.FENCED_INSTANCE_ID: _V.FENCED}
_LOST = {_E.UNKNOWN_MEMBER_ID: _V.LOST_MEMBER, _E.ILLEGAL_GENERATION: _V.LOST_GENERATION}
# The epoch belongs to a member that is gone (KIP-848): it begins anew with epoch 0.
_FENCED_EPOCH = {_E.FENCED_MEMBER_EPOCH: _V.LOST_GENERATION}

_RULES: dict[Api, dict[ErrorCode, Verdict]] = {
    Api.FIND_COORDINATOR: {},
    Api.JOIN: {
        **_MOVED,
        **_FENCED,
        **_LOST,
        _E.MEMBER_ID_REQUIRED: _V.TAKE_MEMBER_ID,
        # The member was given an id, and the group began to rebalance before it came back with it.
        _E.REBALANCE_IN_PROGRESS: _V.RETRY,
    },
    Api.SYNC: {**_MOVED, **_FENCED, **_LOST, _E.REBALANCE_IN_PROGRESS: _V.REJOIN},
    Api.HEARTBEAT: {**_MOVED, **_FENCED, **_LOST, _E.REBALANCE_IN_PROGRESS: _V.REJOIN},
    Api.CONSUMER_HEARTBEAT: {
        **_MOVED,
        **_FENCED,
        **_FENCED_EPOCH,
        _E.UNKNOWN_MEMBER_ID: _V.LOST_GENERATION,
        # A new member of a name that another one still has: that one has to leave before.
        _E.UNRELEASED_INSTANCE_ID: _V.REFUSED,
    },
    Api.COMMIT: {
        **_MOVED,
        **_FENCED,
        **_LOST,
        _E.REQUEST_TIMED_OUT: _V.NEW_COORDINATOR,
        _E.REBALANCE_IN_PROGRESS: _V.REJOIN,
        _E.STALE_MEMBER_EPOCH: _V.STALE_EPOCH,
        # The topic may be so new that the coordinator does not know it yet.
        _E.UNKNOWN_TOPIC_OR_PARTITION: _V.RETRY,
    },
    Api.FETCH_OFFSETS: {
        **_MOVED,
        _E.STALE_MEMBER_EPOCH: _V.STALE_EPOCH,
        _E.UNKNOWN_MEMBER_ID: _V.STALE_EPOCH,
        # A transaction with offsets of the partition is open (KIP-447).
        _E.UNSTABLE_OFFSET_COMMIT: _V.RETRY,
        _E.UNKNOWN_TOPIC_OR_PARTITION: _V.RETRY,
    },
}


def judge(api: Api, code: ErrorCode) -> Verdict:
    """The verdict on one code in an answer."""
    if code == _E.NONE:
        return _V.DONE
    rule = _RULES[api].get(code)
    if rule is not None:
        return rule
    return _V.RETRY if code.retriable else _V.REFUSED
