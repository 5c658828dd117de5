"""Describing share groups (KIP-932), and describing, setting and deleting their offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

from aioprod.admin.answers import check, outcome, partition_name, single
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver, gather_outcomes
from aioprod.admin.operations import operations
from aioprod.admin.results import Results
from aioprod.arguments import check_names, check_offsets, check_partitions
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.cluster.share_groups import NEEDED, pick_version
from aioprod.config.checks import check_string
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.net.connection import Connection
from aioprod.protocol.acls import AclOperation
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from aioprod.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from aioprod.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from aioprod.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from aioprod.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group.

    Attributes:
        member_id: its id in the group.
        member_epoch: the epoch of its assignment.
        client_id, host: the client and its address.
        rack: None if unknown.
        subscription: the topics that it subscribes to.
        assignment: the partitions that it reads; other members may read them, too.
    """

    member_id: str
    member_epoch: int
    client_id: str
    host: str
    rack: str | None
    subscription: frozenset[str]
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group.

    Attributes:
        state: ``"Stable"`` or ``"Empty"``.
        assignor: the name of the broker's assignor.
        group_epoch, assignment_epoch: increase with each change of members and assignments.
        members: in the broker's order.
        authorized_operations: the operations that this client may perform; None if not requested.
    """

    group_id: str
    state: str
    assignor: str
    group_epoch: int
    assignment_epoch: int
    members: tuple[ShareMemberDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


class ShareGroupOffset(NamedTuple):
    """The start offset of a share group in a partition.

    Attributes:
        start_offset: all records before it are accepted, rejected, or archived after too many
            deliveries. Some records after it may be, too.
        lag: the number of records from ``start_offset`` on that are none of these, and not acquired
            by a member; None for brokers before 4.2.
        leader_epoch: leader epoch of the record at ``start_offset``; None if unknown.
    """

    start_offset: int
    lag: int | None
    leader_epoch: int | None


class ShareGroupCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    @overload
    async def describe_share_groups(  # type: ignore[overload-overlap]
        self,
        group_ids: str,
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> ShareGroupDescription: ...

    @overload
    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> Results[str, ShareGroupDescription]: ...

    async def describe_share_groups(
        self,
        group_ids: str | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> ShareGroupDescription | Results[str, ShareGroupDescription]:
        """Describe share groups with their members.

        Args:
            group_ids: one, whose error is raised, or several, each with a separate result.
            include_authorized_operations: whether to include ``authorized_operations``.
            timeout_ms: limit on the whole call.

        Raises:
            UnsupportedVersionError: if the cluster has no share groups.
            BrokerError: if the broker returns an error, such as GROUP_ID_NOT_FOUND,
                GROUP_AUTHORIZATION_FAILED.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, ShareGroupDescription | KafkaError]:
            async def describe(group_id: str) -> ShareGroupDescription:
                def prepare(connection: Connection) -> tuple[ShareGroupDescribeRequest, int]:
                    request = ShareGroupDescribeRequest([group_id], include_authorized_operations)
                    return request, pick_version(connection, ShareGroupDescribeRequest)

                reply: ShareGroupDescribeResponse = await self._driver.from_coordinator(
                    CoordinatorType.GROUP, group_id, attempt, prepare
                )
                answer = single(reply.groups, f"share group {group_id}")
                _check(answer.error_code, group_id, answer.error_message)
                return _description(answer)

            return await gather_outcomes(attempt.items, describe)

        if isinstance(group_ids, str):
            return (await self._driver.each("describe_share_groups", [group_ids], ask, timeout_ms))[
                group_ids
            ]
        names = check_names("group_ids", group_ids)
        return await self._driver.each("describe_share_groups", names, ask, timeout_ms)

    async def list_share_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, ShareGroupOffset | None]:
        """Return the start offsets of a share group; none for a group that does not exist.

        Args:
            group_id: the group.
            partitions: the partitions; the result is None for one that the group has not read, or
                that does not exist. By default all partitions that it has read.
            timeout_ms: limit on the whole call.

        Raises:
            UnsupportedVersionError: if the cluster has no share groups.
            BrokerError: if the broker returns an error, such as GROUP_AUTHORIZATION_FAILED. Raised
                by the call if ``partitions`` is None, else by ``results[partition]`` or
                ``results.check()``.
        """
        check_string("group_id", group_id)
        wanted = None if partitions is None else check_partitions(partitions)

        async def ask(
            attempt: Attempt[Any], items: list[TopicPartition] | None
        ) -> Mapping[TopicPartition, ShareGroupOffset | KafkaError | None]:
            # Kafka 4.4 never responds if a partition does not exist.
            asked = None if items is None else await self._driver.existing(items)

            def prepare(connection: Connection) -> tuple[DescribeShareGroupOffsetsRequest, int]:
                request = _offsets_request(group_id, asked)
                return request, pick_version(connection, DescribeShareGroupOffsetsRequest)

            reply: DescribeShareGroupOffsetsResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            answer = single(reply.groups, f"share group {group_id}")
            _check(answer.error_code, group_id, answer.error_message)
            found = _offsets(answer)
            return found if items is None else {tp: found.get(tp) for tp in items}

        return await self._driver.each_or_all(
            f"offsets of share group {group_id}",
            wanted,
            ask,
            timeout_ms,
            name="list_share_group_offsets",
        )

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a share group, which must have no members. A group that does not
        exist is created. The delivery counts of the partitions are reset.

        Args:
            group_id: the group.
            offsets: the offset for each partition.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a key is not a partition, or a value is not an offset of 0 or more.
            UnsupportedVersionError: if the cluster has no share groups.
            BrokerError: if the broker returns an error, such as NON_EMPTY_GROUP. Raised by
                ``results[partition]`` or ``results.check()``.
        """
        check_string("group_id", group_id)
        wanted = {tp: at.offset for tp, at in check_offsets(offsets).items()}

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, KafkaError | None]:
            def prepare(connection: Connection) -> tuple[AlterShareGroupOffsetsRequest, int]:
                topics = [
                    AlterShareGroupOffsetsRequestTopic(
                        topic,
                        [
                            AlterShareGroupOffsetsRequestPartition(
                                number, wanted[TopicPartition(topic, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in group_by_topic(attempt.items).items()
                ]
                request = AlterShareGroupOffsetsRequest(group_id, topics)
                return request, pick_version(connection, AlterShareGroupOffsetsRequest)

            reply: AlterShareGroupOffsetsResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            _check(reply.error_code, group_id, reply.error_message)
            return {
                tp: outcome(
                    each.error_code,
                    f"share group {group_id}, {partition_name(tp)}",
                    each.error_message,
                    None,
                )
                for topic in reply.responses
                for each in topic.partitions
                for tp in (TopicPartition(topic.topic_name, each.partition_index),)
            }

        return await self._driver.each("alter_share_group_offsets", wanted, ask, timeout_ms)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Delete the offsets of a share group for whole topics. The group must have no members. If
        it reads the topics again, it starts at ``share.auto.offset.reset``.

        Args:
            group_id: the group.
            topics: the topics.
            timeout_ms: limit on the whole call.

        Raises:
            UnsupportedVersionError: if the cluster has no share groups.
            BrokerError: if the broker returns an error, such as GROUP_ID_NOT_FOUND,
                NON_EMPTY_GROUP. Raised by ``results[topic]`` or ``results.check()``.
        """
        check_string("group_id", group_id)
        wanted = check_names("topics", topics)

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            def prepare(connection: Connection) -> tuple[DeleteShareGroupOffsetsRequest, int]:
                request = DeleteShareGroupOffsetsRequest(
                    group_id, [DeleteShareGroupOffsetsRequestTopic(name) for name in attempt.items]
                )
                return request, pick_version(connection, DeleteShareGroupOffsetsRequest)

            reply: DeleteShareGroupOffsetsResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            _check(reply.error_code, group_id, reply.error_message)
            return {
                each.topic_name: outcome(
                    each.error_code,
                    f"share group {group_id}, topic {each.topic_name}",
                    each.error_message,
                    None,
                )
                for each in reply.responses
            }

        return await self._driver.each("delete_share_group_offsets", wanted, ask, timeout_ms)


