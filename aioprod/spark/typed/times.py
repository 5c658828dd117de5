"""Dates and timestamps in text, in the forms that Spark's casts and ``from_json`` without a pattern
accept, for the years 1 to 9999. Some of Spark's older forms are not supported: days since 1970 as
text, times of today without a date, and three-letter zones such as ``PST``.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import lru_cache
from typing import Final

_TRIMMED: Final = "".join(map(chr, [*range(0x21), 0x7F]))
_MAX_OFFSET_S = 18 * 3600
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_OFFSET = re.compile(r"([+-])(?:(\d{1,2})|(\d\d):(\d\d)(?::(\d\d))?|(\d\d)(\d\d)(\d\d)?)", re.ASCII)
_DATE = re.compile(r"\+?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_TIMESTAMP = re.compile(
    r"\+?(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T]"
    r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*|\..*)?)?)?)?)?)?",
    re.DOTALL | re.ASCII,
)


class TimeError(ValueError):
    """The text is not a date, a timestamp or a time zone."""


def date_days(text: str) -> int:
    """Return the days since 1970 of a date.

    Raises:
        TimeError: if the text is not a date.
    """
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise TimeError(text)
    year, month, day = (int(part or 1) for part in found.groups())
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH.toordinal()
    except ValueError:
        raise TimeError(text) from None


def timestamp_micros(text: str, zone: datetime.tzinfo) -> int:
    """Return the microseconds since 1970 of a timestamp; ``zone`` is the time zone of text without
    one.

    Raises:
        TimeError: if the text is not a timestamp.
    """
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise TimeError(text)
    year, month, day, hour, minute, second, fraction, named = found.groups()
    if named is not None:
        zone = time_zone(named.strip(_TRIMMED))
    try:
        # If a clock goes back, use the earlier time, as in Java.
        moment = datetime.datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=zone,
        )
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        raise TimeError(text) from None


@lru_cache(maxsize=256)
def time_zone(name: str) -> datetime.tzinfo:
    """Return the time zone that a name means in Spark.

    Raises:
        TimeError: if it is unknown.
    """
    name = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1, flags=re.ASCII)
    name = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", name, flags=re.ASCII)
    if name in ("Z", "UTC", "GMT", "UT"):
        return datetime.UTC
    for prefix in ("", "UTC", "GMT", "UT"):
        if name.startswith((f"{prefix}+", f"{prefix}-")):
            return _offset(name.removeprefix(prefix))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise TimeError(name) from None


def _offset(text: str) -> datetime.tzinfo:
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise TimeError(text)
    sign, hour, *rest = found.groups()
    hours, minutes, seconds = (
        (int(hour), 0, 0)
        if hour
        else (int(part or 0) for part in (rest[:3] if rest[0] else rest[3:]))
    )
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MAX_OFFSET_S:
        raise TimeError(text)
    return datetime.timezone(datetime.timedelta(seconds=-total if sign == "-" else total))
