"""``AIOKafkaAdminClient`` on :class:`aioprod.Admin`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import aioprod
from aioprod import TopicPartition
from aioprod.admin import ConfigResource as OurConfigResource
from aioprod.admin import ConfigResourceType as OurConfigResourceType
from aioprod.admin import ConfigSource, GroupDescription, Results
from aioprod.admin import NewPartitions as OurNewPartitions
from aioprod.admin import NewTopic as OurNewTopic
from aioprod.compat.aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aioprod.compat.aiokafka.admin.new_partitions import NewPartitions
from aioprod.compat.aiokafka.admin.new_topic import NewTopic
from aioprod.compat.aiokafka.admin.records_to_delete import RecordsToDelete
from aioprod.compat.aiokafka.admin.responses import (
    AlterConfigsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    DescribeGroupsResponse,
)
from aioprod.compat.aiokafka.settings import client_settings, warn_deprecated
from aioprod.compat.aiokafka.structs import OffsetAndMetadata
from aioprod.compat.aiokafka.translation import aiokafka_errors
from aioprod.public_module import Uncopyable

K = TypeVar("K")

_TRANSACTION = 1
# Sources of settings that were set on the resource itself.
_OWN_SOURCES = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)


class AIOKafkaAdminClient(Uncopyable):
    """aiokafka's admin client, implemented on :class:`aioprod.Admin`. docs/aiokafka.md lists the
    differences.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str = "aiokafka-0.14.0",
        request_timeout_ms: int = 40_000,
        connections_max_idle_ms: int | None = 540_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        api_version: str | None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = locals()
        warn_deprecated(loop, api_version)
        self._admin = aioprod.Admin(
            **client_settings(given), default_api_timeout_ms=request_timeout_ms
        )

    async def start(self) -> None:
        """Connect to the cluster."""
        with aiokafka_errors():
            await self._admin.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._admin.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- topics ------------------------------------------------------------------------------------

    async def create_topics(
        self,
        new_topics: list[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> CreateTopicsResponse:
        """Create topics, and return an error code for each."""
        wanted = [
            OurNewTopic(
                each.name,
                each.num_partitions,
                each.replication_factor,
                each.topic_configs,
                [each.replica_assignments[number] for number in sorted(each.replica_assignments)],
            )
            for each in new_topics
        ]
        with aiokafka_errors():
            found = await self._admin.create_topics(
                wanted, validate_only=validate_only, timeout_ms=timeout_ms
            )
        return CreateTopicsResponse(0, [(name, *_error(found, name)) for name in found])

    async def delete_topics(
        self, topics: list[str], timeout_ms: int | None = None
    ) -> DeleteTopicsResponse:
        """Delete topics, and return an error code for each."""
        with aiokafka_errors():
            found = await self._admin.delete_topics(topics, timeout_ms=timeout_ms)
        return DeleteTopicsResponse(0, [(name, _error(found, name)[0]) for name in found])

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> CreatePartitionsResponse:
        """Add partitions to topics."""
        wanted = {
            topic: OurNewPartitions(each.total_count, each.new_assignments or ())
            for topic, each in topic_partitions.items()
        }
        with aiokafka_errors():
            found = await self._admin.create_partitions(
                wanted, validate_only=validate_only, timeout_ms=timeout_ms
            )
            found.check()
        return CreatePartitionsResponse(0, [(name, 0, None) for name in found])

    async def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        with aiokafka_errors():
            return list(await self._admin.list_topics(list_internal=True))

    async def describe_topics(self, topics: list[str] | None = None) -> list[dict[str, Any]]:
        """Return topics with their partitions, leaders and replicas."""
        names = await self.list_topics() if topics is None else topics
        with aiokafka_errors():
            found = await self._admin.describe_topics(names)
        described: list[dict[str, Any]] = []
        for name in names:
            topic = found.successes.get(name)
            partitions = [] if topic is None else topic.partitions
            described.append(
                {
                    "error_code": _error(found, name)[0],
                    "topic": name,
                    "is_internal": topic is not None and topic.internal,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition": each.partition,
                            "leader": -1 if each.leader is None else each.leader.node_id,
                            "replicas": list(each.replicas),
                            "isr": list(each.isr),
                            "offline_replicas": list(each.offline_replicas),
                        }
                        for each in partitions
                    ],
                }
            )
        return described

    async def describe_cluster(self) -> dict[str, Any]:
        """Return the cluster's id, controller and brokers."""
        with aiokafka_errors():
            found = await self._admin.describe_cluster()
        return {
            "throttle_time_ms": 0,
            "cluster_id": found.cluster_id,
            "controller_id": -1 if found.controller is None else found.controller.node_id,
            "brokers": [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in found.nodes
            ],
        }

    # -- settings ----------------------------------------------------------------------------------

    async def describe_configs(
        self, config_resources: list[ConfigResource], include_synonyms: bool = False
    ) -> list[DescribeConfigsResponse]:
        """Return settings: one response for each broker, and one for all topics."""

        async def describe(group: list[ConfigResource]) -> DescribeConfigsResponse:
            found = [await self._describe_config(each, include_synonyms) for each in group]
            return DescribeConfigsResponse(0, found)

        brokers, topics = _by_broker(config_resources)
        with aiokafka_errors():
            return [await describe(group) for group in (*brokers, topics) if group]

    async def alter_configs(
        self, config_resources: list[ConfigResource]
    ) -> list[AlterConfigsResponse]:
        """Replace all settings of topics and brokers; a setting that is not given is reset to its
        default. Return one response for all topics, and one for each broker.
        """

        async def alter(group: list[ConfigResource]) -> AlterConfigsResponse:
            return AlterConfigsResponse(0, [await self._alter_config(each) for each in group])

        brokers, topics = _by_broker(config_resources)
        with aiokafka_errors():
            return [await alter(group) for group in (topics, *brokers)]

    async def _describe_config(
        self, given: ConfigResource, include_synonyms: bool
    ) -> tuple[Any, ...]:
        resource = _resource(given)
        found = await self._admin.describe_configs(
            [resource], names=given.configs or None, include_synonyms=include_synonyms
        )
        entries = [
            (
                each.name,
                each.value,
                each.read_only,
                int(each.source),
                each.sensitive,
                [(synonym.name, synonym.value, int(synonym.source)) for synonym in each.synonyms],
            )
            for each in found.successes.get(resource, {}).values()
        ]
        return (*_error(found, resource), int(resource.type), resource.name, entries)

    async def _alter_config(self, given: ConfigResource) -> tuple[Any, ...]:
        resource = _resource(given)
        present = await self._admin.describe_configs([resource])
        changes: dict[str, str | None] = {
            each.name: None
            for each in present.successes.get(resource, {}).values()
            if each.source in _OWN_SOURCES
        }
        changes |= given.configs or {}
        done = (
            present
            if present.errors or not changes
            else await self._admin.incremental_alter_configs({resource: changes})
        )
        return (*_error(done, resource), int(resource.type), resource.name)

    # -- groups and records ------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the node id of a group's coordinator, or with type 1 of a transactional id's."""
        with aiokafka_errors():
            return await self._admin.find_coordinator(
                group_id, transactional=coordinator_type == _TRANSACTION
            )

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribeGroupsResponse]:
        """Return the members of groups: one response for each coordinator. A group that does not
        exist is "Dead".
        """
        by_node: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            node_id = group_coordinator_id
            if node_id is None:
                node_id = await self.find_coordinator(group_id)
            by_node.setdefault(node_id, []).append(group_id)
        with aiokafka_errors():
            return [
                DescribeGroupsResponse(
                    0, _groups(await self._admin.describe_consumer_groups(wanted))
                )
                for wanted in by_node.values()
            ]

    async def list_consumer_groups(
        self, broker_ids: list[int] | None = None
    ) -> list[tuple[str, str]]:
        """Return ids and protocol types of the groups of these coordinators, or of all brokers."""
        with aiokafka_errors():
            found = await self._admin.list_groups(brokers=broker_ids)
        return [(each.group_id, each.protocol_type) for each in found.values()]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; -1 for given partitions without an offset."""
        with aiokafka_errors():
            found = await self._admin.list_consumer_group_offsets(group_id, partitions)
            return {
                tp: OffsetAndMetadata(-1, "") if each is None else OffsetAndMetadata(*each[:2])
                for tp, each in found.check().items()
            }

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset, and return each partition's new first offset."""
        wanted = {tp: each.before_offset for tp, each in records_to_delete.items()}
        with aiokafka_errors():
            found = await self._admin.delete_records(wanted, timeout_ms=timeout_ms)
            return dict(found.items())


