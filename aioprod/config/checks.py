"""Checks of single settings.

A check takes a setting's name and value, and returns the value to use. If the value is invalid, it
raises ConfigError, which contains name, value and limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from aioprod.errors import ConfigError
from aioprod.foreign_text import shown
from aioprod.one_argument import adapted

Check = Callable[[str, Any], Any]

#: The largest value of a Kafka setting of type int.
MAX_INT = 2**31 - 1


def in_range(low: int, high: int, *, fraction: bool = False) -> Check:
    """Return a check of a number.

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


def or_none(check: Check) -> Check:
    """Return a check that also allows None."""
    return lambda name, value: None if value is None else check(name, value)


def one_of(choices: tuple[object, ...], change_case: Callable[[str], str] | None = None) -> Check:
    """Return a check that a value is one of ``choices``.

    Args:
        choices: the allowed values; True is not accepted for 1.
        change_case: ``str.lower`` or ``str.upper``, to accept names in any case.
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
    """Check a non-empty string; None is allowed."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{name}={shown(value)}: must be a non-empty string")
    return value


def check_secret_text(name: str, value: Any) -> Any:
    """Check a string that may be a secret, which errors never show; None is allowed."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{name}: must be a string, not {type(value).__name__}")
    # Lone surrogates, with which os.environ represents bytes in another encoding.
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(
            f"{name}: contains a character that UTF-8 can't encode; check the encoding that it "
            "was read with"
        )
    return value


def accept(name: str, value: Any) -> Any:
    """Accept any value. It is checked later, together with other settings."""
    return value


def check_callable(name: str, value: Any, arguments: str = "topic, headers, data") -> Any:
    """Check a serializer, a deserializer or a callback: it must be callable, and neither a class
    nor a coroutine function. None is allowed.
    """
    if isinstance(value, type):
        raise ConfigError(
            f"{name}={shown(value)}: must be an object or a function, not a class; write "
            f"{name}={value.__name__}(...), or a function that calls it"
        )
    if value is not None and not callable(value):
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


def check_serializer(name: str, value: Any) -> Any:
    """Check a serializer or deserializer, and adapt a function of one argument. None is allowed."""
    return None if value is None else adapted(name, check_callable(name, value))


def list_of(kind: type) -> Check:
    """Return a check of a list of ``kind`` objects, which is converted to a tuple."""

    def check(name: str, value: Any) -> Any:
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigError(f"{name}={shown(value)}: must be a list of {kind.__name__} objects")
        kept = tuple(value)
        for item in kept:
            if not isinstance(item, kind):
                raise ConfigError(f"{name}: {shown(item)} is not a {kind.__name__}")
        return kept

    return check


def check_names(kind: type[Any], settings: Iterable[str]) -> None:
    """Check that a configuration class has all of ``settings``.

    Raises:
        ConfigError: if one is unknown; the error suggests the closest name.
    """
    known = kind.__dataclass_fields__
    for name in settings:
        if name not in known:
            from aioprod.config.other_clients import cure_of  # for errors only

            cure = cure_of(name, known)
            raise ConfigError(
                f"unknown setting {name!r}"
                + (f": {cure}" if cure else f"; known are {', '.join(known)}")
            )
