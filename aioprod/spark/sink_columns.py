"""The columns that a write accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from aioprod.errors import ConfigError

if TYPE_CHECKING:
    from aioprod.spark.registered.schemas import RegisteredValue

_COLUMN_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType, ShortType, ByteType, LongType),
}


def check_columns(
    schema: StructType, topic: str | None, *, registered: RegisteredValue | None = None
) -> None:
    """Validate the columns of a write, on the driver before anything is sent.

    Args:
        registered: the schema that ``value`` is encoded with, and maybe one for ``key``; both have
            been checked against it.

    Raises:
        ConfigError: if ``value`` is missing, there is neither a column nor an option ``topic``, or
            a column has the wrong type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigError(
            "the column value (string or binary) is required; the data has "
            f"{', '.join(types) or 'no columns'}"
        )
    if topic is None and "topic" not in types:
        raise ConfigError("no topic: set the option topic, or add a string column topic")
    for name, allowed in _COLUMN_TYPES.items():
        if registered and (name == "value" or (name == "key" and registered.key)):
            continue
        if name in types and not isinstance(types[name], allowed):
            wanted = " or ".join(kind().simpleString() for kind in allowed[:2])
            raise ConfigError(
                f"the column {name} must be {wanted}, it is {types[name].simpleString()}"
            )
    headers = types.get("headers")
    if headers is not None and not _is_header_type(headers):
        raise ConfigError(
            "the column headers must be array<struct<key:string,value:binary>>, it is "
            f"{headers.simpleString()}"
        )


def _is_header_type(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(field.name, field.dataType) for field in given.elementType.fields]
    return fields == [("key", StringType()), ("value", BinaryType())]
