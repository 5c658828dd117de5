"""The settings of groups (resources of type GROUP) in Kafka 4.4, and the validation of their
values, with Kafka's messages. Those of streams groups have no effect on the embedded broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.settings.broker_settings import broker_settings
from aioprod.testing.broker.settings.setting import Setting, SettingType

# Each line has a name, a type, and either the default or the broker's setting for the default and
# the limits. Numbers also have the lowest value that any broker allows.
_TABLE = """
consumer.assignment.interval.ms int group.consumer.assignment.interval.ms 0
consumer.heartbeat.interval.ms int group.consumer.heartbeat.interval.ms 1
consumer.session.timeout.ms int group.consumer.session.timeout.ms 1
errors.deadletterqueue.copy.record.enable boolean false
errors.deadletterqueue.topic.name string ""
share.assignment.interval.ms int group.share.assignment.interval.ms 0
share.auto.offset.reset string latest
share.delivery.count.limit int group.share.delivery.count.limit 2
share.heartbeat.interval.ms int group.share.heartbeat.interval.ms 1
share.isolation.level string read_uncommitted
share.partition.max.record.locks int group.share.partition.max.record.locks 100
share.record.lock.duration.ms int group.share.record.lock.duration.ms 1
share.renew.acknowledge.enable boolean true
share.session.timeout.ms int group.share.session.timeout.ms 1
streams.assignment.interval.ms int group.streams.assignment.interval.ms 0
streams.assignor.name string group.streams.assignors
streams.heartbeat.interval.ms int group.streams.heartbeat.interval.ms 1
streams.initial.rebalance.delay.ms int group.streams.initial.rebalance.delay.ms 0
streams.num.standby.replicas int group.streams.num.standby.replicas 0
streams.rack.aware.assignment.tags list group.streams.rack.aware.assignment.tags
streams.session.timeout.ms int group.streams.session.timeout.ms 1
"""
_KINDS = ("consumer", "share", "streams")
_BY_DURATION = "by_duration:"
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_INTERNAL_PREFIX = "__"
_DURATION = re.compile(
    r"P(?=.)(?:([-+]?\d+)D)?(?:T(?=.)(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?"
    r"(?:([-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


class GroupSetting(NamedTuple):
    """A setting of groups.

    Attributes:
        setting: the setting. Its ``broker_name`` is the broker's setting for the default; "" for
            none.
        lowest: the lowest number that any broker allows.
    """

    setting: Setting
    lowest: int


@cache
def group_settings() -> dict[str, GroupSetting]:
    """Return all settings of groups by name."""
    found: dict[str, GroupSetting] = {}
    for line in _TABLE.strip().splitlines():
        name, kind, default, *lowest = line.split()
        broker = broker_settings().get(default)
        setting = Setting(
            name,
            SettingType[kind.upper()],
            default.strip('"') if broker is None else broker.default,
            broker_name="" if broker is None else default,
        )
        found[name] = GroupSetting(setting, int(lowest[0]) if lowest else 0)
    return found


def parse_settings(
    overrides: Mapping[str, str], broker_value: Callable[[str], str | None]
) -> dict[str, str]:
    """Return settings in Kafka's format.

    Args:
        broker_value: a function that returns the value of a broker's setting, or None if it does
            not exist.

    Raises:
        RequestError: if a setting is unknown or its value is invalid (INVALID_CONFIG).
    """
    for name in overrides:
        if name not in group_settings():
            raise _refusal(f"Unknown group config name: {name}")
    parsed = {name: _parse(group_settings()[name], text) for name, text in overrides.items()}
    for name, text in parsed.items():
        _check_limits(group_settings()[name].setting, text, broker_value)
    for kind in _KINDS:
        session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if {session, interval} & parsed.keys():
            values = [
                int(parsed.get(name) or broker_value(f"group.{name}") or "")
                for name in (session, interval)
            ]
            if values[0] <= values[1]:
                raise _refusal(f"{session} must be greater than {interval}")
    return parsed


def parse_duration(text: str) -> timedelta | None:
    """Return the duration in ``by_duration:PT1H``; None if it is invalid or negative."""
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION))
    if found is None or not text.startswith(_BY_DURATION):
        return None
    days, hours, minutes = (int(each or 0) for each in found.groups()[:3])
    seconds = float((found[4] or "0").replace(",", "."))
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return duration if duration >= timedelta() else None


def _parse(known: GroupSetting, text: str) -> str:
    """Return a value in Kafka's format; raise RequestError if it has the wrong type or form."""
    setting, stripped = known.setting, text.strip()
    if setting.type is SettingType.INT:
        try:
            number = int(setting.parse_number(text))
        except RequestError:
            raise _invalid(setting, text, "Not a number of type INT") from None
        if number < known.lowest:
            raise _invalid(setting, str(number), f"Value must be at least {known.lowest}")
        return str(number)
    if setting.type is SettingType.BOOLEAN:
        if stripped.lower() not in ("true", "false"):
            raise _invalid(setting, text, "Expected value to be either true or false")
        return stripped.lower()
    if setting.type is SettingType.LIST:
        items = [item.strip() for item in stripped.split(",")] if stripped else []
        if "" in items:
            raise _refusal(f"Configuration '{setting.name}' values must not be empty.")
        if len(set(items)) < len(items):
            raise _refusal(f"{setting.name} must not contain duplicate tag keys.")
        return ",".join(items)
    _check_word(setting, stripped)
    return stripped


def _check_word(setting: Setting, text: str) -> None:
    name = setting.name
    if name == "share.auto.offset.reset":
        if text not in ("earliest", "latest") and parse_duration(text) is None:
            wanted = "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'"
            reason = f"Invalid value `{text}` for configuration {name}. The value must be {wanted}."
            raise _invalid(setting, text, reason)
    elif name == "share.isolation.level":
        if text not in _ISOLATION_LEVELS:
            wanted = ", ".join(_ISOLATION_LEVELS)
            raise _invalid(setting, text, f"String must be one of: {wanted}")
    elif name == "errors.deadletterqueue.topic.name" and text.startswith(_INTERNAL_PREFIX):
        raise _refusal(f"{name}: DLQ topic name must not start with '{_INTERNAL_PREFIX}'")


def _check_limits(setting: Setting, text: str, broker_value: Callable[[str], str | None]) -> None:
    """Raise RequestError if the broker's settings do not allow a value."""
    kind, _, rest = setting.name.partition(".")
    low, high = (broker_value(f"group.{kind}.{end}.{rest}") for end in ("min", "max"))
    if low is not None and high is not None:
        if not int(low) <= int(text) <= int(high):
            raise _refusal(f"{setting.name} must be in the range {low} to {high} inclusive.")
    elif setting.name == "streams.num.standby.replicas":
        most = broker_value("group.streams.max.standby.replicas")
        if int(text) > int(most or 0):
            raise _refusal(f"{setting.name} must be less than or equal to {most}")
    elif setting.name == "streams.assignor.name":
        assignors = (broker_value(setting.broker_name) or "").split(",")
        if text not in assignors:
            raise _refusal(
                f"{setting.name} '{text}' is not a registered task assignor. Registered "
                f"assignors are: [{', '.join(assignors)}]."
            )


def _invalid(setting: Setting, text: str, reason: str) -> RequestError:
    return _refusal(f"Invalid value {text} for configuration {setting.name}: {reason}")


def _refusal(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_CONFIG, text)
