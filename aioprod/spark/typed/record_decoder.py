"""Decodes one JSON value as Spark's ``from_json`` does, malformed ones included.

The steps are those of Spark's ``JacksonParser``: an error in a field leaves the others, and where
Jackson reads on after an error decides which ones.
"""

from __future__ import annotations

import datetime
import decimal
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

from aioprod.spark.typed.json_tokens import MalformedError, Token, TokenReader
from aioprod.spark.typed.times import TimeError, date_days, timestamp_micros

Row = dict[str, Any]
_Converter = Callable[[TokenReader], Any]

_NUMBERS: Final = (Token.INTEGER, Token.FRACTION)
# Spark reads a byte as Jackson does: up to 255, and wraps.
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
# Written as an escape in a copy of JSON.
_ODD_CHARACTER = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
# Java takes a surrogate in UTF-8 for one malformed character, Python for three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class ConversionError(ValueError):
    """A token does not have the field's type."""


class _PartialError(Exception):
    """A value is there, but a part of it is malformed."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RecordDecoder:
    """Decodes values by a schema."""

    def __init__(
        self, schema: StructType, *, zone: datetime.tzinfo, allow_non_numeric: bool
    ) -> None:
        """``zone`` is that of timestamps without one; ``allow_non_numeric`` accepts NaN and
        infinities, as Spark does by default.
        """
        self._zone = zone
        self._allow_non_numeric = allow_non_numeric
        self._fields = self._converters(schema)

    def decode(self, value: bytes) -> tuple[Row | None, bool]:
        """Return the fields that could be read, and whether the value is malformed. The fields are
        None for a blank value, which is not malformed.
        """
        tokens = TokenReader(_java_text(value), allow_non_numeric=self._allow_non_numeric)
        try:
            if tokens.next() is None:
                return None, False
            if tokens.token is not Token.START_OBJECT:
                return {}, True
            return self._object(tokens, self._fields), False
        except _PartialError as partial:
            return partial.value, True
        except MalformedError:
            return {}, True

    def _converters(self, schema: StructType) -> dict[str, _Converter]:
        return {field.name: self._converter(field.dataType) for field in schema.fields}

    def _converter(self, kind: DataType) -> _Converter:
        convert = self._kind_converter(kind)

        def converter(tokens: TokenReader) -> Any:
            if tokens.token is Token.FIELD_NAME:
                tokens.next()
            if tokens.token in (None, Token.NULL):
                return None
            if tokens.token is Token.STRING:
                tokens.text()  # malformed text is found here
            return convert(tokens)

        return converter

    def _kind_converter(self, kind: DataType) -> _Converter:
        if isinstance(kind, StructType):
            fields = self._converters(kind)
            return lambda tokens: self._object(_opened(tokens, Token.START_OBJECT), fields)
        if isinstance(kind, ArrayType):
            element = self._converter(kind.elementType)
            return lambda tokens: _array(_opened(tokens, Token.START_ARRAY), element)
        if isinstance(kind, DecimalType):
            return lambda tokens: _decimal(tokens, kind)
        if type(kind) in _RANGES:
            return lambda tokens: _integer(tokens, kind)
        simple: dict[type[DataType], _Converter] = {
            BooleanType: _boolean,
            DoubleType: self._double,
            FloatType: self._float,
            StringType: _string,
            DateType: _date,
            TimestampType: self._timestamp,
        }
        return simple[type(kind)]

    def _object(self, tokens: TokenReader, fields: dict[str, _Converter]) -> Row:
        row: Row = {}
        malformed = False
        while (token := tokens.next()) is not None and token is not Token.END_OBJECT:
            name = tokens.current_name
            if name is None or name not in fields:
                tokens.skip_children()
                continue
            try:
                row[name] = fields[name](tokens)
            except _PartialError as partial:
                row[name] = partial.value
                malformed = True
            except (MalformedError, ConversionError):
                malformed = True
                tokens.skip_children()
        if malformed:
            raise _PartialError(row)
        return row

    def _double(self, tokens: TokenReader) -> float:
        if tokens.token is Token.INTEGER:
            number = int(tokens.text())
            return float(number) if abs(number) < 1 << 1023 else float(tokens.text())
        if tokens.token is Token.FRACTION:
            return _fraction(tokens.text())
        return self._named_number(tokens)

    def _float(self, tokens: TokenReader) -> float:
        if tokens.token not in _NUMBERS:
            return self._named_number(tokens)
        text = "0" if tokens.text() == "-0" else tokens.text()
        try:
            found: float = pa.scalar(text).cast(pa.float32()).as_py()
        except pa.ArrowInvalid:
            return math.copysign(math.inf, _fraction(text))
        return found

    def _named_number(self, tokens: TokenReader) -> float:
        if (
            tokens.token is not Token.STRING
            or not self._allow_non_numeric
            or tokens.text() not in _NON_NUMERIC
        ):
            raise ConversionError
        return _NON_NUMERIC[tokens.text()]

    def _timestamp(self, tokens: TokenReader) -> int:
        if tokens.token is Token.INTEGER:
            return (_integer(tokens, LongType()) * 1_000_000 + 2**63) % 2**64 - 2**63
        if tokens.token is not Token.STRING or not tokens.text():
            raise ConversionError
        try:
            return timestamp_micros(tokens.text(), self._zone)
        except TimeError:
            raise ConversionError from None


def _java_text(value: bytes) -> str:
    """Decode UTF-8 as Java does: malformed bytes become U+FFFD."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), value).decode(errors="replace")


