"""The committed offsets of groups, and the first and last offsets of partitions."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeVar

from aioprod.admin.answers import broker_error, check, outcome, partition_name
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_by_number, check_offsets, check_partitions
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.config.checks import check_string
from aioprod.config.settings.client import ISOLATION_LEVELS
from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import shown
from aioprod.net.connection import Connection
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.group_offsets import (
    HAS_MEMBERS,
    LAST_COMMIT_BY_NAME,
    LAST_FETCH_BY_NAME,
    fetch_offsets,
    topics_to_commit,
)
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aioprod.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aioprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from aioprod.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aioprod.types import OffsetAndMetadata, TopicPartition

V = TypeVar("V")

_CONSUMER = -1  # replica id of clients; followers send their node ids


class OffsetSpec(IntEnum):
    """A position in a partition that :meth:`aioprod.Admin.list_offsets` can look up."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class OffsetResult(NamedTuple):
    """A position in a partition.

    Attributes:
        offset: the offset; -1 if there is none, such as if no record is at or after a time.
        timestamp: timestamp of the record, in milliseconds since 1970; -1 for the ends of the log.
        leader_epoch: leader epoch of the record; -1 if unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of a group; none for a group that does not exist.

        Args:
            group_id: the group.
            partitions: the partitions; the result is None for one without a committed offset. By
                default all partitions with a committed offset.
            require_stable: wait for transactions with offsets of the group to end (KIP-447).
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as GROUP_AUTHORIZATION_FAILED. Raised
                by the call if ``partitions`` is None, else by ``results[partition]`` or
                ``results.check()``.
        """
        check_string("group_id", group_id)
        wanted = None if partitions is None else check_partitions(partitions)

        async def ask(
            attempt: Attempt[Any], items: list[TopicPartition] | None
        ) -> Mapping[TopicPartition, OffsetAndMetadata | KafkaError | None]:
            def prepare(connection: Connection) -> tuple[OffsetFetchRequest, int]:
                version = connection.pick_version(OffsetFetchRequest, LAST_FETCH_BY_NAME)
                request = fetch_offsets(group_id, items, version, require_stable=require_stable)
                return request, version

            reply: OffsetFetchResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            return _committed(group_id, reply)

        return await self._driver.each_or_all(
            f"offsets of group {group_id}",
            wanted,
            ask,
            timeout_ms,
            name="list_consumer_group_offsets",
        )

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Set the committed offsets of a group, which must have no members. A group that does not
        exist is created.

        Args:
            group_id: the group.
            offsets: for each partition the offset of the next record to read.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a key is not a partition, or a value is not an offset of 0 or more.
            BrokerError: if the broker returns an error, such as UNKNOWN_MEMBER_ID (the group has
                members). Raised by ``results[partition]`` or ``results.check()``.
        """
        check_string("group_id", group_id)
        wanted = check_offsets(offsets)

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, KafkaError | None]:
            def prepare(connection: Connection) -> tuple[OffsetCommitRequest, int]:
                topics = topics_to_commit({tp: wanted[tp] for tp in attempt.items})
                version = connection.pick_version(OffsetCommitRequest, LAST_COMMIT_BY_NAME)
                return OffsetCommitRequest(group_id=group_id, topics=topics), version

            reply: OffsetCommitResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            return {
                tp: _written(group_id, tp, each.error_code)
                for topic in reply.topics
                for each in topic.partitions
                for tp in (TopicPartition(topic.name, each.partition_index),)
            }

        return await self._driver.each("alter_consumer_group_offsets", wanted, ask, timeout_ms)

    async def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Delete the committed offsets of a group for topics that no member reads (KIP-496).

        Args:
            group_id: the group.
            partitions: the partitions.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as GROUP_ID_NOT_FOUND,
                GROUP_SUBSCRIBED_TO_TOPIC. Raised by ``results[partition]`` or ``results.check()``.
        """
        check_string("group_id", group_id)

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, KafkaError | None]:
            def prepare(connection: Connection) -> tuple[OffsetDeleteRequest, int]:
                topics = [
                    OffsetDeleteRequestTopic(
                        topic, [OffsetDeleteRequestPartition(number) for number in numbers]
                    )
                    for topic, numbers in group_by_topic(attempt.items).items()
                ]
                return OffsetDeleteRequest(group_id, topics), connection.pick_version(
                    OffsetDeleteRequest
                )

            reply: OffsetDeleteResponse = await self._driver.from_coordinator(
                CoordinatorType.GROUP, group_id, attempt, prepare
            )
            check(reply.error_code, f"group {group_id}")
            return {
                tp: _written(group_id, tp, each.error_code)
                for topic in reply.topics
                for each in topic.partitions
                for tp in (TopicPartition(topic.name, each.partition_index),)
            }

        return await self._driver.each(
            "delete_consumer_group_offsets", check_partitions(partitions), ask, timeout_ms
        )

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, OffsetResult]:
        """Look up offsets of partitions: the first, the last, or by time.

        Args:
            specs: for each partition an :class:`OffsetSpec`, or milliseconds since 1970 for the
                first record at or after that time.
            isolation_level: with ``"read_committed"`` the last offset is that before the first open
                transaction.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if ``isolation_level`` is invalid.
            BrokerError: if the broker returns an error, such as UNKNOWN_TOPIC_OR_PARTITION. Raised
                by ``results[partition]`` or ``results.check()``.
        """
        given = check_by_number(
            "specs",
            specs,
            min(OffsetSpec),
            "an OffsetSpec, such as OffsetSpec.LATEST, or a time in milliseconds since 1970",
        )
        level = ISOLATION_LEVELS.get(isolation_level) if isinstance(isolation_level, str) else None
        if level is None:
            raise ConfigError(
                f"isolation_level={shown(isolation_level)}: must be read_uncommitted or "
                "read_committed"
            )

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, OffsetResult | KafkaError]:
            async def at(
                node_id: int, partitions: list[TopicPartition]
            ) -> Mapping[TopicPartition, OffsetResult | KafkaError]:
                connection = await self._driver.node(node_id)
                wanted = {tp: given[tp] for tp in partitions}
                return _found(
                    await connection.request(
                        _list_offsets_request(wanted, level, attempt.timeout_ms)
                    )
                )

            return await self._driver.from_leaders(attempt.items, at)

        return await self._driver.each("list_offsets", given, ask, timeout_ms)


