"""Creating, deleting, describing and extending topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from aioprod.admin.answers import check, outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.cluster import Node
from aioprod.admin.configs import ConfigEntry, ConfigSource, ConfigValue, config_text, known
from aioprod.admin.driver import AdminDriver
from aioprod.admin.operations import operations
from aioprod.admin.results import Results
from aioprod.arguments import check_items, check_mapping, check_names, check_node_ids
from aioprod.config.checks import MAX_INT, check_string, in_range
from aioprod.errors import ConfigError, KafkaError
from aioprod.protocol.acls import AclOperation
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_BY_STATE_FROM = 6
_BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: the name.
        num_partitions: the number of partitions; -1 for the broker's ``num.partitions``.
        replication_factor: the number of replicas of each; -1 for the broker's
            ``default.replication.factor``.
        configs: settings of the topic, such as ``{"retention.ms": 3_600_000}``.
        assignments: node ids of the replicas of partition 0, 1, ...; requires that both numbers are
            -1.
    """

    name: str
    num_partitions: int = _BROKERS_DEFAULT
    replication_factor: int = _BROKERS_DEFAULT
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or with ``validate_only`` could be created.

    Attributes:
        name: the name.
        topic_id: the id (KIP-516); None for brokers before 2.8.
        num_partitions, replication_factor: -1 for brokers before 2.4.
        configs: all settings of the topic; empty for brokers before 2.4.
    """

    name: str
    topic_id: uuid.UUID | None
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic as ``list_topics`` returns it.

    Attributes:
        name: the name.
        topic_id: the id (KIP-516); None for brokers before 2.8.
        internal: whether it belongs to Kafka, such as ``__consumer_offsets``.
    """

    name: str
    topic_id: uuid.UUID | None
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition of a topic.

    Attributes:
        partition: the number.
        leader: the node id of the leader; None if there is no leader.
        leader_epoch: increases with each change of the leader; -1 if unknown.
        replicas: the node ids of all replicas, the preferred leader first.
        isr: the replicas that are in sync.
        offline_replicas: the replicas that are offline.
    """

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    Attributes:
        partitions: in the order of their numbers.
        authorized_operations: the operations that this client may perform; None if not requested.
    """

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic.

    Attributes:
        total_count: the number of partitions, including the existing ones.
        assignments: node ids of the replicas of each new partition; the cluster chooses if None.
    """

    total_count: int
    assignments: Sequence[Sequence[int]] = ()


class TopicCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    @overload
    async def create_topics(
        self, topics: NewTopic, *, validate_only: bool = ..., timeout_ms: float | None = ...
    ) -> CreatedTopic: ...

    @overload
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = ...,
        timeout_ms: float | None = ...,
    ) -> Results[str, CreatedTopic]: ...

    async def create_topics(
        self,
        topics: NewTopic | Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> CreatedTopic | Results[str, CreatedTopic]:
        """Create topics.

        Args:
            topics: one topic, whose error is raised, or several, each with its own result by name.
            validate_only: check the request without creating the topics.
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if the value of a setting has the wrong type, an item is not a NewTopic, or
                a name occurs twice.
            BrokerError: if the broker returns an error, such as TOPIC_ALREADY_EXISTS,
                INVALID_REPLICATION_FACTOR, INVALID_CONFIG.
        """
        given = [topics] if isinstance(topics, NewTopic) else topics
        asked_for = list(map(_creatable, check_items("topics", given, NewTopic, "NewTopic")))
        wanted = {topic.name: topic for topic in asked_for}
        if len(wanted) < len(asked_for):
            raise ConfigError(
                "create_topics: each name may occur only once: "
                f"{', '.join(topic.name for topic in asked_for)}"
            )

        async def ask(attempt: Attempt[str]) -> Mapping[str, CreatedTopic | KafkaError]:
            connection = await self._driver.controller()
            asked = [wanted[name] for name in attempt.items]
            reply = await connection.request(
                CreateTopicsRequest(
                    asked, timeout_ms=attempt.timeout_ms, validate_only=validate_only
                )
            )
            return {
                answer.name: outcome(
                    answer.error_code,
                    f"topic {answer.name}",
                    answer.error_message,
                    _created(answer),
                )
                for answer in reply.topics
            }

        results = await self._driver.each("create_topics", wanted, ask, timeout_ms)
        return results[topics.name] if isinstance(topics, NewTopic) else results

    @overload
    async def delete_topics(self, topics: str, *, timeout_ms: float | None = ...) -> None: ...  # type: ignore[overload-overlap]

    @overload
    async def delete_topics(
        self, topics: Iterable[str], *, timeout_ms: float | None = ...
    ) -> Results[str, None]: ...

    async def delete_topics(
        self, topics: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, None] | None:
        """Delete topics with all their records.

        Args:
            topics: the name of one, whose error is raised, or the names of several, each with its
                own result.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as UNKNOWN_TOPIC_OR_PARTITION,
                TOPIC_DELETION_DISABLED.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            connection = await self._driver.controller()
            request = DeleteTopicsRequest(timeout_ms=attempt.timeout_ms)
            if connection.pick_version(DeleteTopicsRequest) >= _BY_STATE_FROM:
                request.topics = [DeleteTopicState(name=name) for name in attempt.items]
            else:
                request.topic_names = attempt.items
            reply = await connection.request(request)
            return {
                answer.name or "": outcome(
                    answer.error_code, f"topic {answer.name}", answer.error_message, None
                )
                for answer in reply.responses
            }

        if isinstance(topics, str):
            return (await self._driver.each("delete_topics", [topics], ask, timeout_ms))[topics]
        names = check_names("topics", topics)
        return await self._driver.each("delete_topics", names, ask, timeout_ms)

    async def create_partitions(
        self,
        partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Add partitions to topics. Later records may be sent to other partitions than earlier
        records with the same key.

        Args:
            partitions: for each topic the new total number of partitions, or
                :class:`NewPartitions`.
            validate_only: check the change without making it.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as INVALID_PARTITIONS. Raised by
                ``results[topic]`` or ``results.check()``.
        """
        wanted = {
            name: _growth(name, new)
            for name, new in check_mapping("partitions", partitions, "topic names").items()
        }

        async def ask(attempt: Attempt[str]) -> Mapping[str, KafkaError | None]:
            connection = await self._driver.controller()
            asked = [wanted[name] for name in attempt.items]
            reply = await connection.request(
                CreatePartitionsRequest(
                    asked, timeout_ms=attempt.timeout_ms, validate_only=validate_only
                )
            )
            return {
                answer.name: outcome(
                    answer.error_code, f"topic {answer.name}", answer.error_message, None
                )
                for answer in reply.results
            }

        return await self._driver.each("create_partitions", wanted, ask, timeout_ms)

    async def list_topics(
        self, *, list_internal: bool = False, timeout_ms: float | None = None
    ) -> dict[str, TopicListing]:
        """List the topics that this client is authorized to describe, by name.

        Args:
            list_internal: whether to include Kafka's internal topics.
            timeout_ms: limit on the whole call.
        """

        async def ask(attempt: Attempt[str]) -> dict[str, TopicListing]:
            reply = await self._driver.from_any(
                MetadataRequest(topics=None, allow_auto_topic_creation=False)
            )
            listed = [
                TopicListing(answer.name or "", _id(answer.topic_id), answer.is_internal)
                for answer in reply.topics
            ]
            return {
                each.name: each
                for each in sorted(listed, key=lambda each: each.name)
                if list_internal or not each.internal
            }

        return await self._driver.once("list_topics", ask, timeout_ms)

    @overload
    async def describe_topics(  # type: ignore[overload-overlap]
        self,
        topics: str,
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> TopicDescription: ...

    @overload
    async def describe_topics(
        self,
        topics: Iterable[str],
        *,
        include_authorized_operations: bool = ...,
        timeout_ms: float | None = ...,
    ) -> Results[str, TopicDescription]: ...

    async def describe_topics(
        self,
        topics: str | Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> TopicDescription | Results[str, TopicDescription]:
        """Describe topics: partitions, leaders, replicas.

        Args:
            topics: the name of one, whose error is raised, or the names of several, each with its
                own result.
            include_authorized_operations: whether to include ``authorized_operations``.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as UNKNOWN_TOPIC_OR_PARTITION.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, TopicDescription | KafkaError]:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in attempt.items],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_authorized_operations,
            )
            reply = await self._driver.from_any(request)
            check(reply.error_code, "describe_topics")
            return {
                answer.name or "": outcome(
                    answer.error_code, f"topic {answer.name}", None, _described(answer, reply)
                )
                for answer in reply.topics
            }

        if isinstance(topics, str):
            return (await self._driver.each("describe_topics", [topics], ask, timeout_ms))[topics]
        names = check_names("topics", topics)
        return await self._driver.each("describe_topics", names, ask, timeout_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    check_string("create_topics: name", topic.name)
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(number, list(replicas))
            for number, replicas in enumerate(topic.assignments)
        ],
        configs=[
            CreatableTopicConfig(name, config_text(name, value))
            for name, value in topic.configs.items()
        ],
    )


