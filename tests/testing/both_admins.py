"""Administrative requests to the embedded and a real broker, in few words."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aioprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from aioprod.protocol.messages.alter_configs import AlterableConfig as Replaced
from aioprod.protocol.messages.alter_configs import AlterConfigsRequest
from aioprod.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from aioprod.testing import EmbeddedCluster
from tests.testing.both_brokers import BothBrokers
from tests.testing.new_topics import wait_for_leaders
from tests.testing.raw_admin import BROKER
from tests.testing.raw_client import RawClient

SET, DELETE, APPEND, SUBTRACT = range(4)
# Kafka describes an internal setting only if it is set; the fixtures of real brokers set this one.
_INTERNAL = "log.initial.task.delay.ms"


VALUES = [
    "0",
    "-1",
    "-2",
    "-3",
    "1",
    "2",
    "9",
    "10",
    "13",
    "17",
    "18",
    "22",
    "23",
    "1048575",
    "1048576",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "x",
    "+7",
    "1.0",
    "0.5",
    "1e0",
    "true",
    "TRUE",
    "delete",
    "compact,delete",
    "delete,",
    "gzip",
    "GZIP",
    "LogAppendTime",
    "*",
    "0:1",
    "0:1,1:2",
    "0:1,x",
    "",
    " 7 ",
    "compact , delete",
    "zstd ",
]


class Admin:
    """Sends requests to both brokers. The topic and everything else have unique names."""

    def __init__(self, both: BothBrokers, name: str) -> None:
        self.both = both
        self.topic = name
        self.other = name + "-other"
        self.unknown = name + "-unknown"

    async def create(self, name: str, count: int = 1, **configs: str | None) -> None:
        settings = [
            CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        await self.both.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name, count, 1, configs=settings)])
        )
        await wait_for_leaders(self.both.real.address, {name: count})

    async def set(
        self,
        kind: int,
        name: str,
        *changes: tuple[str, int, str | None],
        validate_only: bool = False,
    ) -> None:
        resource = AlterConfigsResource(kind, name, [AlterableConfig(*each) for each in changes])
        await self.both.ask(IncrementalAlterConfigsRequest([resource], validate_only))

    async def replace(
        self, kind: int, name: str, *settings: tuple[str, str | None], validate_only: bool = False
    ) -> None:
        await self.both.ask(
            AlterConfigsRequest(
                [ReplacedResource(kind, name, [Replaced(*each) for each in settings])],
                validate_only,
            )
        )

    async def describe(
        self, kind: int, name: str, names: list[str] | None = None, *, synonyms: bool = True
    ) -> None:
        resource = DescribeConfigsResource(kind, name, names)
        await self.both.ask(
            DescribeConfigsRequest([resource], include_synonyms=synonyms), finishes=True
        )

    async def quota(
        self,
        entity: list[tuple[str, str | None]],
        changes: dict[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        operations = [OpData(key, value or 0.0, value is None) for key, value in changes.items()]
        await self.both.ask(
            AlterClientQuotasRequest(
                [EntryData([EntityData(*each) for each in entity], operations)], validate_only
            )
        )


@asynccontextmanager
async def open_admin(kafka: str) -> AsyncIterator[Admin]:
    """Connect to both brokers, and adapt what is compared to the real broker's settings."""
    async with (
        EmbeddedCluster() as embedded,
        BothBrokers(kafka, embedded.bootstrap_servers) as both,
    ):
        if not _different_start:
            _different_start.update(await settings_of_the_start(both.real))
        both.adapt = blur_settings(_different_start)
        yield Admin(both, f"admin-{uuid.uuid4().hex}")


_different_start: set[str] = set()  # of the real broker of this run


async def settings_of_the_start(real: RawClient) -> set[str]:
    """Return the settings with which the real broker was started differently, and the topic
    settings whose defaults they are.
    """
    described = await real.call(
        DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)]), 4
    )
    return {
        config.name for config in described.results[0].configs if config.config_source in (3, 4)
    } | {"segment.bytes"}


def blur_settings(names: set[str]) -> Callable[[Any], Any]:
    """Leave out the values of these settings and their sources."""

    def blur(value: Any) -> Any:
        if isinstance(value, list):
            return [blur(item) for item in value if not _is_internal(item)]
        if not isinstance(value, dict):
            return value
        if "config_source" in value and value["name"] in names:
            return {**value, "value": None, "config_source": None, "synonyms": None}
        return {key: blur(item) for key, item in value.items()}

    return blur


def _is_internal(described: Any) -> bool:
    return (
        isinstance(described, dict)
        and "config_source" in described
        and described["name"] == _INTERNAL
    )
