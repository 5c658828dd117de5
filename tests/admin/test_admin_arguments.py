"""Wrong arguments are refused at once, by their names and values, before any broker is asked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import Admin, ConfigError, TopicPartition
from aioprod.admin.replicas import ElectionType
from aioprod.testing import EmbeddedCluster

TP = TopicPartition("t", 0)
WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("alter_consumer_group_offsets", ("g", {TP: -5}), "offset -5 of"),
    ("alter_consumer_group_offsets", ("g", {TP: "5"}), "offset '5' of"),
    ("alter_consumer_group_offsets", ("g", [TP]), "offsets=[TopicPartition"),
    ("list_consumer_group_offsets", ("g", "t"), "partition 't'"),
    ("delete_consumer_group_offsets", ("g", ["t"]), "partition 't'"),
    ("list_offsets", ([TP],), "specs=[TopicPartition"),
    ("delete_records", ({"t": 5},), "partition 't'"),
    ("describe_producers", (5,), "partitions=5"),
    ("elect_leaders", (ElectionType.PREFERRED, [("t", -1)]), "partition ('t', -1)"),
    ("alter_partition_reassignments", ([TP],), "reassignments=[TopicPartition"),
    ("list_partition_reassignments", (["t"],), "partition 't'"),
    ("create_partitions", (["t"],), "partitions=['t']"),
    ("describe_configs", ("t",), "resource 't'"),
    ("incremental_alter_configs", ({"t": {}},), "resource 't'"),
    ("incremental_alter_configs", (["t"],), "changes=['t']"),
]


@pytest.fixture
async def admin(broker: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(broker.bootstrap_servers) as opened:
        yield opened


@pytest.mark.parametrize(("call", "arguments", "said"), WRONG)
async def test_what_is_wrong_is_named(
    admin: Admin, broker: EmbeddedCluster, call: str, arguments: tuple[Any, ...], said: str
) -> None:
    asked_before = len(broker.requests)
    with pytest.raises(ConfigError, match=re.escape(said)):
        await getattr(admin, call)(*arguments)
    assert len(broker.requests) == asked_before


async def test_partitions_may_be_plain_pairs(admin: Admin, broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    (await admin.alter_consumer_group_offsets("g", {("t", 0): 5})).check()  # type: ignore[dict-item]
    assert (await admin.list_consumer_group_offsets("g"))[TP].offset == 5  # type: ignore[union-attr]
