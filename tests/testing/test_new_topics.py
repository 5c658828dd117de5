"""Tests that send single requests to a real broker create topics that have leaders."""

from __future__ import annotations

import ast
import functools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.create_topics import CreatableTopic
from aioprod.testing import EmbeddedCluster, fail
from tests.testing.new_topics import create_topics_with_leaders, wait_for_leaders
from tests.testing.raw_client import RawClient, make_batch

_TESTS = Path(__file__).parent.parent
_CREATING = {"CreateTopicsRequest", "NewTopic", "create_topics", "make_topic"}
_REAL = {"RealKafka", "bootstrap", "kafka", "kafka_3_9", "kafka_4_1"}
# Modules that create topics otherwise, and why they need no wait for the leaders.
_OTHERWISE = {
    "admin/test_admin_security.py": "compares messages only",
    "telemetry/test_telemetry_real_kafka.py": "clients that retry use the topics",
    "testing/both_admins.py": "compares the answers, then waits for the leaders",
    "testing/new_topics.py": "waits for the leaders",
    "testing/test_broker_admin_clients_differential.py": "describes the topics only",
    "testing/test_broker_admin_differential.py": "compares the answers to CreateTopics",
    "testing/test_broker_differential.py": "compares the answers to CreateTopics",
}


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Return all names in a module: of functions, parameters, attributes and imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.ImportFrom(module=str(name)):
                found.add(name)
    return frozenset(found)


def imports_raw_client(path: Path) -> bool:
    """Return whether a module imports RawClient, or a module of tests that does."""
    modules = [name for name in names_in(path) if name.startswith("tests.testing.")]
    if "tests.testing.raw_client" in modules:
        return True
    files = [_TESTS.parent.joinpath(*name.split(".")).with_suffix(".py") for name in modules]
    return any(imports_raw_client(file) for file in files)


def creating_otherwise() -> Iterator[str]:
    for path in _TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in _CREATING):  # parsing all of them takes a second
            continue
        names = names_in(path)
        on_real_kafka = names & _REAL or not path.name.startswith("test_")
        if on_real_kafka and names & _CREATING and imports_raw_client(path):
            yield path.relative_to(_TESTS).as_posix()


def test_raw_clients_of_real_kafka_use_topics_that_have_leaders() -> None:
    assert sorted(creating_otherwise()) == sorted(_OTHERWISE)


async def test_new_topics_can_be_written_to_at_once(bootstrap: str) -> None:
    names = [f"led-{uuid.uuid4().hex}" for _ in range(5)]
    ids = await create_topics_with_leaders(
        bootstrap, *(CreatableTopic(each, 2, 1) for each in names)
    )
    assert len(set(ids.values())) == 5
    async with RawClient(bootstrap) as client:
        for name in names:
            for partition in range(2):
                answer = await client.produce(name, make_batch([b"x"]), partition=partition)
                assert not answer.error_code, (name, partition)


@pytest.mark.virtual_time
async def test_a_leader_that_does_not_know_of_its_partitions_is_waited_for() -> None:
    async with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic("t", 3)
        late = fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="t", partition=2)
        rule = cluster.on(ApiKey.LIST_OFFSETS, late, times=4)
        await wait_for_leaders(cluster.address(1), {"t": 3})
        assert rule.used == 4
        cluster.on(ApiKey.LIST_OFFSETS, late, times=None)
        with pytest.raises(AssertionError, match=r"t-2.*NOT_LEADER_OR_FOLLOWER"):
            await wait_for_leaders(cluster.address(1), {"t": 3}, limit_s=5)
        with pytest.raises(AssertionError, match="UNKNOWN_TOPIC_OR_PARTITION, 0 of 1"):
            await wait_for_leaders(cluster.address(1), {"missing": 1}, limit_s=5)
