"""Members of a group of the consumer protocol that use the classic protocol, while the group's
consumers are migrated online (KIP-848). The coordinator assigns their partitions; to each of them,
another member seems to be the leader.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError
from aioprod.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import ClassicSide, EpochMember, Partitions, Phase
from aioprod.testing.broker.epoch_groups.modern import Topics
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import CONSUMER, Deadline
from aioprod.testing.broker.groups.joining import KNOWN_ID_FROM
from aioprod.testing.broker.groups.member import Caller, protocols_of
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.types import TopicPartition


def join(
    group: EpochGroup,
    request: JoinGroupRequest,
    new_member_id: str,
    caller: Caller,
    topics: Topics,
    settings: GroupSettings,
    now: float,
) -> JoinGroupResponse:
    """Let a member join or rejoin. It gets its epoch immediately, as the generation.

    Raises:
        RequestError: if it can't join.
    """
    member_id = request.member_id or new_member_id
    if member_id not in group.members and len(group.members) >= settings.max_size:
        raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
    protocols = protocols_of(request)
    if request.protocol_type != CONSUMER or not _has_common(group, protocols):
        raise RequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{member_id}'s protocols are not supported"
        )
    instance = request.group_instance_id
    if not request.member_id and instance is None and caller.api_version >= KNOWN_ID_FROM:
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    side = ClassicSide(request.session_timeout_ms, protocols)
    subscription = _subscription(side)
    member = _join_or_find(group, request, member_id, caller)
    names = frozenset(subscription.topics)
    changed = names != member.topic_names
    member.topic_names, member.classic = names, side
    member.client_id, member.client_host = caller.client_id, caller.client_host
    member.rack_id = subscription.rack or member.rack_id
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    group.advance(member, with_ids(subscription.owned, topics), topics, changed=changed)
    group.deadlines.pop(Deadline("join", member_id), None)
    group.renew_classic_session(member, side, now)
    group.deadlines[Deadline("sync", member_id)] = now + member.rebalance_timeout_ms / 1000
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=side.protocol_name,
        leader="",
        member_id=member_id,
    )


def _has_common(group: EpochGroup, protocols: Iterable[str]) -> bool:
    """Return whether all members that use the classic protocol support one of these protocols."""
    sides = [each.classic for each in group.members.values() if each.classic is not None]
    return any(all(name in side.protocols for side in sides) for name in protocols)


def _subscription(side: ClassicSide) -> Subscription:
    try:
        return decode_subscription(side.protocols[side.protocol_name])
    except ProtocolError as error:
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None


def _join_or_find(
    group: EpochGroup, request: JoinGroupRequest, member_id: str, caller: Caller
) -> EpochMember:
    instance = request.group_instance_id
    if instance is not None:
        if request.member_id:
            return group.static_member(instance, member_id)
        owner = group.static_members.get(instance)
        if owner is not None:
            return group.replace(group.members[owner], member_id)
    known = group.members.get(member_id)
    return known or EpochMember(member_id, instance, None, caller.client_id, caller.client_host)


def sync(
    group: EpochGroup, request: SyncGroupRequest, topics: Topics, now: float
) -> SyncGroupResponse:
    """Return a member's partitions; raise RequestError if it is not in this epoch, or has to
    rejoin.
    """
    member, side = _find(group, request)
    names = request.protocol_type, request.protocol_name
    if names[0] not in (None, CONSUMER) or names[1] not in (None, side.protocol_name):
        raise RequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the member's protocol is {CONSUMER}/{side.protocol_name}",
        )
    if group.target_epoch > member.epoch and member.phase is not Phase.UNREVOKED:
        _expect_join(group, member, now)
        raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "the member must rejoin")
    group.deadlines.pop(Deadline("sync", member.member_id), None)
    group.renew_classic_session(member, side, now)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_of(member.assigned, side.protocols[side.protocol_name], topics),
    )


def heartbeat(group: EpochGroup, request: HeartbeatRequest, now: float) -> ErrorCode:
    """Renew a member's session, and return whether it has to rejoin: to receive a new epoch,
    because it has released partitions, or because other members have released its target's
    partitions.

    Raises:
        RequestError: if the sender is not a member in this epoch.
    """
    member, side = _find(group, request)
    group.renew_classic_session(member, side, now)
    waits = (group.target_of(member.member_id) - member.assigned) & group.reserved_by_others(member)
    if not (
        member.epoch < group.target_epoch
        or member.phase is Phase.UNREVOKED
        or (member.phase is Phase.UNRELEASED and not waits)
    ):
        return ErrorCode.NONE
    _expect_join(group, member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(group: EpochGroup, leaving: list[MemberIdentity]) -> list[MemberResponse]:
    """Remove members of either protocol, and return a result for each."""
    epoch = group.epoch
    results = [
        MemberResponse(each.member_id, each.group_instance_id, _leave(group, each))
        for each in leaving
    ]
    group.epoch = min(group.epoch, epoch + 1)
    if not group.members:
        group.target_epoch = group.epoch
    return results


def _leave(group: EpochGroup, leaving: MemberIdentity) -> ErrorCode:
    member_id, instance = leaving.member_id, leaving.group_instance_id
    try:
        if instance is None:
            group.member(member_id)
        else:
            member_id = member_id or group.static_members.get(instance, "")
            group.static_member(instance, member_id)
    except RequestError as error:
        return error.code
    group.remove(member_id)
    return ErrorCode.NONE


def _find(
    group: EpochGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[EpochMember, ClassicSide]:
    instance = request.group_instance_id
    member = (
        group.member(request.member_id)
        if instance is None
        else group.static_member(instance, request.member_id)
    )
    side = _side(member)
    if request.generation_id != member.epoch:
        raise RequestError(
            ErrorCode.ILLEGAL_GENERATION,
            f"the member's epoch is {member.epoch}, not {request.generation_id}",
        )
    return member, side


def _side(member: EpochMember) -> ClassicSide:
    if member.classic is None:
        raise RequestError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {member.member_id} does not speak the classic protocol",
        )
    return member.classic


def _expect_join(group: EpochGroup, member: EpochMember, now: float) -> None:
    """Set the rebalance timeout as the deadline for a member that has to rejoin."""
    deadline = Deadline("join", member.member_id)
    group.deadlines.setdefault(deadline, now + member.rebalance_timeout_ms / 1000)


def with_ids(partitions: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """Return partitions by the ids of their topics, without those of unknown topics."""
    return frozenset(
        (topics[topic].topic_id, number) for topic, number in partitions if topic in topics
    )


def assignment_of(partitions: Partitions, metadata: bytes, topics: Topics) -> bytes:
    """Return partitions as bytes, in the version of a member's metadata."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    places = [TopicPartition(names[each], number) for each, number in partitions if each in names]
    version = int.from_bytes(metadata[:2], "big", signed=True)
    return encode_assignment(Assignment(tuple(sorted(places))), version)
