"""EmbeddedCluster and ThreadedCluster forward their calls: each goes to the right object with all
arguments, and neither class lacks a call of the other.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import typing
from collections.abc import Mapping
from inspect import signature
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from aioprod._tools.generate_cluster import RECEIVERS, calls, main
from aioprod.testing import ApiKey, EmbeddedCluster, Rule, ThreadedCluster, delay
from aioprod.testing.broker.broker_node import BrokerNode
from aioprod.testing.broker.rules import ThreadedRule
from aioprod.testing.broker.store import Topic


def public_names(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


CALLS = {call.name: call for call in calls()}


def test_the_generated_calls_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_both_clusters_have_the_same_calls() -> None:
    assert public_names(ThreadedCluster) - {"call"} == public_names(EmbeddedCluster) - {"in_thread"}
    assert len(CALLS) > 40


def test_a_forwarded_call_belongs_to_the_object_that_gets_it() -> None:
    cluster = EmbeddedCluster()
    for name, call in CALLS.items():
        kind, names = RECEIVERS[call.receiver]
        assert type(getattr(cluster, call.receiver)) is kind
        assert hasattr(kind, name)
        assert not names or name in names


@pytest.mark.parametrize("name", CALLS)
def test_signatures_and_documentation_are_those_of_the_call(name: str) -> None:
    kind, _ = RECEIVERS[CALLS[name].receiver]
    answer = getattr(kind, name)
    method, blocking = getattr(EmbeddedCluster, name), getattr(ThreadedCluster, name)
    assert inspect.getdoc(method) == inspect.getdoc(blocking) == inspect.getdoc(answer) != ""
    returns = "ThreadedRule" if name in ("on", "on_every") else signature(method).return_annotation
    assert signature(blocking) == signature(method).replace(return_annotation=returns)
    assert signature(method) == signature(answer)
    assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(answer)


@pytest.mark.parametrize("name", CALLS)
def test_each_argument_is_passed_on(name: str) -> None:
    """Call each method with another value for each parameter."""
    parameters = [*signature(getattr(EmbeddedCluster, name)).parameters.values()][1:]
    given = {each.name: object() for each in parameters if each.kind is not each.VAR_POSITIONAL}
    more = [object(), object()] if len(given) < len(parameters) else []
    positional = [
        given[each.name] for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    keywords = {
        each.name: given[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY
    }
    receiver, cluster = Mock(), EmbeddedCluster()
    is_async = inspect.iscoroutinefunction(getattr(EmbeddedCluster, name))
    method = AsyncMock() if is_async else Mock()
    setattr(receiver, name, method)
    setattr(cluster, CALLS[name].receiver, receiver)
    result = getattr(cluster, name)(*positional, *more, **keywords)
    if is_async:
        asyncio.run(result)
    method.assert_called_once_with(*positional, *more, **keywords)
    portal = Mock(call=lambda function: function())
    broker = Mock()
    getattr(ThreadedCluster(broker, portal), name)(*positional, *more, **keywords)
    getattr(broker, name).assert_called_once_with(*positional, *more, **keywords)


def test_an_argument_that_does_not_exist_is_refused() -> None:
    cluster: Any = EmbeddedCluster()
    with pytest.raises(TypeError, match=r"EmbeddedCluster\.create_topic.* 'partitions'"):
        cluster.create_topic("orders", partitions=3)
    threaded: Any = ThreadedCluster(cluster, Mock())
    with pytest.raises(TypeError, match=r"ThreadedCluster\.create_topic.* 'partitions'"):
        threaded.create_topic("orders", partitions=3)


class PrefixedCluster(EmbeddedCluster):
    """A user's subclass."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.rules: list[Rule] = []

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        return super().create_topic(
            f"test-{name}", num_partitions, configs, replication_factor=replication_factor
        )

    def on(self, *arguments: Any, **settings: Any) -> Rule:
        self.rules.append(super().on(*arguments, **settings))
        return self.rules[-1]


def test_a_threaded_cluster_makes_the_calls_of_a_subclass() -> None:
    with PrefixedCluster.in_thread() as broker:
        assert broker.create_topic("t", replication_factor=1).name == "test-t"
        rule = broker.on(ApiKey.FETCH, delay(0.0), times=2)
        assert isinstance(rule, ThreadedRule)
        own = broker._broker
        assert isinstance(own, PrefixedCluster) and len(own.rules) == 1


@pytest.mark.parametrize("owner", [EmbeddedCluster, ThreadedCluster])
def test_calls_have_the_name_of_their_class(owner: type) -> None:
    for name in CALLS:
        call = getattr(owner, name)
        assert call.__qualname__ == f"{owner.__name__}.{name}"
        assert pickle.loads(pickle.dumps(call)) is call


@pytest.mark.parametrize("name", ["on", "on_every"])
def test_the_type_hints_of_rules_name_their_class(name: str) -> None:
    assert typing.get_type_hints(getattr(EmbeddedCluster, name))["return"] is Rule
    assert typing.get_type_hints(getattr(ThreadedCluster, name))["return"] is ThreadedRule


@pytest.mark.parametrize(("port", "ports"), [(0, [0, 0, 0]), (1, [1, 2, 3]), (9, [9, 10, 11])])
def test_ports_count_from_the_first_one(
    monkeypatch: pytest.MonkeyPatch, port: int, ports: list[int]
) -> None:
    found: list[int] = []

    class SeenNode(BrokerNode):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self.port)

    monkeypatch.setattr("aioprod.testing.broker.broker_node.BrokerNode", SeenNode)
    EmbeddedCluster(nodes=3, port=port)
    assert found == ports
