"""``AIOKafkaAdminClient`` on :class:`aioprod.Admin`: topics, groups and records."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import aioprod
from aioprod import TopicPartition
from aioprod.admin import NewPartitions as OurNewPartitions
from aioprod.admin import NewTopic as OurNewTopic
from aioprod.admin import Results
from aioprod.compat.aiokafka.admin.new_partitions import NewPartitions
from aioprod.compat.aiokafka.admin.new_topic import NewTopic
from aioprod.compat.aiokafka.admin.records_to_delete import RecordsToDelete
from aioprod.compat.aiokafka.settings import client_settings, warn_deprecated
from aioprod.compat.aiokafka.structs import OffsetAndMetadata
from aioprod.compat.aiokafka.translation import aiokafka_errors


class TopicErrors(NamedTuple):
    """The response to a change of topics.

    Attributes:
        topic_errors: (topic, error code, message) for each topic; the code is 0 for success.
    """

    topic_errors: list[tuple[str, int, str | None]]

    def to_object(self) -> dict[str, Any]:
        """Return the same as dictionaries."""
        return {
            "topic_errors": [
                {"topic": topic, "error_code": code, "error_message": message}
                for topic, code, message in self.topic_errors
            ]
        }


class AIOKafkaAdminClient:
    """Creates and lists topics, and reads groups: a part of aiokafka's client, on
    :class:`aioprod.Admin`; docs/aiokafka.md has the rest.
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
    ) -> TopicErrors:
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
            return _topic_errors(
                await self._admin.create_topics(
                    wanted, validate_only=validate_only, timeout_ms=timeout_ms
                )
            )

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> TopicErrors:
        """Delete topics, and return an error code for each."""
        with aiokafka_errors():
            return _topic_errors(await self._admin.delete_topics(topics, timeout_ms=timeout_ms))

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics, and return an error code for each."""
        wanted = {
            topic: OurNewPartitions(each.total_count, each.new_assignments or ())
            for topic, each in topic_partitions.items()
        }
        with aiokafka_errors():
            return _topic_errors(
                await self._admin.create_partitions(
                    wanted, validate_only=validate_only, timeout_ms=timeout_ms
                )
            )

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
                    "error_code": _code(found.errors.get(name)),
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
            "cluster_id": found.cluster_id,
            "controller_id": -1 if found.controller is None else found.controller.node_id,
            "brokers": [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in found.nodes
            ],
        }

    # -- groups and records ------------------------------------------------------------------------

    async def list_consumer_groups(self) -> list[tuple[str, str]]:
        """Return the ids and protocol types of all groups."""
        with aiokafka_errors():
            found = await self._admin.list_groups()
        return [(each.group_id, each.protocol_type) for each in found.values()]

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; -1 for given partitions without one."""
        with aiokafka_errors():
            found = await self._admin.list_consumer_group_offsets(group_id, partitions)
        return {
            tp: OffsetAndMetadata(-1, "") if each is None else OffsetAndMetadata(*each[:2])
            for tp, each in found.items()
        }

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete records, and return the first offsets that are left."""
        wanted = {tp: each.before_offset for tp, each in records_to_delete.items()}
        with aiokafka_errors():
            found = await self._admin.delete_records(wanted, timeout_ms=timeout_ms)
            return dict(found.items())


def _topic_errors(results: Results[str, Any]) -> TopicErrors:
    failed = results.errors
    return TopicErrors(
        [
            (name, _code(failed.get(name)), str(failed[name]) if name in failed else None)
            for name in results
        ]
    )


def _code(error: aioprod.KafkaError | None) -> int:
    if error is None:
        return 0
    return int(error.code) if isinstance(error, aioprod.BrokerError) else -1
