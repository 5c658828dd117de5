"""Checks of the arguments of the clients' calls, which raise before anything changes."""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from aioprod.config.checks import MAX_INT
from aioprod.errors import ConfigError
from aioprod.foreign_text import shown
from aioprod.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition

_MAX_OFFSET = 2**63 - 1
_PULSAR_TOPIC = r"(non-)?persistent://[^/]+/[^/]+/[^/]+"  # Kafka's protocol on Pulsar
_LEGAL_TOPIC = r"[a-zA-Z0-9._-]{1,249}"

K = TypeVar("K")
V = TypeVar("V")


def check_topics(given: object) -> list[str]:
    """Return the names of topics as a list, also for a single name. ConfigError: if invalid."""
    if isinstance(given, bytes | Mapping | re.Pattern):
        given = [given]
    names = (
        [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else None
    )
    if names is None:
        raise ConfigError(f"topics={shown(given)}: must be a list of names")
    for name in names:
        if (fault := topic_fault(name)) is not None:
            raise ConfigError(f"topic {shown_topic(name)}: {fault}")
    return names


def check_listed_topics(given: tuple[object, ...]) -> list[str]:
    """Return the names of topics that were given as several arguments, or as one list.

    Raises:
        ConfigError: if one is invalid.
    """
    if len(given) == 1 and isinstance(given[0], Mapping):  # not shown, as it may contain a password
        raise ConfigError(
            f"topics of type {type(given[0]).__name__}: must be names; pass settings by name, or "
            "to Consumer.from_config"
        )
    one_list = len(given) == 1 and isinstance(given[0], list | tuple | set | frozenset)
    return check_topics(given[0] if one_list else given)


def topic_fault(name: object) -> str | None:
    """Return why no topic can have this name, and what was probably meant; None if one can."""
    if isinstance(name, re.Pattern) or (isinstance(name, str) and name.startswith("^")):
        return "a pattern is not a name; only Consumer.subscribe(pattern=...) takes one"
    if not isinstance(name, str):
        return f"must be a name of type str, not {type(name).__name__}"
    if re.fullmatch(_PULSAR_TOPIC, name):
        return None
    if ":" in name:
        return (
            f"must not have ':'; did you mean bootstrap_servers={shown(name)}? "
            "Pass addresses of brokers by that name"
        )
    if "," in name:
        return "must be one name; give several topics as several arguments or as a list"
    if not re.fullmatch(_LEGAL_TOPIC, name) or name in (".", ".."):
        return "must be 1 to 249 of the characters a-z A-Z 0-9 . _ -, and not '.' or '..'"
    return None


def shown_topic(name: object) -> str:
    """Return what was given as a topic, for an error; only the type if it is a collection, which
    may contain a value or a password.
    """
    is_collection = isinstance(name, Collection) and not isinstance(name, str)
    return f"<{type(name).__name__}>" if is_collection else shown(name)


def named_topic(given: object) -> str:
    """Return the name of a topic for the result of a call, even if it is invalid."""
    return given if isinstance(given, str) else shown_topic(given)


def check_names(what: str, given: object) -> list[str]:
    """Check several names. ConfigError: if invalid, even if it is one name."""
    return check_items(what, given, str, "names")


def check_choices(what: str, given: object, allowed: Collection[str]) -> list[str]:
    """Check several of the names that there are, in any case; return them as they are written in
    ``allowed``. ConfigError: if invalid.
    """
    known = {name.lower(): name for name in allowed}
    names = check_names(what, given)
    for name in names:
        if name.lower() not in known:
            raise ConfigError(f"{what}: {shown(name)}: must be one of {', '.join(allowed)}")
    return [known[name.lower()] for name in names]


def check_items(what: str, given: object, kind: type[V], plural: str) -> list[V]:
    """Check several items. ConfigError: if invalid, even if it is one item.

    Args:
        what: the name of the argument.
        given: the items.
        kind: their type.
        plural: their noun in the plural, for the error.
    """
    if isinstance(given, str | bytes | kind) or not isinstance(given, Iterable):
        raise ConfigError(f"{what}={shown(given)}: must be a list of {plural}")
    items = list(given)
    for item in items:
        if not isinstance(item, kind) or isinstance(item, bool):
            raise ConfigError(f"{what}: must be a list of {plural}; {shown(item)} does not fit")
    return items


def check_pattern(given: object) -> re.Pattern[str] | SubscriptionPattern:
    """Check a pattern of topic names. ConfigError: if invalid."""
    if isinstance(given, SubscriptionPattern) or (
        isinstance(given, re.Pattern) and isinstance(given.pattern, str)
    ):
        return given
    if not isinstance(given, str):
        raise ConfigError(f"pattern={shown(given)}: must be a regular expression of text")
    try:
        return re.compile(given)
    except re.error as error:
        raise ConfigError(f"pattern={shown(given)}: {error}") from None


def check_partition(given: object, what: str = "") -> TopicPartition:
    """Check a partition, which may be a plain pair, of the argument ``what``.

    Raises:
        ConfigError: if it is invalid.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and topic and _is_whole(number) and 0 <= number <= MAX_INT:
            return TopicPartition(topic, number)
    raise ConfigError(
        f"{what}{': ' if what else ''}partition {shown(given)}: must be a TopicPartition: the name "
        "of a topic, and a whole number of at least 0"
    )


def check_partitions(given: object) -> list[TopicPartition]:
    """Check partitions, which may be plain pairs, one list among arguments, or a single partition.

    Raises:
        ConfigError: if one is invalid.
    """
    match given:
        case ([*listed],) | (set() | frozenset() as listed,) if all(
            isinstance(each, tuple) for each in listed
        ):
            given = listed
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        given = [given]
    if not isinstance(given, Iterable):
        raise ConfigError(f"partitions={shown(given)}: must be a list of TopicPartition")
    return [check_partition(each) for each in given]


def check_node_ids(what: str, given: object) -> list[int]:
    """Check the node ids of a partition's replicas. ConfigError: if invalid."""
    found = check_items(what, given, int, "node ids")
    if not all(0 <= node_id <= MAX_INT for node_id in found):
        raise ConfigError(f"{what}={found!r}: must be a list of node ids of at least 0")
    return found


def check_by_partition(what: str, given: Mapping[TopicPartition, V]) -> dict[TopicPartition, V]:
    """Check a mapping from partitions. ConfigError: if invalid."""
    return {
        check_partition(tp, what): value
        for tp, value in check_mapping(what, given, "TopicPartition").items()
    }


def check_by_number(
    what: str, given: Mapping[TopicPartition, int], at_least: int, wanted: str
) -> dict[TopicPartition, int]:
    """Check a mapping from partitions to offsets or times, which are ``shown`` in the error.

    Raises:
        ConfigError: if it is invalid, or a value is not a whole number of at least ``at_least``.
    """
    checked = check_by_partition(what, given)
    for tp, value in checked.items():
        if not _is_whole(value) or not at_least <= value <= _MAX_OFFSET:
            raise ConfigError(f"{what}: {shown(value)} of {tp}: must be {wanted}")
    return checked


def check_mapping(what: str, given: Mapping[K, V], keys: str) -> Mapping[K, V]:
    """Check a mapping from ``keys``, which are named in the error. ConfigError: if invalid."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what}={shown(given)}: must be a mapping from {keys}")
    return given


def check_position(given: object) -> OffsetAndMetadata:
    """Check an offset to read from. ConfigError: if invalid."""
    position = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)  # type: ignore[arg-type]
    if not _is_offset(position.offset):
        raise ConfigError(
            f"seek to offset {shown(position.offset)}: must be a whole number of at least 0"
        )
    return position


def check_offsets(
    given: Mapping[TopicPartition, int | OffsetAndMetadata | tuple[int, str]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check offsets to commit, each an offset, (offset, metadata), or OffsetAndMetadata.

    Raises:
        ConfigError: if one is invalid.
    """
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, value in check_by_partition("offsets", given).items():
        try:
            offset = (
                OffsetAndMetadata(*value) if isinstance(value, tuple) else OffsetAndMetadata(value)
            )
        except TypeError:
            offset = OffsetAndMetadata(-1)
        if not _is_offset(offset.offset) or not isinstance(offset.metadata, str):
            raise ConfigError(
                f"offset {shown(value)} of {tp}: must be a whole number of at least 0, a pair of "
                "such a number and a string, or OffsetAndMetadata"
            )
        checked[tp] = offset
    return checked


def check_timestamps(given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Check timestamps, in milliseconds since 1970. ConfigError: if one is invalid."""
    checked = check_by_partition("timestamps", given)
    for tp, timestamp in checked.items():
        if not _is_offset(timestamp):
            raise ConfigError(
                f"timestamp {shown(timestamp)} of {tp}: must be a whole number of at least 0, in "
                "milliseconds"
            )
    return checked


def check_max_records(given: object) -> None:
    """Check how many records a call may return. ConfigError: if invalid."""
    if not _is_whole(given) or given < 1:
        raise ConfigError(
            f"getmany: max_records={shown(given)}: must be a whole number of at least 1"
        )


def check_timeout_ms(given: float | None) -> None:
    """Check the timeout of a call, which may be None. ConfigError: if invalid."""
    if given is not None and not _is_time(given):
        raise ConfigError(f"timeout_ms={shown(given)}: must be a number of at least 0, or None")


def check_positive_timeout_ms(given: float | None) -> None:
    """Check the timeout of a call that needs a request; None for the default.

    Raises:
        ConfigError: if it is not a number above 0.
    """
    if given is not None and not (_is_time(given) and given):
        raise ConfigError(f"timeout_ms={shown(given)}: must be a number above 0, or None")


def check_limit_ms(given: float | None) -> None:
    """Check the timeout of a call that must end; None for the default.

    Raises:
        ConfigError: if it is not a finite number of at least 0.
    """
    check_timeout_ms(given)
    if given is not None and math.isinf(given):
        raise ConfigError(
            f"timeout_ms={shown(given)}: must be a finite number of at least 0, or None"
        )


def check_sources(clock: object, rng: object) -> None:
    """Check the clock and random number generator of a client; None for the defaults.

    Raises:
        ConfigError: if one is invalid.
    """
    if clock is not None and not callable(clock):
        raise ConfigError(
            f"clock={shown(clock)}: must be a function without arguments that returns seconds "
            "since 1970"
        )
    if rng is not None and not isinstance(rng, random.Random):
        raise ConfigError(f"rng={shown(rng)}: must be a random.Random")


def _is_time(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        return False
    # A larger integer can't be added to the time of the event loop.
    return given <= sys.float_info.max or given == math.inf


def _is_whole(given: Any) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_offset(given: Any) -> TypeGuard[int]:
    return _is_whole(given) and 0 <= given <= _MAX_OFFSET