def _list_offsets_request(
    timestamps: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            topic,
            [
                ListOffsetsPartition(number, timestamp=timestamps[TopicPartition(topic, number)])
                for number in numbers
            ],
        )
        for topic, numbers in group_by_topic(timestamps).items()
    ]
    return ListOffsetsRequest(_CONSUMER, isolation_level, topics, timeout_ms=timeout_ms)


def _found(reply: ListOffsetsResponse) -> dict[TopicPartition, OffsetResult | KafkaError]:
    return {
        tp: outcome(
            each.error_code,
            f"offset of {partition_name(tp)}",
            None,
            OffsetResult(each.offset, each.timestamp, each.leader_epoch),
        )
        for topic in reply.topics
        for each in topic.partitions
        for tp in (TopicPartition(topic.name, each.partition_index),)
    }


def _committed(
    group_id: str, reply: OffsetFetchResponse
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
    answer = reply.groups[0] if reply.groups else reply
    check(answer.error_code, f"offsets of group {group_id}")
    return {
        tp: outcome(
            each.error_code,
            f"offsets of group {group_id} for {partition_name(tp)}",
            None,
            OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
            if each.committed_offset >= 0
            else None,
        )
        for topic in answer.topics
        for each in topic.partitions
        for tp in (TopicPartition(topic.name, each.partition_index),)
    }


def _written(group_id: str, tp: TopicPartition, code: int) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return broker_error(
        code,
        f"group {group_id}, {partition_name(tp)}",
        "the group has members: stop them first" if code in HAS_MEMBERS else None,
    )
