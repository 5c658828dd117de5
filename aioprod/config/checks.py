"""Checks of single settings; each error names the setting, the value and the limit."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from aioprod.errors import ConfigError

#: The largest number that a Kafka setting of type int takes.
MAX_INT = 2**31 - 1


def check_numbers(config: object, limits: Mapping[str, tuple[int, int]]) -> None:
    """Raise ConfigError for a setting that is no number from the lowest to the highest; only times
    may have a fraction.
    """
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(
            value, int | float if name.endswith("_ms") else int
        ):
            raise ConfigError(
                f"{name}={value!r}: must be a {'' if name.endswith('_ms') else 'whole '}number"
            )
        if not low <= value <= high:
            raise ConfigError(f"{name}={value!r}: must be from {low} to {high}")


def check_choice(config: object, name: str, choices: tuple[object, ...]) -> None:
    """Raise ConfigError for a setting that is none of ``choices``."""
    value = getattr(config, name)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ConfigError(f"{name}={value!r}: must be one of {', '.join(map(str, choices))}")


def check_switches(config: object, names: Iterable[str]) -> None:
    """Raise ConfigError for a setting that is neither True nor False."""
    for name in names:
        check_choice(config, name, (True, False))


def check_callable(config: object, name: str) -> None:
    """Raise ConfigError for a serializer or deserializer that can't be called, is a class or
    asynchronous; None is allowed.
    """
    given = getattr(config, name)
    if given is not None and (isinstance(given, type) or not callable(given)):
        raise ConfigError(
            f"{name}={shown(given)}: must be a function or an object, called with (topic, "
            "headers, data)"
        )
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(
        getattr(given, "__call__", None)  # noqa: B004
    ):
        raise ConfigError(
            f"{name}={shown(given)}: must not be a coroutine function: it is called for each "
            "record, where nothing is awaited"
        )


def check_list(config: object, name: str, kind: type) -> None:
    """Make a setting a tuple; raise ConfigError unless it is a list of ``kind``."""
    given = getattr(config, name)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name}={shown(given)}: must be a list of objects")
    listed = tuple(given)
    for one in listed:
        if not isinstance(one, kind):
            raise ConfigError(f"{name}: {shown(one)} is no {kind.__name__}")
    object.__setattr__(config, name, listed)


def shown(given: object) -> str:
    """A value as errors show it."""
    return f"class {given.__name__}" if isinstance(given, type) else repr(given)


def check_names(kind: type[Any], settings: Iterable[str]) -> None:
    """Refuse settings that ``kind`` does not have, naming the nearest one."""
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"unknown setting {name!r}"
                + (f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}")
            )
