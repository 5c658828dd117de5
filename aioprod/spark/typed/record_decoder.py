"""Decodes one JSON value with the same result as Spark's ``from_json``, for values that Arrow
rejects.

As in Spark, fields of the wrong type are null, and the others are kept. Unlike in Spark, a value
that is not JSON has no fields: Spark keeps those before the error, and sometimes some after it.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from aioprod.spark.typed.times import TimeError, date_days, timestamp_micros

MAX_NUMBER_LENGTH: Final = 1000
"""The maximum length of a number, as in Jackson."""

Row = dict[str, Any]
_Converter = Callable[[Any], Any]

_SPACE = re.compile(r"[ \t\n\r]*")
# Spark reads a byte like Jackson: up to 255, with wraparound.
_RANGES: Final[dict[type[DataType], tuple[int, int]]] = {
    ByteType: (-128, 255),
    ShortType: (-(2**15), 2**15 - 1),
    IntegerType: (-(2**31), 2**31 - 1),
    LongType: (-(2**63), 2**63 - 1),
}
_NON_NUMERIC: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_EXACT = decimal.Context(prec=2100, rounding=decimal.ROUND_HALF_UP, Emax=10**9, Emin=-(10**9))
_SURROGATES = re.compile("[\ud800-\udfff]")
# Characters that are escaped in copied JSON.
_ODD_CHARACTER = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
# Java treats a surrogate in UTF-8 as one malformed character, Python as three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class ConversionError(ValueError):
    """A value does not have the field's type."""


class _PartialError(Exception):
    """A value is present, but a part of it has the wrong type."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Whole(str):
    """The digits of a whole number."""


class _Fraction(str):
    """The text of a number with a point or an exponent, or ``NaN`` or an infinity."""


class _Object(list[tuple[str, Any]]):
    """The members of an object; a name may occur twice."""


class RecordDecoder:
    """Decodes values according to a schema."""

    def __init__(
        self, schema: StructType, *, zone: datetime.tzinfo, allow_non_numeric: bool
    ) -> None:
        """``zone`` is the time zone of timestamps without one. ``allow_non_numeric`` accepts NaN
        and infinities, which is Spark's default.
        """
        self._zone = zone
        self._allow_non_numeric = allow_non_numeric
        self._fields = self._converters(schema)
        self._json = json.JSONDecoder(
            object_pairs_hook=_Object,
            parse_int=lambda text: _Whole(_checked(text)),
            parse_float=lambda text: _Fraction(_checked(text)),
            parse_constant=self._constant,
        )

    def decode(self, value: bytes) -> tuple[Row | None, bool]:
        """Return the fields that could be read, and whether the value is malformed. The fields are
        None for a blank value, which is not malformed.
        """
        text = _java_text(value)
        begin = _SPACE.match(text).end()  # type: ignore[union-attr]
        if begin == len(text):
            return None, False
        try:
            # As in Spark, text after the object is ignored.
            document, _ = self._json.raw_decode(text, begin)
            if not isinstance(document, _Object):
                return {}, True
            return _row(document, self._fields), False
        except _PartialError as partial:
            return partial.value, True
        except (ValueError, RecursionError):
            return {}, True

    def _constant(self, text: str) -> _Fraction:
        if not self._allow_non_numeric:
            raise ValueError(f"{text} is not allowed")
        return _Fraction(text)

    def _converters(self, schema: StructType) -> dict[str, _Converter]:
        return {field.name: self._converter(field.dataType) for field in schema.fields}

    def _converter(self, kind: DataType) -> _Converter:
        convert = self._kind_converter(kind)
        return lambda value: None if value is None else convert(value)

    def _kind_converter(self, kind: DataType) -> _Converter:
        if isinstance(kind, StructType):
            fields = self._converters(kind)
            return lambda value: _row(_checked_type(value, _Object), fields)
        if isinstance(kind, ArrayType):
            element = self._converter(kind.elementType)
            return lambda value: _array(value, element)
        if isinstance(kind, DecimalType):
            return lambda value: _decimal(value, kind)
        if type(kind) in _RANGES:
            return lambda value: _integer(value, kind)
        simple: dict[type[DataType], _Converter] = {
            BooleanType: lambda value: _checked_type(value, bool),
            DoubleType: self._double,
            FloatType: self._float,
            StringType: _string,
            DateType: _date,
            TimestampType: self._timestamp,
        }
        return simple[type(kind)]

    def _double(self, value: Any) -> float:
        if isinstance(value, _Whole):
            return float(value) + 0.0  # no negative zero
        return _fraction(value) if isinstance(value, _Fraction) else self._named_number(value)

    def _float(self, value: Any) -> float:
        if not isinstance(value, _Whole | _Fraction):
            return self._named_number(value)
        try:
            number = pa.scalar("0" if value == "-0" else str(value))
            found: float = number.cast(pa.float32()).as_py()  # rounded once
        except pa.ArrowInvalid:
            return math.copysign(math.inf, _fraction(value))
        return found

    def _named_number(self, value: Any) -> float:
        if not _is_text(value) or not self._allow_non_numeric or value not in _NON_NUMERIC:
            raise ConversionError
        return _NON_NUMERIC[value]

    def _timestamp(self, value: Any) -> int:
        if isinstance(value, _Whole):
            return (_integer(value, LongType()) * 1_000_000 + 2**63) % 2**64 - 2**63
        return _time(value, lambda text: timestamp_micros(text, self._zone))


def _java_text(value: bytes) -> str:
    """Decode UTF-8 like Java: malformed bytes become U+FFFD."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), value).decode(errors="replace")


