"""EmbeddedCluster and ThreadedCluster are tables of calls: each row leads to the right object, and
neither class lacks a call of the other.
"""

from __future__ import annotations

import inspect
import pickle
import typing
from collections.abc import Mapping
from inspect import signature
from typing import Any

import pytest

from aioprod.testing import ApiKey, EmbeddedCluster, Rule, ThreadedCluster, delay
from aioprod.testing.broker.broker_node import BrokerNode
from aioprod.testing.broker.rules import ThreadedRule
from aioprod.testing.broker.store import Topic


def public_names(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


FORWARDED = sorted(
    name
    for name, call in vars(EmbeddedCluster).items()
    if hasattr(call, "__wrapped__") and not isinstance(call, classmethod)
)


def test_both_clusters_have_the_same_calls() -> None:
    assert public_names(ThreadedCluster) - {"call"} == public_names(EmbeddedCluster) - {"in_thread"}
    assert len(FORWARDED) > 40


@pytest.mark.parametrize("name", FORWARDED)
def test_a_forwarded_call_belongs_to_the_object_that_gets_it(name: str) -> None:
    method: Any = getattr(EmbeddedCluster, name)
    target = inspect.getclosurevars(method).nonlocals["attribute"]
    receiver = getattr(EmbeddedCluster(), target)
    assert getattr(type(receiver), name) is method.__wrapped__


@pytest.mark.parametrize("name", FORWARDED)
def test_signatures_and_documentation_are_those_of_the_call(name: str) -> None:
    method, blocking = getattr(EmbeddedCluster, name), getattr(ThreadedCluster, name)
    assert inspect.getdoc(method) == inspect.getdoc(blocking) != ""
    returns = ThreadedRule if name in ("on", "on_every") else signature(method).return_annotation
    assert signature(blocking) == signature(method).replace(return_annotation=returns)
    assert method.__name__ == name
    assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(method.__wrapped__)


def test_an_argument_that_does_not_exist_is_refused() -> None:
    cluster: Any = EmbeddedCluster()
    with pytest.raises(TypeError, match="partitions"):
        cluster.create_topic("orders", partitions=3)


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
    module = vars(owner)["__init__"].__module__
    for name in FORWARDED:
        call = vars(owner)[name]
        assert (call.__module__, call.__qualname__) == (module, f"{owner.__name__}.{name}")
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
