"""Public exceptions reach other processes and tasks: each can be pickled and copied."""

from __future__ import annotations

import copy
import inspect
import pickle
import uuid
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import aioprod
from aioprod import ErrorCode, TopicPartition

PACKAGES = (
    "aioprod",
    "aioprod.errors",
    "aioprod.compat.aiokafka",
    "aioprod.compat.aiokafka.admin",
    "aioprod.compat.aiokafka.errors",
    "aioprod.oauth",
    "aioprod.processing",
    "aioprod.schema_registry",
    "aioprod.spark",
    "aioprod.testing",
)
# An argument of a constructor, by its annotation.
ARGUMENTS: dict[str, object] = {
    "Any": "given",
    "ErrorCode": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "Headers": (("name", b"value"),),
    "TopicPartition": TopicPartition("orders", 3),
    "bytes | None": b"bytes",
    "int": 7,
    "int | None": 7,
    "str": "text",
    "str | None": "text",
    "uuid.UUID": uuid.UUID(int=5),
}


def errors() -> dict[str, type[BaseException]]:
    found = {}
    for package in PACKAGES:
        if package == "aioprod.spark" and find_spec("pyspark") is None:
            continue
        module = import_module(package)
        for name in getattr(module, "__all__", None) or vars(module):
            kind = getattr(module, name)
            if inspect.isclass(kind) and issubclass(kind, BaseException):
                found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return {name: kind for name, kind in found.items() if name.startswith("aioprod.")}


def instance(kind: type[BaseException]) -> BaseException:
    constructor: Callable[..., Any] = kind.__init__
    if not inspect.isfunction(constructor):  # that of a built-in exception
        return kind("text", 7)
    positional, named = [], {}
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        value = ARGUMENTS[str(parameter.annotation)]
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = value
        elif parameter.kind is not parameter.VAR_KEYWORD:
            positional.append(value)
    return kind(*positional, **named)


def through_pickle(error: BaseException, protocol: int) -> Any:
    return pickle.loads(pickle.dumps(error, protocol))


COPIES: dict[str, Callable[[BaseException], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "oldest pickle": partial(through_pickle, protocol=0),
    "newest pickle": partial(through_pickle, protocol=pickle.HIGHEST_PROTOCOL),
}


@pytest.mark.parametrize("name", sorted(errors()))
def test_a_copy_is_equal(name: str) -> None:
    error = instance(errors()[name])
    error.add_note("a note")
    for way, copied in COPIES.items():
        twin = copied(error)
        assert type(twin) is type(error) and twin is not error, way
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error)), way


def test_an_error_without_arguments_stays_so() -> None:
    for kind in (aioprod.KafkaError, import_module("aioprod.compat.aiokafka").errors.KafkaError):
        assert pickle.loads(pickle.dumps(kind())).args == ()


def test_the_errors_of_all_packages_are_found() -> None:
    homes = {name.rpartition(".")[0] for name in errors()}
    assert {
        "aioprod.compat.aiokafka.errors",
        "aioprod.processing",
        "aioprod.schema_registry",
    } <= homes
    assert len(errors()) > 130
