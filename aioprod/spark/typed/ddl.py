"""Parses a schema in Spark's DDL without the JVM, which the processes that plan a read do not
have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

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
    StructField,
    StructType,
    TimestampType,
)

_SIMPLE: Final[dict[str, Callable[[], DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
}
SUPPORTED: Final = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, date, "
    "timestamp, array<...> and struct<...>"
)
MAX_DEPTH: Final = 32
"""The maximum depth of nested types."""

_MAX_PRECISION = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<sign>[<>(),:]))"
)


class SchemaError(ValueError):
    """The text is not a schema, or it names a type that is not supported."""


def parse_schema(text: str) -> StructType:
    """Parse fields, as in ``"id BIGINT, at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING>>"``, or one
    type ``struct<...>``. All fields are nullable, as those of ``from_json`` are.

    Raises:
        SchemaError: if it is not such a schema; the message has the position.
    """
    reader = _Reader(text)
    if reader.next_is("struct", "<"):
        found = reader.data_type(1)
        assert isinstance(found, StructType)
    else:
        found = StructType(reader.fields(1, end=None))
    reader.expect_end()
    if not found.fields:
        raise SchemaError("it has no field")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        place = 0
        while place < len(text.rstrip()):
            found = _TOKEN.match(text, place)
            if found is None:
                raise SchemaError(f"unexpected character {text[place:].strip()[:1]!r} at {place}")
            assert found.lastgroup is not None
            self._tokens.append(
                (found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            )
            place = found.end()
        self._at = 0

    def next_is(self, *texts: str) -> bool:
        """Return whether the next tokens are these, ignoring case."""
        upcoming = self._tokens[self._at : self._at + len(texts)]
        return [text.lower() for _, text, _ in upcoming] == list(texts)

    def fields(self, depth: int, end: str | None) -> list[StructField]:
        """Parse fields up to the character ``end``, or to the end of the text."""
        found: list[StructField] = []
        if end is not None and self.next_is(end):
            return found
        while True:
            name = self._name()
            if name in (field.name for field in found):
                raise SchemaError(f"field {name} occurs twice")
            self._skip(":")
            found.append(StructField(name, self.data_type(depth)))
            self._skip_details()
            if not self._skip(","):
                return found

    def data_type(self, depth: int) -> DataType:
        """Parse a type."""
        if depth > MAX_DEPTH:
            raise SchemaError(f"it is nested deeper than {MAX_DEPTH} types")
        kind, text, place = self._take("a type")
        name = text.lower() if kind == "word" else ""
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self.data_type(depth + 1)
            self._expect(">")
            return ArrayType(element)
        if name == "struct":
            self._expect("<")
            fields = self.fields(depth + 1, end=">")
            self._expect(">")
            return StructType(fields)
        raise SchemaError(f"type {text} at {place} is not supported; supported are {SUPPORTED}")

    def expect_end(self) -> None:
        """Raise SchemaError unless all tokens are read."""
        if self._at < len(self._tokens):
            _, text, place = self._tokens[self._at]
            raise SchemaError(f"unexpected {text!r} at {place}")

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise SchemaError(
                f"decimal({precision},{scale}): the precision must be from 1 to {_MAX_PRECISION}, "
                "the scale at most the precision"
            )
        return DecimalType(precision, scale)

    def _number(self) -> int:
        _, text, place = self._take("a number")
        if not re.fullmatch("[0-9]{1,9}", text):
            raise SchemaError(f"a number is expected at {place}, found {text!r}")
        return int(text)

    def _name(self) -> str:
        kind, text, place = self._take("a field's name")
        if kind == "quoted":
            return text[1:-1].replace("``", "`")
        if kind != "word":
            raise SchemaError(f"a field's name is expected at {place}, found {text!r}")
        return text

    def _skip_details(self) -> None:
        """Skip NOT NULL, which from_json ignores, too, and comments."""
        if self.next_is("not", "null"):
            self._at += 2
        if self.next_is("comment"):
            self._at += 1
            self._take("a comment's text")

    def _take(self, expected: str) -> tuple[str, str, int]:
        if self._at == len(self._tokens):
            raise SchemaError(f"it ends where {expected} is expected")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, sign: str) -> bool:
        if not self.next_is(sign):
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        _, text, place = self._take(repr(sign))
        if text != sign:
            raise SchemaError(f"{sign!r} is expected at {place}, found {text!r}")
