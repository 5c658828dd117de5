"""Checks of single settings.

A check takes a setting's name and value and returns the value to keep. It raises ConfigError, with
name, value and limit, if the value is invalid.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from aioprod.errors import ConfigError
from aioprod.foreign_text import shown

Check = Callable[[str, Any], Any]

#: The largest value of a Kafka setting of type int.
MAX_INT = 2**31 - 1

# What os.environ gives for bytes in another encoding.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def in_range(low: int, high: int, *, fraction: bool = False) -> Check:
    """Make a check of a number.

    Args:
        low, high: the limits, both allowed.
        fraction: whether the number may have a fraction.
    """
    types: tuple[type, ...] = (int, float) if fraction else (int,)

    def check(name: str, value: Any) -> Any:
        # Subclasses, such as numpy's, are allowed.
        if type(value) not in types and (isinstance(value, bool) or not isinstance(value, types)):
            raise ConfigError(
                f"{name}={shown(value)}: must be a {'' if fraction else 'whole '}number"
            )
        if not low <= value <= high:
            raise ConfigError(f"{name}={shown(value)}: must be from {low} to {high}")
        return value

    return check


def one_of(choices: tuple[object, ...], change_case: Callable[[str], str] | None = None) -> Check:
    """Make a check that a value is one of ``choices``.

    Args:
        choices: the values; True is not 1.
        change_case: for names in any case, ``str.lower`` or ``str.upper``.
    """

    def check(name: str, value: Any) -> Any:
        kept = change_case(value) if change_case and isinstance(value, str) else value
        for choice in choices:
            if type(kept) is type(choice) and kept == choice:
                return kept
        raise ConfigError(f"{name}={shown(value)}: must be one of {', '.join(map(str, choices))}")

    return check


def check_string(name: str, value: Any) -> Any:
    """Check a string, which may be empty."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}={shown(value)}: must be a string")
    return value


def check_name(name: str, value: Any) -> Any:
    """Check a string that is not empty; None is allowed."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{name}={shown(value)}: must be a string that is not empty")
    return value


def check_secret_text(name: str, value: Any) -> Any:
    """Check a string that may be a secret, and is never shown; None is allowed."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{name}: must be a string, not {type(value).__name__}")
    if _LONE_SURROGATE.search(value):
        raise ConfigError(
            f"{name}: contains a character that UTF-8 can't encode; check the encoding that it "
            "was read with"
        )
    return value


def accept(name: str, value: Any) -> Any:
    """Accept any value: it is checked together with other settings."""
    return value


def check_callable(name: str, value: Any, arguments: str = "topic, headers, data") -> Any:
    """Check a serializer, a deserializer or a callback: it can be called, and is neither a class
    nor a coroutine function. None is allowed.
    """
    if value is not None and (isinstance(value, type) or not callable(value)):
        raise ConfigError(
            f"{name}={shown(value)}: must be a function or an object that can be called with "
            f"({arguments})"
        )
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(
        getattr(value, "__call__", None)  # noqa: B004
    ):
        raise ConfigError(
            f"{name}={shown(value)}: must not be a coroutine function: its result is not awaited"
        )
    return value


def list_of(kind: type) -> Check:
    """Make a check of a list of ``kind`` objects, which is kept as a tuple."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigError(f"{name}={shown(value)}: must be a list of objects")
        kept = tuple(value)
        for item in kept:
            if not isinstance(item, kind):
                raise ConfigError(f"{name}: {shown(item)} is not a {kind.__name__}")
        return kept

    return check


def check_names(kind: type[Any], settings: Iterable[str]) -> None:
    """Check that a configuration class has all ``settings``.

    Raises:
        ConfigError: if it does not have one; the error suggests the closest name.
    """
    known = kind.__dataclass_fields__
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"unknown setting {name!r}"
                + (f": did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}")
            )
