"""Dates and timestamps in text, as Spark's casts and ``from_json`` without a pattern read them."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import lru_cache
from typing import Final

_TRIMMED: Final = bytes([*range(0x21), 0x7F])
_EPOCH_DAYS = datetime.date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the Gregorian calendar repeats
_DAY_S = 86_400
_MAX_OFFSET_S = 18 * 3600
_INT = re.compile("[+-]?[0-9]{1,10}")
_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_OFFSET = re.compile(r"([+-])(?:(\d{1,2})|(\d\d):(\d\d)(?::(\d\d))?|(\d\d)(\d\d)(\d\d)?)", re.ASCII)
# Java's ZoneId.SHORT_IDS
_SHORT_ZONES: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


class TimeError(ValueError):
    """The text is not a date, a timestamp or a time zone."""


def date_days(text: str) -> int:
    """Return the days since 1970 of a date.

    Raises:
        TimeError: if the text is not a date.
    """
    for variant in (text, text.replace("GMT", "")):
        if (days := _date(variant.encode(errors="replace"))) is not None:
            return days
    # Spark 1.5 wrote days since 1970.
    if not _INT.fullmatch(text) or not -_MAX_INT - 1 <= int(text) <= _MAX_INT:
        raise TimeError(text)
    return _from_julian(int(text))


def timestamp_micros(text: str, zone: datetime.tzinfo) -> int:
    """Return the microseconds since 1970 of a timestamp; ``zone`` is that of text without one. A
    time without a date is of today.

    Raises:
        TimeError: if the text is not a timestamp, or is beyond 64 bits.
    """
    try:
        return _timestamp(text, zone)
    except TimeError:
        return _timestamp(text.replace("GMT", ""), zone)


@lru_cache(maxsize=256)
def time_zone(name: str) -> datetime.tzinfo:
    """Return the time zone that Spark takes the name for.

    Raises:
        TimeError: if it is unknown.
    """
    name = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1, flags=re.ASCII)
    name = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", name, flags=re.ASCII)
    name = _SHORT_ZONES.get(name, name)
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


def _date(data: bytes) -> int | None:
    data = data.strip(_TRIMMED)
    found = re.fullmatch(
        rb"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", data, re.DOTALL | re.ASCII
    )
    if found is None:
        return None
    sign, year, month, day = found.groups()
    try:
        days = _days(int(sign + year), int(month or 1), int(day or 1))
    except TimeError:
        return None
    return days if abs(days) <= _MAX_INT else None


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970; Python's dates end at the year 9999."""
    cycles, within = divmod(year, _CYCLE_YEARS)
    try:
        ordinal = datetime.date(within + _CYCLE_YEARS, month, day).toordinal()
    except ValueError:
        raise TimeError(f"{year}-{month}-{day}") from None
    return ordinal + (cycles - 1) * _CYCLE_DAYS - _EPOCH_DAYS


_SEGMENTS = re.compile(
    rb"(?:([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T]TIME)?)?)?|T?TIME)".replace(
        b"TIME", rb"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*|\..*)?)?)?"
    ),
    re.DOTALL | re.ASCII,
)


def _timestamp(text: str, zone: datetime.tzinfo) -> int:
    data = text.encode(errors="replace").strip(_TRIMMED)
    found = _SEGMENTS.fullmatch(data)
    if found is None:
        raise TimeError(text)
    sign, year, month, day, *times = found.groups()
    just_time = year is None
    hour, minute, second, fraction, named = times[5:] if just_time else times[:5]
    if just_time and (not text.startswith("T") if data.startswith(b"T") else minute is None):
        raise TimeError(text)
    if named is not None:
        zone = time_zone(named.decode().strip(_TRIMMED.decode("latin-1")))
    clock = [int(part or 0) for part in (hour, minute, second)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise TimeError(text)
    seconds_of_day = clock[0] * 3600 + clock[1] * 60 + clock[2]
    if just_time:
        today = datetime.datetime.now(zone).date()
        date = (today.year, today.month, today.day)
    else:
        date = (int(sign + year), int(month or 1), int(day or 1))
    local = _days(*date) * _DAY_S + seconds_of_day
    micros = (local - _offset_s(date[0], local, zone)) * 1_000_000
    micros += int((fraction or b"0")[:6].ljust(6, b"0"))
    if not -_MAX_LONG - 1 <= micros <= _MAX_LONG:
        raise TimeError(text)
    return micros


def _offset_s(year: int, local_s: int, zone: datetime.tzinfo) -> int:
    """Return a zone's offset at a local time in seconds, the earlier one where a clock goes back,
    as Java does.
    """
    if 1 < year < 9999:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=local_s)
    else:
        cycle_s = _CYCLE_DAYS * _DAY_S
        shift = 0 if year <= 1 else (year - 9600) // _CYCLE_YEARS
        moment = (
            datetime.datetime(2, 1, 1)
            if year <= 1
            else datetime.datetime(1970, 1, 1)
            + datetime.timedelta(seconds=local_s - shift * cycle_s)
        )
    offset = moment.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _from_julian(days: int) -> int:
    """Turn days that were counted in the Julian calendar until 1582-10-15 into Gregorian ones."""
    if days >= -141_427:
        return days
    # Richards' algorithm for Julian day numbers.
    number = days + 2_440_588 + 1401
    cycle = 4 * number + 3
    within = 5 * (cycle % 1461 // 4) + 2
    day = within % 153 // 5 + 1
    month = (within // 153 + 2) % 12 + 1
    year = cycle // 1461 - 4716 + (14 - month) // 12
    return _days(year, month, 1) + day - 1