def _error(results: Results[K, Any], item: K) -> tuple[int, str | None]:
    """Return the error code and message of an item; 0 and None for success."""
    error = results.errors.get(item)
    if error is None:
        return 0, None
    return int(error.code) if isinstance(error, aioprod.BrokerError) else -1, str(error)


def _resource(given: ConfigResource) -> OurConfigResource:
    return OurConfigResource(OurConfigResourceType(given.resource_type), str(given.name))


def _by_broker(
    resources: list[ConfigResource],
) -> tuple[list[list[ConfigResource]], list[ConfigResource]]:
    """Split resources into those of each broker, and those that any broker can describe."""
    brokers: dict[int, list[ConfigResource]] = {}
    topics = []
    for each in resources:
        if each.resource_type == ConfigResourceType.BROKER:
            brokers.setdefault(int(each.name), []).append(each)
        else:
            topics.append(each)
    return list(brokers.values()), topics


def _groups(found: Results[str, GroupDescription]) -> list[tuple[Any, ...]]:
    groups: list[tuple[Any, ...]] = []
    for group_id in found:
        group = found.successes.get(group_id)
        code, _ = _error(found, group_id)
        if group is None:
            dead = code == aioprod.ErrorCode.GROUP_ID_NOT_FOUND
            groups.append((0 if dead else code, group_id, "Dead" if dead else "", "", "", []))
            continue
        members = [
            (
                each.member_id,
                each.client_id,
                each.host,
                each.member_metadata,
                each.member_assignment,
            )
            for each in group.members
        ]
        groups.append((0, group_id, group.state, group.protocol_type, group.assignor, members))
    return groups