def _check(code: int, group_id: str, text: str | None) -> None:
    what = f"share group {group_id}"
    if code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(f"{what}: {NEEDED}")
    check(code, what, text)


def _description(answer: DescribedGroup) -> ShareGroupDescription:
    return ShareGroupDescription(
        group_id=answer.group_id,
        state=answer.group_state,
        assignor=answer.assignor_name,
        group_epoch=answer.group_epoch,
        assignment_epoch=answer.assignment_epoch,
        members=tuple(
            ShareMemberDescription(
                member_id=each.member_id,
                member_epoch=each.member_epoch,
                client_id=each.client_id,
                host=each.client_host,
                rack=each.rack_id,
                subscription=frozenset(each.subscribed_topic_names),
                assignment=frozenset(
                    TopicPartition(topic.topic_name, number)
                    for topic in each.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for each in answer.members
        ),
        authorized_operations=operations(answer.authorized_operations),
    )


def _offsets_request(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> DescribeShareGroupOffsetsRequest:
    topics = (
        None
        if partitions is None
        else [
            DescribeShareGroupOffsetsRequestTopic(topic, numbers)
            for topic, numbers in group_by_topic(partitions).items()
        ]
    )
    return DescribeShareGroupOffsetsRequest(
        [DescribeShareGroupOffsetsRequestGroup(group_id, topics)]
    )


def _offsets(
    answer: DescribeShareGroupOffsetsResponseGroup,
) -> dict[TopicPartition, ShareGroupOffset | KafkaError | None]:
    return {
        tp: outcome(
            each.error_code,
            f"offsets of share group {answer.group_id} for {partition_name(tp)}",
            each.error_message,
            ShareGroupOffset(
                each.start_offset,
                each.lag if each.lag >= 0 else None,
                each.leader_epoch if each.leader_epoch >= 0 else None,
            )
            if each.start_offset >= 0
            else None,
        )
        for topic in answer.topics
        for each in topic.partitions
        for tp in (TopicPartition(topic.topic_name, each.partition_index),)
    }
