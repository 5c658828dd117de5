"""Strict parsing of options that are JSON.

Ambiguous values, and numbers that a broker can't have, are errors that name the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from aioprod.errors import ConfigError
from aioprod.types import TopicPartition

MAX_OFFSET = 2**63 - 1
"""The largest offset, and the largest time in milliseconds."""
_MAX_PARTITION = 2**31 - 1
_MAX_DIGITS = 19
_SHOWN = 200

_PARTITION = re.compile("0|[1-9][0-9]{0,9}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def read_numbers(option: str, text: str, least: int, expected: str) -> dict[TopicPartition, int]:
    """Read a number for each partition, such as ``{"topic": {"0": 23}}``.

    Args:
        option: the option's name.
        text: the option's value.
        least: the minimum.
        expected: the expected format, for errors.

    Raises:
        ConfigError: if the format is different, or a number is out of range.
    """
    try:
        found = {
            TopicPartition(topic, _partition(key)): _number(
                number, f"the number of {topic}-{key}", least, MAX_OFFSET
            )
            for topic, numbers in _topics(text)
            for key, number in _mapping(numbers, topic).items()
        }
        if not found:
            raise _Fault("no partition is named")
    except _Fault as fault:
        reason = str(fault)
    else:
        return found
    raise ConfigError(f"option {option} must be {expected}, got {shown(text)}: {reason}")


def read_partitions(option: str, text: str, expected: str) -> tuple[TopicPartition, ...]:
    """Read partitions, such as ``{"topic": [0, 1]}``. Arguments and errors are those of
    `read_numbers`.
    """
    try:
        found = {
            TopicPartition(topic, _number(number, f"a partition of {topic}", 0, _MAX_PARTITION))
            for topic, numbers in _topics(text)
            for number in _list(numbers, topic)
        }
        if not found:
            raise _Fault("no partition is named")
    except _Fault as fault:
        reason = str(fault)
    else:
        return tuple(sorted(found))
    raise ConfigError(f"option {option} must be {expected}, got {shown(text)}: {reason}")


def shown(text: str) -> str:
    """Return an option's value for an error message, shortened if it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"


ID_MARK = "#"
"""The separator between a topic and its id in a stream's position; not allowed in names of
topics.
"""


class _Fault(Exception):
    """Describes what is wrong with the JSON."""


def _topics(text: str) -> list[tuple[str, Any]]:
    try:
        given = json.loads(
            text, object_pairs_hook=_object, parse_int=_int, parse_constant=_constant
        )
    except RecursionError:
        raise _Fault("it is nested too deeply") from None
    except ValueError as error:
        raise _Fault(f"it is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise _Fault(f"it is {_kind(given)}, not an object of topics")
    # A stream's position, as in its progress, with the ids of topics.
    topics = {name: each for name, each in given.items() if not (each == {} and ID_MARK in name)}
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise _Fault(f"{shown(topic)} can't be the name of a topic")
    return list(topics.items())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; Python would silently drop the first of two equal names."""
    names = dict(pairs)
    if len(names) < len(pairs):
        raise _Fault("it has the same name twice")
    return names


def _int(digits: str) -> int:
    # Python refuses to parse thousands of digits, and is slow with a few less.
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise _Fault(f"a number of {len(digits)} digits is out of range")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise _Fault(f"{name} is not JSON")


def _mapping(given: object, topic: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise _Fault(f"the value of {topic} is {_kind(given)}, not an object of partitions")
    return given


def _list(given: object, topic: str) -> list[Any]:
    if not isinstance(given, list):
        raise _Fault(f"the value of {topic} is {_kind(given)}, not a list of partitions")
    return given


def _partition(key: str) -> int:
    if not _PARTITION.fullmatch(key) or int(key) > _MAX_PARTITION:
        raise _Fault(f"{shown(key)} is not the number of a partition")
    return int(key)


def _number(given: object, what: str, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise _Fault(f"{what} is {_kind(given)}, not a whole number")
    if not least <= given <= most:
        raise _Fault(f"{what} is {given}: must be from {least} to {most}")
    return given


def _kind(given: object) -> str:
    return _KINDS.get(type(given), "null")


_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    float: "a fraction",
    int: "a number",
}