def _checked(number: str) -> str:
    if len(number.lstrip("-")) > MAX_NUMBER_LENGTH:
        raise ValueError("a number is too long")
    return number


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _Whole | _Fraction)


def _checked_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ConversionError
    return value


def _row(members: _Object, fields: dict[str, _Converter]) -> Row:
    row: Row = {}
    malformed = False
    for name, value in members:
        if name not in fields:
            continue
        try:
            row[name] = fields[name](value)
        except _PartialError as partial:
            row[name] = partial.value
            malformed = True
        except ConversionError:
            malformed = True
    if malformed:
        raise _PartialError(row)
    return row


def _array(value: Any, element: _Converter) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, _Object):
        raise ConversionError
    values: list[Any] = []
    malformed = False
    for item in value:
        try:
            values.append(element(item))
        except _PartialError as partial:
            values.append(partial.value)
            malformed = True
    if malformed:
        raise _PartialError(values)
    return values


def _integer(value: Any, kind: DataType) -> int:
    least, most = _RANGES[type(kind)]
    if not isinstance(value, _Whole) or not least <= (number := int(value)) <= most:
        raise ConversionError
    return number - 256 if isinstance(kind, ByteType) and number > 127 else number


def _fraction(text: str) -> float:
    return _NON_NUMERIC[text] if text in _NON_NUMERIC else float(text)


def _date(value: Any) -> int:
    return _time(value, date_days)


def _time(value: Any, parse: Callable[[str], int]) -> int:
    if not _is_text(value):
        raise ConversionError
    try:
        return parse(value)
    except TimeError:
        raise ConversionError from None


def _decimal(value: Any, kind: DecimalType) -> decimal.Decimal:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ConversionError
    number = _EXACT.create_decimal(value)
    if number and number.adjusted() >= kind.precision - kind.scale:
        raise ConversionError
    if number.adjusted() < -kind.scale - 1:
        return decimal.Decimal(0)
    rounded = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise ConversionError
    return rounded if rounded else abs(rounded)


def _string(value: Any) -> str:
    return _SURROGATES.sub("?", value if _is_text(value) else _copied(value))


def _copied(value: Any) -> str:
    """Return a value as JSON, in the form of Jackson's generator."""
    if isinstance(value, _Object):
        return f"{{{','.join(f'{_quoted(name)}:{_copied(member)}' for name, member in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_copied, value))}]"
    if isinstance(value, _Whole):
        return str(int(value))
    if isinstance(value, _Fraction):
        return _java_double(_fraction(value))
    if isinstance(value, str):
        return _quoted(value)
    return {True: "true", False: "false", None: "null"}[value]


def _quoted(text: str) -> str:
    """Quote a string like Jackson's generator for UTF-8, which also escapes both surrogates of a
    character beyond 16 bits.
    """
    return f'"{_ODD_CHARACTER.sub(_escaped, text)}"'


_ESCAPED: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _escaped(found: re.Match[str]) -> str:
    char = found.group()
    if char in _ESCAPED:
        return _ESCAPED[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{high:02X}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True)
    )


def _java_double(number: float) -> str:
    """Return a number in the form of Java 19 and newer: with the fewest digits."""
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'
    sign, digits, exponent = decimal.Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + exponent - 1 if number else 0
    if -3 <= power < 7:
        padded = text.rjust(len(text) - power, "0") if power < 0 else text.ljust(power + 2, "0")
        whole = max(power, 0) + 1
        plain = f"{padded[:whole]}.{padded[whole:] or '0'}"
    else:
        plain = f"{text[0]}.{text[1:] or '0'}E{power}"
    return f"{'-' if sign else ''}{plain}"
