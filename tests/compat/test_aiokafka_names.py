"""Names, defaults and errors of ``aioprod.compat.aiokafka`` are those of aiokafka."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest

import aioprod.compat.aiokafka as compat
import aioprod.compat.aiokafka.admin
from aioprod.compat.aiokafka import errors, installation

# What the layer does not have, and docs/aiokafka.md says so.
MISSING_NAMES = {"AIOKafkaClient"}
CLASSES: dict[str, tuple[type, type]] = {
    "producer": (aiokafka.AIOKafkaProducer, compat.AIOKafkaProducer),
    "consumer": (aiokafka.AIOKafkaConsumer, compat.AIOKafkaConsumer),
    "admin": (
        aiokafka.admin.AIOKafkaAdminClient,
        aioprod.compat.aiokafka.admin.AIOKafkaAdminClient,
    ),
    "listener": (aiokafka.ConsumerRebalanceListener, compat.ConsumerRebalanceListener),
}
# Objects of either client, which say no more than their type.
SENTINELS = ("acks", "partitioner", "partition_assignment_strategy")


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: value
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    }


def shown(parameter: inspect.Parameter) -> object:
    default = parameter.default
    return type(default).__name__ if parameter.name in SENTINELS else default


def parameters(method: Callable[..., Any]) -> list[tuple[str, object, object]]:
    found = inspect.signature(method).parameters.values()
    return [
        (
            each.name,
            each.kind,
            type(each.default).__name__ if each.name in SENTINELS else each.default,
        )
        for each in found
    ]


def test_the_package_has_the_names() -> None:
    assert set(aiokafka.__all__) - set(compat.__all__) == MISSING_NAMES
    assert compat.__version__ == aiokafka.__version__


@pytest.mark.parametrize("kind", CLASSES)
def test_methods_have_the_same_parameters_and_defaults(kind: str) -> None:
    theirs, ours = (methods(each) for each in CLASSES[kind])
    assert theirs.keys() <= ours.keys()
    different = {}
    for name in theirs.keys() & ours.keys():
        reported = (
            sorted(parameters(theirs[name]), key=str),
            sorted(parameters(ours[name]), key=str),
        )
        # The order of settings is free: they are given by name.
        same = (
            reported[0] == reported[1]
            if name == "__init__"
            else parameters(theirs[name]) == parameters(ours[name])
        )
        if not same:
            different[name] = reported
    assert different == {}


def test_each_error_has_its_number_flags_and_bases() -> None:
    theirs = {
        name: kind
        for name, kind in vars(aiokafka.errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert len(theirs) > 90
    for name, kind in theirs.items():
        ours = getattr(errors, name)
        for attribute in ("errno", "message", "retriable", "invalid_metadata", "__name__"):
            assert getattr(ours, attribute, None) == getattr(kind, attribute, None), name
        assert [base.__name__ for base in ours.__mro__] == [base.__name__ for base in kind.__mro__]


@pytest.mark.parametrize("code", [*range(-2, 120)])
def test_for_code_returns_the_same_error(code: int) -> None:
    ours, theirs = errors.for_code(code), aiokafka.errors.for_code(code)
    assert ours.__name__ == theirs.__name__
    assert str(ours()) == str(theirs()) and str(ours("text")) == str(theirs("text"))


@pytest.mark.parametrize("name", installation.MODULES)
def test_each_module_is_a_module_of_aiokafka_and_has_its_names(name: str) -> None:
    theirs, ours = import_module(f"aiokafka.{name}"), import_module(f"{installation.HOME}.{name}")
    assert [each for each in getattr(theirs, "__all__", ()) if not hasattr(ours, each)] == []


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_after_install_programs_get_this_package() -> None:
    done = run(
        "import aioprod.compat.aiokafka as compat; compat.install(); compat.install()\n"
        "import aiokafka, aiokafka.admin.client\n"
        "from aiokafka.errors import KafkaError\n"
        "from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor\n"
        "assert issubclass(aiokafka.errors.KafkaConnectionError, KafkaError)\n"
        "print(aiokafka is compat, aiokafka.admin.client.AIOKafkaAdminClient.__module__)"
    )
    assert done.stdout == "True aioprod.compat.aiokafka.admin.client\n", done.stderr


def test_install_refuses_after_an_import_of_aiokafka() -> None:
    done = run("import aiokafka, aioprod.compat.aiokafka as compat; compat.install()")
    assert "RuntimeError: aiokafka was already imported, from" in done.stderr
