"""Wrong arguments are refused at once, by their names and values, before any broker is asked."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from aioprod import Admin, ConfigError, TopicPartition
from aioprod.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    ClientQuotaEntity,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramPassword,
)
from aioprod.admin.groups import GROUP_STATES, GROUP_TYPES
from aioprod.admin.replicas import ElectionType
from aioprod.admin.transactions import TRANSACTION_STATES
from aioprod.testing import EmbeddedCluster
from tests.testing import leaks

TP = TopicPartition("t", 0)
WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("alter_consumer_group_offsets", ("g", {TP: -5}), "offset -5 of"),
    ("alter_consumer_group_offsets", ("g", {TP: "5"}), "offset '5' of"),
    ("alter_consumer_group_offsets", ("g", [TP]), "offsets=[TopicPartition"),
    ("list_consumer_group_offsets", ("g", "t"), "partition 't'"),
    ("delete_consumer_group_offsets", ("g", ["t"]), "partition 't'"),
    ("list_offsets", ([TP],), "specs=[TopicPartition"),
    ("list_offsets", ({TP: "latest"},), "'latest' of TopicPartition(topic='t', partition=0): must"),
    ("delete_records", ({TP: -2},), "-2 of TopicPartition(topic='t', partition=0): must"),
    ("delete_records", ({"t": 5},), "partition 't'"),
    ("describe_producers", (5,), "partitions=5"),
    ("elect_leaders", (ElectionType.PREFERRED, [("t", -1)]), "partition ('t', -1)"),
    ("alter_partition_reassignments", ([TP],), "reassignments=[TopicPartition"),
    ("list_partition_reassignments", (["t"],), "partition 't'"),
    ("create_partitions", (["t"],), "partitions=['t']"),
    ("describe_configs", ("t",), "resources='t'"),
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


ACL = AclBinding(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
# Right arguments, for those that have no default.
RIGHT: dict[str, Any] = {
    "acls": [ACL],
    "before": {},
    "brokers": [1],
    "changes": {},
    "election_type": ElectionType.PREFERRED,
    "group_id": "g",
    "group_ids": ["g"],
    "group_instance_ids": ["i"],
    "key": "g",
    "limits": {},
    "offsets": {},
    "partitions": {},
    "reassignments": {},
    "resources": [],
    "selected": [AclFilter()],
    "specs": {},
    "token": b"h",
    "topics": [NewTopic("t")],
    "transactional_ids": ["x"],
}


# A key of each type of mapping.
KEYS: dict[str, Any] = {
    "ClientQuotaEntity": ClientQuotaEntity("u"),
    "ConfigResource": ConfigResource.topic("t"),
    "TopicPartition": TP,
    "str": "t",
}


def wrong_values(annotation: str) -> Iterator[Any]:
    """Return values that an argument of this type must not have."""
    if not annotation.endswith("None"):
        yield None
    if annotation.startswith("Mapping"):
        yield from (1, "text", [TP], {1.5: 1})
        key = KEYS[annotation.removeprefix("Mapping[").partition(",")[0]]
        yield from ({key: value} for value in ("latest", 1.5, True, object(), 2**70, [object()]))
    elif "Iterable" in annotation:
        yield from (1, [1.5], [None])
        if not annotation.startswith("str"):
            yield "text"  # an iterable of characters
        if "Acl" in annotation:
            wrong: list[dict[str, Any]] = [{"host": 1}, {"operation": 3}, {"principal": b"x"}]
            yield from (ACL, AclFilter(), *([ACL._replace(**each)] for each in wrong))
            yield from ([AclFilter(**each)] for each in wrong)
    elif annotation in ("str", "str | None"):
        yield from (1, b"x")
    elif annotation.startswith(("int", "float")):
        yield from ("1", True)
    else:
        yield from ("some text", 5)


def annotation_of(parameter: inspect.Parameter) -> str:
    """Return a type as its module writes it: the text, or the type itself."""
    return re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(parameter.annotation).strip("'"))


def wrong_arguments(call: str) -> Iterator[dict[str, Any]]:
    """Return arguments of which one is wrong; switches may be anything."""
    _self, *parameters = inspect.signature(getattr(Admin, call)).parameters.values()
    for parameter in parameters:
        others = {
            each.name: RIGHT[each.name]
            for each in parameters
            if each.default is each.empty and each is not parameter
        }
        if annotation_of(parameter) != "bool":
            for value in wrong_values(annotation_of(parameter)):
                yield {**others, parameter.name: value}


CALLS = [
    name
    for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction)
    if not name.startswith("_") and name not in ("start", "close")
]


@pytest.mark.parametrize("call", CALLS)
async def test_wrong_types_are_refused_before_a_broker_is_asked(
    admin: Admin, broker: EmbeddedCluster, call: str
) -> None:
    asked_before = len(broker.requests)
    for arguments in wrong_arguments(call):
        with pytest.raises(ConfigError):
            print(call, arguments, await getattr(admin, call)(**arguments))
    assert len(broker.requests) == asked_before


# Arguments that are text: those that take some words only, and those that take any.
ONE_OF: dict[tuple[str, str], Sequence[str]] = {
    ("list_groups", "states"): GROUP_STATES,
    ("list_groups", "types"): GROUP_TYPES,
    ("list_offsets", "isolation_level"): ("read_uncommitted", "read_committed"),
    ("list_transactions", "states"): TRANSACTION_STATES,
}
ANY_TEXT = {
    *("group_id", "group_ids", "group_instance_ids", "key", "names", "owner", "owners", "pattern"),
    *("renewers", "token", "topics", "transactional_ids", "users"),
}


def test_each_argument_that_is_text_is_known() -> None:
    found = {
        (call, name)
        for call in CALLS
        for name, parameter in inspect.signature(getattr(Admin, call)).parameters.items()
        if name != "self"
        and re.search(r"\b(str|Literal)\b", annotation_of(parameter))
        and "Mapping" not in annotation_of(parameter)
    }
    assert {each for each in found if each[1] not in ANY_TEXT} == set(ONE_OF)


@pytest.mark.parametrize(("call", "name"), ONE_OF)
async def test_an_unknown_word_is_refused_with_the_known_ones(
    admin: Admin, broker: EmbeddedCluster, call: str, name: str
) -> None:
    known = ONE_OF[call, name]
    others: dict[str, Any] = {"specs": {}} if call == "list_offsets" else {}
    several = name != "isolation_level"
    wrong = [known[0], "shared"] if several else "shared"
    asked_before = len(broker.requests)
    with pytest.raises(ConfigError) as caught:
        await getattr(admin, call)(**others, **{name: wrong})
    assert len(broker.requests) == asked_before
    assert name in str(caught.value)
    assert "'shared'" in str(caught.value)
    assert all(word in str(caught.value) for word in known)
    await getattr(admin, call)(**others, **{name: known if several else known[0]})


async def test_states_and_types_in_any_case(admin: Admin, broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    (await admin.alter_consumer_group_offsets("g", {TP: 5})).check()
    assert list(await admin.list_groups(states=["EMPTY"], types=["Classic"])) == ["g"]


@pytest.mark.parametrize("kind", ["topic", 2, None])
async def test_a_resource_of_no_known_type(
    admin: Admin, broker: EmbeddedCluster, kind: Any
) -> None:
    resource = ConfigResource(kind, "t")
    asked_before = len(broker.requests)
    for call in (
        admin.describe_configs(resource),
        admin.describe_configs([resource]),
        admin.incremental_alter_configs({resource: {}}),
    ):
        with pytest.raises(ConfigError, match=f"type={kind!r}: must be one of .*TOPIC.*GROUP"):
            await call
    assert len(broker.requests) == asked_before


@pytest.mark.parametrize("password", [b"pencil", "pencil\ud800", 5, ""])
async def test_a_wrong_password_is_not_shown(password: Any) -> None:
    with pytest.raises(ConfigError, match="password of 'alice'") as caught:
        ScramPassword("alice", password)
    assert "pencil" not in leaks.whole_text(caught.value, {__file__})
