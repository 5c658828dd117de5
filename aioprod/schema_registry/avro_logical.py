"""Avro's logical types: converts Python values to the underlying types, and back."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from aioprod.decoding_limits import DecodingLimits, beyond
from aioprod.schema_registry.avro_nodes import AvroNode

Convert = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)
_FIRST_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_PER_SECOND: Final[Mapping[str, int]] = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact]
)

EXPECTED: Final[Mapping[str, str]] = {
    "decimal": "decimal.Decimal",
    "date": "datetime.date",
    "time-millis": "datetime.time",
    "time-micros": "datetime.time",
    "uuid": "uuid.UUID",
    "timestamp-nanos": "an int of nanoseconds, or datetime.datetime",
    "local-timestamp-nanos": "an int of nanoseconds, or datetime.datetime without a time zone",
    **{
        f"{kind}-{unit}": f"datetime.datetime{suffix}"
        for kind, suffix in (("timestamp", ""), ("local-timestamp", " without a time zone"))
        for unit in ("millis", "micros")
    },
}
"""The Python types that a logical type is written from."""


def unit_of(logical: str | None) -> tuple[str, int] | None:
    """Return the kind of a logical type, and its units per second; None if it does not count
    fractions of a second.
    """
    name, _, unit = (logical or "").rpartition("-")
    return (name, _PER_SECOND[unit]) if unit in _PER_SECOND else None


def to_underlying(node: AvroNode, value: Any) -> Any:
    """Convert a value to the underlying type. A value of that type is returned unchanged.

    Raises:
        TypeError: if the value can't be converted to the logical type.
        ValueError: if the value does not fit.
    """
    if node.logical == "decimal":
        return _unscaled(node, value)
    if node.logical == "uuid":
        return _uuid(node, value)
    if node.logical == "date":
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value.toordinal() - _FIRST_DAY
        if isinstance(value, str):  # fastavro and confluent-kafka accept it, too
            return _day(value) - _FIRST_DAY
    elif (unit := unit_of(node.logical)) is not None:
        kind, per_second = unit
        if isinstance(value, datetime.time) and kind == "time":
            return _time(value, per_second)
        if isinstance(value, datetime.datetime) and kind != "time":
            return _timestamp(value, kind, per_second)
    return value


def _day(text: str) -> int:
    try:
        return datetime.date.fromisoformat(text).toordinal()
    except ValueError:
        raise TypeError("expected datetime.date, got a str that is not an ISO 8601 date") from None


def _time(value: datetime.time, per_second: int) -> int:
    if value.tzinfo is not None:
        raise TypeError("expected a time without a time zone, as Avro's times have none")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * per_second + value.microsecond * per_second // 10**6


def _timestamp(value: datetime.datetime, kind: str, per_second: int) -> int:
    if kind == "local-timestamp":
        if value.tzinfo is not None:
            raise TypeError("expected a datetime without a time zone, got one with a time zone")
        since = value - _LOCAL_EPOCH
    else:
        # As in Python, a datetime without a time zone is in this machine's time zone.
        since = (value if value.tzinfo is not None else value.astimezone()) - _EPOCH
    return since // _MICROSECOND * per_second // 10**6


def _uuid(node: AvroNode, value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value) if node.kind == "string" else value.bytes
    if isinstance(value, str):
        try:
            found = uuid.UUID(value)
        except ValueError:
            raise ValueError("expected a UUID, got a string that is not a UUID") from None
        return value if node.kind == "string" else found.bytes
    return value


def _unscaled(node: AvroNode, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = decimal.Decimal(value)
    if not isinstance(value, decimal.Decimal):
        return value
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"expected {node}, got {value}, which is not finite")
    shift = exponent + node.scale
    if not any(digits):
        return unscaled_bytes(node, 0)
    if shift < 0 and any(digits[shift:]):
        raise ValueError(f"expected {node}, got {-exponent} digits after the decimal point")
    if (before := value.adjusted() + 1) > node.precision - node.scale:
        raise ValueError(f"expected {node}, got {before} digits before the decimal point")
    number = int(value.scaleb(node.scale, _EXACT))
    return unscaled_bytes(node, number)


def unscaled_bytes(node: AvroNode, number: int) -> bytes:
    """Return the bytes of a decimal.

    Raises:
        ValueError: if a fixed type is too small.
    """
    size = node.size if node.kind == "fixed" else (number.bit_length() + 8) // 8
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ValueError(f"expected {node}, got a number of more than {size} bytes") from None


def decimal_reader(scale: int, limits: DecodingLimits) -> Convert:
    """Return a function that converts bytes to a decimal. It keeps all digits, even beyond the
    precision, as Java does.
    """
    from_bytes, make, exact = int.from_bytes, decimal.Decimal, _EXACT
    digits = limits.max_decimal_digits
    most = 1 + math.ceil(digits * math.log2(10) / 8)

    def read(data: bytes) -> decimal.Decimal:
        if len(data) > most:  # the time grows with the square of their number
            raise beyond("digits in a decimal", "max_decimal_digits", digits)
        return make(from_bytes(data, "big", signed=True)).scaleb(-scale, exact)

    return read


def with_scale(node: AvroNode, value: decimal.Decimal) -> decimal.Decimal:
    """Return a decimal with another type's scale.

    Raises:
        ValueError: if this would lose digits.
    """
    try:
        return value.quantize(decimal.Decimal((0, (1,), -node.scale)), context=_EXACT)
    except decimal.Inexact:
        raise ValueError(
            f"a decimal with more digits after the decimal point than {node}"
        ) from None


def uuid_from_bytes(data: bytes) -> uuid.UUID:
    """Convert a fixed of 16 bytes to a UUID."""
    return uuid.UUID(bytes=data)


def time_of_day(count: int, per_second: int) -> datetime.time:
    """Convert a count of units since midnight to a time.

    Raises:
        ValueError: if it is not within a day.
    """
    seconds, rest = divmod(count, per_second)
    if not 0 <= seconds < 86_400:
        raise ValueError(f"{count} is not a time of day")
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return datetime.time(hour, minute, second, rest * 10**6 // per_second)


def moment(count: int, kind: str, per_second: int) -> datetime.datetime:
    """Convert a count of units since 1970 to a datetime.

    Raises:
        ValueError: if the year is out of Python's range.
    """
    epoch = _EPOCH if kind == "timestamp" else _LOCAL_EPOCH
    try:
        return epoch + datetime.timedelta(microseconds=count * 10**6 // per_second)
    except OverflowError:
        raise ValueError(f"{count} is outside the years 1 to 9999 that Python supports") from None
