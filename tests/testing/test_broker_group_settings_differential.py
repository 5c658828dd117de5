"""The embedded broker stores, describes and obeys the settings of groups (resources of type GROUP)
like a real Apache Kafka broker, and refuses values with the same texts.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pytest

from aioprod.protocol.message import Request
from aioprod.protocol.messages.alter_configs import AlterableConfig as Replaced
from aioprod.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from aioprod.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from aioprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aioprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aioprod.protocol.messages.list_config_resources import ListConfigResourcesRequest
from aioprod.testing import EmbeddedCluster
from aioprod.testing.broker.settings.group_settings import group_settings
from tests.testing.both_admins import APPEND, DELETE, SET, SUBTRACT, VALUES
from tests.testing.both_brokers import BothBrokers
from tests.testing.raw_admin import GROUP

MORE_VALUES = [
    *(
        "earliest",
        " latest ",
        "LATEST",
        "read_committed",
        "sticky",
        "a,a",
        "__dead",
        "dlq.x",
        "a b",
    ),
    *("99", "100", "1000", "15000", "15001", "44999", "45000", "60000", "60001", "+9", " TRUE "),
    *("by_duration:", "by_duration:PT1H", "by_duration:p1dt2h3m4.5s", "by_duration:P1D"),
    *("by_duration:PT", "by_duration:P", "by_duration:-PT1H", "by_duration:PT-1H", "by_duration:x"),
    *("by_duration:PT0S", "by_duration:PT1H-30M", "by_duration:PT.5S", "by_duration:P1Y"),
]
LOCK = "share.record.lock.duration.ms"


AnswerT = TypeVar("AnswerT", AlterConfigsResponse, IncrementalAlterConfigsResponse)


@dataclass
class Groups:
    """Sends the same to both brokers, and compares the responses with their texts."""

    both: BothBrokers
    unique: str

    async def ask(self, request: Request[AnswerT], version: int) -> list[tuple[int, str | None]]:
        """Send a change; return error code and text of each resource."""
        real, ours = [
            [
                (int(each.error_code), each.error_message)
                for each in (await client.call(request, version)).responses
            ]
            for client in (self.both.real, self.both.embedded)
        ]
        assert ours == real, request
        return real

    async def set(
        self, name: str, *changes: tuple[str, int, str | None], dry: bool = False
    ) -> list[tuple[int, str | None]]:
        resource = AlterConfigsResource(GROUP, name, [AlterableConfig(*each) for each in changes])
        return await self.ask(IncrementalAlterConfigsRequest([resource], dry), 1)

    async def describe(self, name: str, names: list[str] | None = None) -> None:
        request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, name, names)], True)
        await self.both.ask(request, finishes=True)


@pytest.fixture
async def groups(kafka: str) -> AsyncIterator[Groups]:
    async with (
        EmbeddedCluster() as embedded,
        BothBrokers(kafka, embedded.bootstrap_servers) as both,
    ):
        yield Groups(both, f"settings-{uuid.uuid4().hex}")


async def test_values(groups: Groups) -> None:
    """Check each value of each setting."""
    values = list(dict.fromkeys(VALUES + MORE_VALUES))
    for name in [*group_settings(), "unknown", "session.timeout.ms"]:
        for value in values:
            if name == LOCK and value.strip().lstrip("+-").isdigit():
                continue  # the embedded broker allows shorter ones
            await groups.set(groups.unique, (name, SET, value), dry=True)


async def test_settings_that_belong_together(groups: Groups) -> None:
    for kind in ("consumer", "share", "streams"):
        session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        for pair in (
            ("45000", "45000"),
            ("46000", "15000"),
            ("15000", "15000"),
            ("14999", "15000"),
            ("6000", "5999"),
        ):
            both: list[tuple[str, int, str | None]] = [
                (session, SET, pair[0]),
                (interval, SET, pair[1]),
            ]
            await groups.set(groups.unique, *both, dry=True)
        await groups.set(groups.unique, (session, SET, "200"), dry=True)
        await groups.set(groups.unique, (session, SET, "201"), dry=True)


async def test_described_and_listed(groups: Groups) -> None:
    name = groups.unique
    await groups.describe(name)
    assert await groups.set(name, ("consumer.session.timeout.ms", SET, "+7000")) == [(0, None)]
    await groups.describe(name)
    changes = [
        *[
            ("share.auto.offset.reset", SET, " earliest "),
            ("share.renew.acknowledge.enable", SET, "TRUE"),
        ],
        *[
            ("streams.rack.aware.assignment.tags", SET, "a , b"),
            ("share.delivery.count.limit", SET, " 7 "),
        ],
        ("consumer.assignment.interval.ms", SET, "15000"),
    ]
    assert await groups.set(name, *changes) == [(0, None)]
    await groups.describe(name)
    await groups.describe(
        name, ["share.auto.offset.reset", "unknown", "consumer.session.timeout.ms"]
    )
    await groups.describe("")
    listed = await groups.both.embedded.call(ListConfigResourcesRequest([GROUP]), 1)
    assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == [
        (GROUP, name)
    ]
    assert await groups.set(name, *((each, DELETE, None) for each, *_ in changes)) == [(0, None)]
    await groups.describe(name)


async def test_changes(groups: Groups) -> None:
    name = groups.unique
    one = "consumer.session.timeout.ms"
    wrong: list[list[tuple[str, int, str | None]]] = [
        [(one, APPEND, "9000")],
        [("streams.rack.aware.assignment.tags", APPEND, "a")],
        [("streams.rack.aware.assignment.tags", SUBTRACT, "a")],
        [(one, SET, None)],
        [(one, SET, "9000"), (one, SET, "9001")],
        [(one, SET, "9000"), ("unknown", SET, "1")],
        [("unknown", DELETE, None)],
        [],
    ]
    for changes in wrong:
        await groups.set(name, *changes)
    await groups.set("", (one, SET, "9000"))
    await groups.describe(name)
    for settings in ({one: "9000"}, {}, {one: None}, {one: "100"}, {"unknown": "1"}, {one: "9000"}):
        await groups.ask(replacing(name, settings), 2)
        await groups.describe(name)
    await groups.ask(replacing("", {one: "9000"}), 2)


def replacing(name: str, settings: Mapping[str, str | None]) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        [ReplacedResource(GROUP, name, [Replaced(*each) for each in settings.items()])]
    )
