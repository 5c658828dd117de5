"""Listing, describing and deleting consumer groups of the classic protocol and of KIP-848."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import overload

from aioprod.admin.answers import broker_error, check, outcome, single
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver, gather_outcomes
from aioprod.admin.operations import operations
from aioprod.admin.results import Results
from aioprod.arguments import check_choices, check_items, check_names
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.config.checks import check_string
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError, UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.acls import AclOperation
from aioprod.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from aioprod.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from aioprod.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from aioprod.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aioprod.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aioprod.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from aioprod.protocol.messages.list_groups import ListGroupsRequest
from aioprod.types import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
GROUP_TYPES = (CLASSIC, CONSUMER, "share", "streams")
_DEAD = "Dead"
GROUP_STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", _DEAD),
    *("Assigning", "Reconciling", "NotReady"),
)
_SEVERAL_MEMBERS_FROM = 3


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ``list_groups`` returns it.

    Attributes:
        type: ``"classic"``, ``"consumer"`` (KIP-848), ``"share"`` ...; empty for brokers before
            3.8.
        protocol_type: the protocol of the members, ``"consumer"`` for consumers; empty for a group
            with offsets only.
        state: such as ``"Stable"``, ``"Empty"``, ``"PreparingRebalance"``; empty for brokers before
            2.6.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: its id in the group.
        group_instance_id: the id of a static member (KIP-345); None for a dynamic one.
        client_id, host: the client and its address.
        assignment: the partitions that it reads.
        target_assignment: the partitions that it should read; None in classic groups.
        member_epoch: None in classic groups.
        rack: None if unknown.
        subscription: the topics that it subscribes to; None in classic groups.
        subscription_pattern: the pattern that it subscribes to, if any.
        member_metadata, member_assignment: the encoded subscription that it sent to a classic
            group, and its encoded assignment from the leader; empty in other groups, and while the
            group rebalances.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    rack: str | None = None
    subscription: frozenset[str] | None = None
    subscription_pattern: str | None = None
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group.

    Attributes:
        type: ``"classic"`` or ``"consumer"`` (KIP-848).
        state: such as ``"Stable"``, ``"Empty"``, ``"PreparingRebalance"``, ``"Reconciling"``.
        assignor: the name of the assignor; empty if none is chosen yet.
        protocol_type: the protocol of the members, ``"consumer"`` for consumers.
        members: in the broker's order.
        group_epoch, assignment_epoch: None in classic groups.
        authorized_operations: the operations that this client may perform; None if not requested.
    """

    group_id: str
    type: str
    state: str
    assignor: str
    protocol_type: str
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None


class GroupCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        brokers: Iterable[int] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[str, GroupListing]:
        """List all groups, by group id.

        Args:
            brokers: only groups that these brokers coordinate; all brokers by default.
            states: only groups in one of these states: ``"Stable"``, ``"Empty"``,
                ``"PreparingRebalance"``, ``"CompletingRebalance"``, ``"Dead"``, ``"Assigning"``,
                ``"Reconciling"`` or ``"NotReady"`` (brokers since 2.6).
            types: only groups of these types: ``"classic"``, ``"consumer"``, ``"share"`` or
                ``"streams"`` (brokers since 3.8).
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a state or type is not one of these.
            KafkaTimeoutError: if a broker does not answer, so that its groups are unknown.
            ProtocolError: if a broker is too old for ``states`` or ``types``.
        """
        request = ListGroupsRequest(
            states_filter=check_choices("states", states, GROUP_STATES),
            types_filter=check_choices("types", types, GROUP_TYPES),
        )
        only = None if brokers is None else check_items("brokers", brokers, int, "node ids")

        async def at(connection: Connection) -> list[GroupListing]:
            reply = await connection.request(request)
            check(reply.error_code, f"groups of {connection.address}")
            return [
                GroupListing(
                    each.group_id, each.group_type.lower(), each.protocol_type, each.group_state
                )
                for each in reply.groups
            ]

        found = await self._driver.from_every_broker("list_groups", at, timeout_ms, only)
        return {each.group_id: each for each in sorted(found, key=lambda each: each.group_id)}

    @overload
    async def describe_consumer_groups(  # type: ignore[overload-overlap]
        self,
        group_ids: str,
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> GroupDescription: ...

    @overload
    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> Results[str, GroupDescription]: ...

    async def describe_consumer_groups(
        self,
        group_ids: str | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> GroupDescription | Results[str, GroupDescription]:
        """Describe groups of the classic protocol and of KIP-848, with their members.

        Args:
            group_ids: one, whose error is raised, or several, each with a separate result.
            include_authorized_operations: whether to include ``authorized_operations``.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as GROUP_ID_NOT_FOUND,
                GROUP_AUTHORIZATION_FAILED.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, GroupDescription | KafkaError]:
            return await gather_outcomes(
                attempt.items,
                lambda group_id: self._describe_group(
                    group_id, include_authorized_operations, attempt
                ),
            )

        if isinstance(group_ids, str):
            return (
                await self._driver.each("describe_consumer_groups", [group_ids], ask, timeout_ms)
            )[group_ids]
        names = check_names("group_ids", group_ids)
        return await self._driver.each("describe_consumer_groups", names, ask, timeout_ms)

    async def _describe_group(
        self, group_id: str, with_operations: bool, attempt: Attempt[str]
    ) -> GroupDescription:
        try:
            return await self._describe_new_group(group_id, with_operations, attempt)
        except UnsupportedVersionError:
            pass
        except BrokerError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await self._describe_classic_group(group_id, with_operations, attempt)

    async def _describe_new_group(
        self, group_id: str, with_operations: bool, attempt: Attempt[str]
    ) -> GroupDescription:
        def prepare(connection: Connection) -> tuple[ConsumerGroupDescribeRequest, int]:
            request = ConsumerGroupDescribeRequest([group_id], with_operations)
            return request, connection.pick_version(ConsumerGroupDescribeRequest)

        reply: ConsumerGroupDescribeResponse = await self._driver.from_coordinator(
            CoordinatorType.GROUP, group_id, attempt, prepare
        )
        answer = single(reply.groups, f"group {group_id}")
        check(answer.error_code, f"group {group_id}", answer.error_message)
        return _new_group(answer)

    async def _describe_classic_group(
        self, group_id: str, with_operations: bool, attempt: Attempt[str]
    ) -> GroupDescription:
        def prepare(connection: Connection) -> tuple[DescribeGroupsRequest, int]:
            return DescribeGroupsRequest([group_id], with_operations), connection.pick_version(
                DescribeGroupsRequest
            )

        reply: DescribeGroupsResponse = await self._driver.from_coordinator(
            CoordinatorType.GROUP, group_id, attempt, prepare
        )
        answer = single(reply.groups, f"group {group_id}")
        check(answer.error_code, f"group {group_id}", answer.error_message)
        if answer.group_state == _DEAD:  # brokers before 4.0, for an unknown group (KIP-1043)
            raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return _classic_group(answer)

    @overload
    async def delete_consumer_groups(  # type: ignore[overload-overlap]
        self, group_ids: str, *, timeout_ms: float | None = ...
    ) -> None: ...

    @overload
    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = ...
    ) -> Results[str, None]: ...

    async def delete_consumer_groups(
        self, group_ids: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, None] | None:
        """Delete groups of any type that have no members, with their offsets (KIP-229).

        Args:
            group_ids: one, whose error is raised, or several, each with a separate result.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as GROUP_ID_NOT_FOUND,
                NON_EMPTY_GROUP.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            async def delete(group_id: str) -> None:
                def prepare(connection: Connection) -> tuple[DeleteGroupsRequest, int]:
                    return DeleteGroupsRequest([group_id]), connection.pick_version(
                        DeleteGroupsRequest
                    )

                reply: DeleteGroupsResponse = await self._driver.from_coordinator(
                    CoordinatorType.GROUP, group_id, attempt, prepare
                )
                answer = single(reply.results, f"group {group_id}")
                check(answer.error_code, f"group {group_id}", answer.error_message)

            return await gather_outcomes(attempt.items, delete)

        if isinstance(group_ids, str):
            return (
                await self._driver.each("delete_consumer_groups", [group_ids], ask, timeout_ms)
            )[group_ids]
        names = check_names("group_ids", group_ids)
        return await self._driver.each("delete_consumer_groups", names, ask, timeout_ms)

    async def remove_members_from_consumer_group(
        self, group_id: str, group_instance_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Remove static members (KIP-345) from a group at once, without waiting for their session
        timeout.

        Args:
            group_id: the group.
            group_instance_ids: the ids of the members.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as UNKNOWN_MEMBER_ID. Raised by
                ``results[group_instance_id]`` or ``results.check()``.
        """
        check_string("group_id", group_id)
        members = check_names("group_instance_ids", group_instance_ids)

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            def prepare(connection: Connection) -> tuple[LeaveGroupRequest, int]:
                version = connection.pick_version(LeaveGroupRequest)
                if version < _SEVERAL_MEMBERS_FROM:
                    raise UnsupportedVersionError(
                        f"{connection.address} is too old to remove static members"
                    )
                leaving = [MemberIdentity(group_instance_id=each) for each in attempt.items]
                return LeaveGroupRequest(group_id=group_id, members=leaving), version

            reply: LeaveGroupResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            check(reply.error_code, f"group {group_id}")
            return {
                answer.group_instance_id or "": outcome(
                    answer.error_code,
                    f"group {group_id}, member {answer.group_instance_id}",
                    None,
                    None,
                )
                for answer in reply.members
            }

        return await self._driver.each(
            "remove_members_from_consumer_group", members, ask, timeout_ms
        )


def _new_group(answer: DescribedConsumerGroup) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            host=each.client_host,
            assignment=_partitions(each.assignment),
            target_assignment=_partitions(each.target_assignment),
            member_epoch=each.member_epoch,
            rack=each.rack_id,
            subscription=frozenset(each.subscribed_topic_names),
            subscription_pattern=each.subscribed_topic_regex or None,
        )
        for each in answer.members
    )
    return GroupDescription(
        group_id=answer.group_id,
        type=CONSUMER,
        state=answer.group_state,
        assignor=answer.assignor_name,
        protocol_type=PROTOCOL_TYPE,
        members=members,
        group_epoch=answer.group_epoch,
        assignment_epoch=answer.assignment_epoch,
        authorized_operations=operations(answer.authorized_operations),
    )


def _classic_group(answer: DescribedGroup) -> GroupDescription:
    reads_topics = answer.protocol_type == PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            host=each.client_host,
            assignment=frozenset(
                decode_assignment(each.member_assignment).partitions if reads_topics else ()
            ),
            member_metadata=bytes(each.member_metadata),
            member_assignment=bytes(each.member_assignment),
        )
        for each in answer.members
    )
    return GroupDescription(
        group_id=answer.group_id,
        type=CLASSIC,
        state=answer.group_state,
        assignor=answer.protocol_data,
        protocol_type=answer.protocol_type,
        members=members,
        authorized_operations=operations(answer.authorized_operations),
    )


def _partitions(assignment: Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(each.topic_name, number)
        for each in assignment.topic_partitions
        for number in each.partitions
    )
