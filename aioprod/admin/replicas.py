"""Electing leaders and moving replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from aioprod.admin.answers import check, outcome, partition_name
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_by_partition, check_node_ids, check_partitions
from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, KafkaError
from aioprod.foreign_text import shown
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aioprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from aioprod.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from aioprod.types import TopicPartition


class ElectionType(IntEnum):
    """The replica to elect: the preferred replica (PREFERRED), or any running replica if none is in
    sync (UNCLEAN, which loses records).
    """

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is being moved, by node ids.

    Attributes:
        replicas: all replicas, including those that are being added or removed.
        adding_replicas: the replicas that are being added.
        removing_replicas: the replicas that are being removed.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReplicaCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, bool]:
        """Elect the leaders of partitions (KIP-460). The result of a partition is True if it needed
        an election.

        Args:
            election_type: the replica to elect.
            partitions: the partitions. By default all partitions of the cluster; the results then
                contain those that needed an election.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as PREFERRED_LEADER_NOT_AVAILABLE.
                Raised by ``results[partition]`` or ``results.check()``.
        """
        if not isinstance(election_type, ElectionType):
            raise ConfigError(f"election_type={shown(election_type)}: must be an ElectionType")

        async def elect(
            wanted: list[TopicPartitions] | None, timeout: int
        ) -> dict[TopicPartition, bool | KafkaError]:
            connection = await self._driver.controller()
            reply = await connection.request(ElectLeadersRequest(election_type, wanted, timeout))
            return _elected(reply)

        async def everywhere(attempt: Attempt[str]) -> dict[TopicPartition, bool | KafkaError]:
            return await elect(None, attempt.timeout_ms)

        async def at(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, bool | KafkaError]:
            return await elect(
                [
                    TopicPartitions(topic, numbers)
                    for topic, numbers in group_by_topic(attempt.items).items()
                ],
                attempt.timeout_ms,
            )

        if partitions is None:
            return Results(
                "elect_leaders", await self._driver.once("elect_leaders", everywhere, timeout_ms)
            )
        return await self._driver.each(
            "elect_leaders", check_partitions(partitions), at, timeout_ms
        )

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Start moving partitions to other brokers (KIP-455). :meth:`list_partition_reassignments`
        returns the partitions that are still being moved.

        Args:
            reassignments: for each partition the node ids of the new replicas, the preferred leader
                first; None cancels a move in progress.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as INVALID_REPLICA_ASSIGNMENT,
                NO_REASSIGNMENT_IN_PROGRESS. Raised by ``results[partition]`` or
                ``results.check()``.
        """
        wanted = {
            tp: None if replicas is None else check_node_ids(f"replicas of {tp}", replicas)
            for tp, replicas in check_by_partition("reassignments", reassignments).items()
        }

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, KafkaError | None]:
            connection = await self._driver.controller()
            topics = [
                ReassignableTopic(
                    topic,
                    [
                        _reassignable(number, wanted[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in group_by_topic(attempt.items).items()
            ]
            reply = await connection.request(
                AlterPartitionReassignmentsRequest(timeout_ms=attempt.timeout_ms, topics=topics)
            )
            check(reply.error_code, "alter_partition_reassignments", reply.error_message)
            return {
                tp: outcome(
                    each.error_code, f"replicas of {partition_name(tp)}", each.error_message, None
                )
                for topic in reply.responses
                for each in topic.partitions
                for tp in (TopicPartition(topic.name, each.partition_index),)
            }

        return await self._driver.each("alter_partition_reassignments", wanted, ask, timeout_ms)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the partitions that are being moved (KIP-455).

        Args:
            partitions: only these; all by default.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as CLUSTER_AUTHORIZATION_FAILED.
        """
        by_topic = None if partitions is None else group_by_topic(check_partitions(partitions))
        wanted = (
            None
            if by_topic is None
            else [
                ListPartitionReassignmentsTopics(topic, numbers)
                for topic, numbers in by_topic.items()
            ]
        )

        async def ask(attempt: Attempt[str]) -> dict[TopicPartition, PartitionReassignment]:
            connection = await self._driver.controller()
            reply = await connection.request(
                ListPartitionReassignmentsRequest(attempt.timeout_ms, wanted)
            )
            check(reply.error_code, "list_partition_reassignments", reply.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in reply.topics
                for each in topic.partitions
            }

        return await self._driver.once("list_partition_reassignments", ask, timeout_ms)


def _elected(reply: ElectLeadersResponse) -> dict[TopicPartition, bool | KafkaError]:
    check(reply.error_code, "elect_leaders")
    found: dict[TopicPartition, bool | KafkaError] = {}
    for topic in reply.replica_election_results:
        for each in topic.partition_result:
            tp = TopicPartition(topic.topic, each.partition_id)
            if each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                found[tp] = False
            else:
                found[tp] = outcome(
                    each.error_code, f"leader of {partition_name(tp)}", each.error_message, True
                )
    return found


def _reassignable(number: int, replicas: list[int] | None) -> ReassignablePartition:
    return ReassignablePartition(number, replicas)
