"""EmbeddedCluster and ThreadedCluster are tables of calls: each row leads to the right object, and
neither class lacks a call of the other.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aioprod.testing import EmbeddedCluster, ThreadedCluster


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
    assert inspect.signature(method) == inspect.signature(blocking)
    assert method.__name__ == name
    assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(method.__wrapped__)


def test_an_argument_that_does_not_exist_is_refused() -> None:
    cluster: Any = EmbeddedCluster()
    with pytest.raises(TypeError, match="partitions"):
        cluster.create_topic("orders", partitions=3)