def _created(answer: CreatableTopicResult) -> CreatedTopic:
    entries = [
        ConfigEntry(
            each.name,
            each.value,
            known(ConfigSource, each.config_source),
            each.read_only,
            each.is_sensitive,
        )
        for each in answer.configs or ()
    ]
    return CreatedTopic(
        answer.name,
        _id(answer.topic_id),
        answer.num_partitions,
        answer.replication_factor,
        {each.name: each for each in entries},
    )


def _growth(name: str, new: int | NewPartitions) -> CreatePartitionsTopic:
    check_string("create_partitions: topic", name)
    new = new if isinstance(new, NewPartitions) else NewPartitions(new)
    in_range(1, MAX_INT)(f"create_partitions: partitions of topic {name!r}", new.total_count)
    what = f"replicas of topic {name!r}"
    assignments = [CreatePartitionsAssignment(check_node_ids(what, ids)) for ids in new.assignments]
    return CreatePartitionsTopic(name, new.total_count, assignments or None)


def _described(answer: MetadataResponseTopic, reply: MetadataResponse) -> TopicDescription:
    nodes = {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in reply.brokers
    }
    partitions = [
        PartitionDescription(
            each.partition_index,
            nodes.get(each.leader_id),
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(answer.partitions, key=lambda each: each.partition_index)
    ]
    allowed = operations(answer.topic_authorized_operations)
    return TopicDescription(
        answer.name or "", _id(answer.topic_id), answer.is_internal, tuple(partitions), allowed
    )


def _id(topic_id: uuid.UUID) -> uuid.UUID | None:
    return topic_id if topic_id.int else None
