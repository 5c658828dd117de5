"""The options for typed values: ``value.format`` and related ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql.types import StringType, StructType

from aioprod.errors import ConfigError
from aioprod.spark.json_options import shown
from aioprod.spark.options import TYPED_NAMES, boolean, choice
from aioprod.spark.registered.options import FORMATS
from aioprod.spark.typed.ddl import SchemaError, parse_schema
from aioprod.spark.typed.times import TimeError, time_zone

VALUE_FORMAT: Final = "value.format"
VALUE_SCHEMA: Final = "value.schema"
CORRUPT_COLUMN: Final = "columnNameOfCorruptRecord"
DEFAULT_CORRUPT_COLUMN: Final = "_corrupt_record"
RAW_VALUE: Final = "rawValue"
MAX_SCHEMA_LENGTH: Final = 100_000
"""The maximum length of ``value.schema`` in characters."""

_MODES: Final = ("permissive", "dropmalformed", "failfast")


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """The decoding of values.

    Attributes:
        schema: the fields of the column ``value``, including the corrupt-record column if
            requested.
        mode: the result of malformed values: their readable fields (``permissive``), no row
            (``dropmalformed``), or an error (``failfast``).
        corrupt_column: the field for the text of a malformed value, if the schema has it.
        time_zone: the zone of timestamps without one.
        allow_non_numeric: True if NaN and infinities are accepted as numbers.
        include_raw: add the column ``rawValue`` with the undecoded bytes.
    """

    schema: StructType
    mode: Literal["permissive", "dropmalformed", "failfast"] = "permissive"
    corrupt_column: str = DEFAULT_CORRUPT_COLUMN
    time_zone: str = "UTC"
    allow_non_numeric: bool = True
    include_raw: bool = False

    @property
    def decoded_schema(self) -> StructType:
        """The fields that are read from the value."""
        return StructType(
            [field for field in self.schema.fields if field.name != self.corrupt_column]
        )


def parse_typed_options(given: Mapping[str, str]) -> TypedOptions | None:
    """Validate the options of typed JSON values; return None for another ``value.format``.

    Args:
        given: the options of a read, with names in lower case.

    Raises:
        ConfigError: if an option is missing, malformed or without effect; the message names it.
    """
    if VALUE_FORMAT not in given:
        for name in TYPED_NAMES:
            if name.lower() in given:
                raise ConfigError(f"option {name} requires {VALUE_FORMAT}=json")
        return None
    if choice(given, VALUE_FORMAT, ("json", *FORMATS)) != "json":
        return None
    corrupt = given.get(CORRUPT_COLUMN.lower(), DEFAULT_CORRUPT_COLUMN)
    if not corrupt.strip():
        raise ConfigError(f"option {CORRUPT_COLUMN} must be a column's name, got {corrupt!r}")
    schema = _schema(given, corrupt)
    zone = given.get("timezone", "UTC").strip()
    try:
        time_zone(zone)
    except TimeError:
        raise ConfigError(
            f"option timeZone must be a time zone such as UTC, +02:00 or Europe/Berlin, "
            f"got {shown(zone)}"
        ) from None
    return TypedOptions(
        schema=schema,
        mode=choice(given, "mode", _MODES),  # type: ignore[arg-type]
        corrupt_column=corrupt,
        time_zone=zone,
        allow_non_numeric=boolean(given, "allowNonNumericNumbers", default=True),
        include_raw=boolean(given, "includeRawValue", default=False),
    )


def _schema(given: Mapping[str, str], corrupt: str) -> StructType:
    text = given.get(VALUE_SCHEMA)
    if text is None:
        raise ConfigError(
            f'option {VALUE_SCHEMA} is required with {VALUE_FORMAT}=json, for example "id BIGINT, '
            'at TIMESTAMP"; the schema is not inferred, since a topic may have other records when '
            "a query starts again"
        )
    if len(text) > MAX_SCHEMA_LENGTH:
        raise ConfigError(
            f"option {VALUE_SCHEMA} has {len(text)} characters, at most {MAX_SCHEMA_LENGTH} are "
            "allowed"
        )
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        raise ConfigError(
            f"option {VALUE_SCHEMA} must be fields in DDL, got {shown(text)}: {error}"
        ) from None
    for field in schema.fields:
        if field.name == corrupt and not isinstance(field.dataType, StringType):
            raise ConfigError(
                f"option {VALUE_SCHEMA}: the corrupt-record column {corrupt} must be a STRING, "
                f"got {field.dataType.simpleString()}"
            )
    if all(field.name == corrupt for field in schema.fields):
        raise ConfigError(
            f"option {VALUE_SCHEMA}={shown(text)} has no field besides the corrupt-record column"
        )
    return schema
