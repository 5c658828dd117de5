"""Finds the seams: what users give to a client and is code, by types of parameters and settings."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import aioprod
import aioprod.integrations
import aioprod.processing
from aioprod.config.admin import AdminConfig
from aioprod.config.client import ClientConfig
from aioprod.config.consumer import ConsumerConfig
from aioprod.config.producer import ProducerConfig
from aioprod.config.share_consumer import ShareConsumerConfig

ROOT = Path(aioprod.__file__).parent
ROOMS = ("", "config", "metrics", "net", "cluster", "producer", "consumer", "admin", "processing")
CONFIGS = (ProducerConfig, ConsumerConfig, ShareConsumerConfig, AdminConfig)


def public_classes() -> Iterator[type]:
    """The public classes of the clients, of processors, of the integrations, and, where PySpark is
    installed, of Spark.
    """
    integrations = [
        importlib.import_module(f"aioprod.integrations.{module.name}")
        for module in pkgutil.iter_modules(aioprod.integrations.__path__)
    ]
    homes = [aioprod, aioprod.processing, *integrations]
    if importlib.util.find_spec("pyspark"):
        homes.append(importlib.import_module("aioprod.spark"))
    for home in homes:
        for name in getattr(home, "__all__", None) or [
            name for name in vars(home) if name[0] != "_"
        ]:
            found = getattr(home, name)
            if inspect.isclass(found) and found.__module__.startswith("aioprod"):
                yield found


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters."""
    function = inspect.unwrap(function)
    # Python 3.11 can't evaluate array[int].
    namespace = {**vars(importlib.import_module(function.__module__)), "array": list}
    while True:
        try:
            hints = get_type_hints(function, namespace)
        except NameError as error:  # of a package that is imported for type checking only
            namespace[str(error.name)] = types.SimpleNamespace(
                **dict.fromkeys(("RecordBatch", "Table", "Request", "Response"), object)
            )
        else:
            hints.pop("return", None)
            return hints


def leaves(hint: Any) -> Iterator[Any]:
    """The types that a hint is made of; a Callable is one of them."""
    if get_origin(hint) is not None and get_origin(hint) is not Callable:
        for part in get_args(hint):
            yield from leaves(part)
    else:
        yield Callable if get_origin(hint) is Callable else hint


def is_implemented_by_users(kind: Any, ours: frozenset[str]) -> bool:
    """Return whether users implement a class of this package: neither a class of data nor
    ``ours``.
    """
    if (
        not inspect.isclass(kind)
        or not kind.__module__.startswith("aioprod")
        or kind.__name__ in ours
    ):
        return False
    return not (
        dataclasses.is_dataclass(kind) or issubclass(kind, tuple | enum.Enum | BaseException | dict)
    )


def methods_of(kind: type) -> Iterator[str]:
    """The seams of a class that users implement."""
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if name == "configure":
            yield "plugin.configure"  # the same code calls it for all plug-ins
        elif name == "__call__" or not name.startswith("_"):
            yield f"{kind.__name__}.{name}"


def seams_of_parameters(ours: frozenset[str]) -> set[str]:
    """The seams that parameters of public methods lead to."""
    found = set()
    for kind in public_classes():
        for name, member in inspect.getmembers(kind):
            function = getattr(member, "__func__", member)
            if not inspect.isfunction(function) or not function.__module__.startswith("aioprod"):
                continue
            if name.startswith("_") and name != "__init__":
                continue
            if issubclass(kind, ClientConfig):
                continue  # seams_of_settings finds these
            owner = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
            for parameter, hint in hints_of(function).items():
                for leaf in leaves(hint):
                    if leaf is Callable:
                        found.add(f"{owner}({parameter})")
                    elif is_implemented_by_users(leaf, ours):
                        found.update(methods_of(leaf))
    return found


def seams_of_settings(of_any: Mapping[str, type], ours: frozenset[str]) -> set[str]:
    """The seams that settings lead to.

    Args:
        of_any: the types of settings whose annotation leaves them open.
    """
    found = set()
    for config in CONFIGS:
        hints = get_type_hints(config)
        for name in config.__dataclass_fields__:
            for leaf in leaves(hints[name]):
                kind = of_any[name] if leaf is Any else leaf
                if kind is Callable:
                    found.add(name)
                elif is_implemented_by_users(kind, ours):
                    found.update(methods_of(kind))
    return found


def optional_attributes() -> set[str]:
    """Names of attributes that the clients' code looks for: ``getattr(plugin, "close", None)``."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py") if room else ROOT.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(ast.Name("getattr"), [_, ast.Constant(str() as name), _]):
                        found.add(name)
    return {name for name in found if not name.startswith("__")}