def _opened(tokens: TokenReader, token: Token) -> TokenReader:
    if tokens.token is not token:
        raise ConversionError
    return tokens


def _array(tokens: TokenReader, element: _Converter) -> list[Any]:
    values: list[Any] = []
    malformed = False
    while (token := tokens.next()) is not None and token is not Token.END_ARRAY:
        try:
            values.append(element(tokens))
        except _PartialError as partial:
            values.append(partial.value)
            malformed = True
    if malformed:
        raise _PartialError(values)
    return values


def _boolean(tokens: TokenReader) -> bool:
    if tokens.token not in (Token.TRUE, Token.FALSE):
        raise ConversionError
    return tokens.token is Token.TRUE


def _integer(tokens: TokenReader, kind: DataType) -> int:
    least, most = _RANGES[type(kind)]
    if tokens.token is not Token.INTEGER or not least <= (number := int(tokens.text())) <= most:
        raise ConversionError
    return number - 256 if isinstance(kind, ByteType) and number > 127 else number


def _fraction(text: str) -> float:
    return _NON_NUMERIC[text] if text in _NON_NUMERIC else float(text)


def _date(tokens: TokenReader) -> int:
    if tokens.token is not Token.STRING or not tokens.text():
        raise ConversionError
    try:
        return date_days(tokens.text())
    except TimeError:
        raise ConversionError from None


def _decimal(tokens: TokenReader, kind: DecimalType) -> decimal.Decimal:
    if tokens.token not in (*_NUMBERS, Token.STRING) or not _DECIMAL.fullmatch(tokens.text()):
        raise ConversionError
    number = _EXACT.create_decimal(tokens.text())
    if number and number.adjusted() >= kind.precision - kind.scale:
        raise ConversionError
    if number.adjusted() < -kind.scale - 1:
        return decimal.Decimal(0)
    rounded = number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise ConversionError
    return rounded if rounded else abs(rounded)


def _string(tokens: TokenReader) -> str:
    if tokens.token is Token.STRING:
        return _utf8(tokens.text())
    return _utf8("".join(_copied(tokens)))


def _utf8(text: str) -> str:
    """Join the halves of characters in escapes; what remains is not a character."""
    if _SURROGATES.search(text) is None:
        return text
    return _SURROGATES.sub("?", _with_joined_halves(text))


def _with_joined_halves(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _copied(tokens: TokenReader) -> list[str]:
    """Write what the token opens as JSON, as Jackson's generator does."""
    if tokens.token in (Token.END_OBJECT, Token.END_ARRAY):
        raise ConversionError  # what is left of a malformed array or object
    parts: list[str] = []
    depth, separator = 0, ""
    while True:
        token = tokens.token
        if token in (Token.END_OBJECT, Token.END_ARRAY):
            depth -= 1
            parts.append(token.value)
            separator = ","
        elif token is Token.FIELD_NAME:
            parts += [separator, _quoted(tokens.current_name or ""), ":"]
            separator = ""
        elif token in (Token.START_OBJECT, Token.START_ARRAY):
            depth += 1
            parts += [separator, token.value]
            separator = ""
        elif token is not None:
            parts += [separator, _copied_scalar(tokens)]
            separator = ","
        if depth <= 0:
            return parts
        if tokens.next() is None:
            raise MalformedError("unexpected end")


def _copied_scalar(tokens: TokenReader) -> str:
    text = tokens.text()
    if tokens.token is Token.STRING:
        return _quoted(text)
    if tokens.token is Token.INTEGER:
        return str(int(text))
    if tokens.token is Token.FRACTION:
        return _java_double(_fraction(text))
    return text


def _quoted(text: str) -> str:
    """Quote as Jackson's generator for UTF-8 does: also both halves of a character beyond 16 bits
    become escapes.
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
    """Write a number as Java does since version 19: with the fewest digits."""
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
