"""The data source ``aioprod``: the class that Spark calls first.

Spark does so in a new process each time, so each method imports only what it needs: imports take
half of the time.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aioprod.errors import ConfigError
from aioprod.spark.typed.options import RAW_VALUE

if TYPE_CHECKING:
    from aioprod.spark.registered.schemas import RegisteredValue
    from aioprod.spark.source_options import SourceOptions

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_KEY_PLACE, _VALUE_PLACE = 0, 1
_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def source_columns(
    *,
    include_headers: bool,
    value_type: DataType | None = None,
    key_type: DataType | None = None,
    include_raw: bool = False,
) -> StructType:
    """Return the columns, with the same names and types as those of Spark's own Kafka source.

    Args:
        value_type: the type of ``value``, if values are decoded.
        key_type: the type of ``key``, if keys are decoded.
        include_raw: True to add the column ``rawValue``.
    """
    columns = [*_COLUMNS, _HEADERS] if include_headers else [*_COLUMNS]
    if value_type is not None:
        columns[_VALUE_PLACE] = StructField("value", value_type)
    if key_type is not None:
        columns[_KEY_PLACE] = StructField("key", key_type)
    if include_raw:
        columns.append(StructField(RAW_VALUE, BinaryType()))
    return StructType(columns)


class KafkaDataSource(DataSource):
    """Kafka topics for ``spark.read``, ``spark.readStream``, ``df.write`` and ``df.writeStream``
    under ``format("aioprod")``.

    Options and columns are those of Spark's own Kafka connector. For reading:
    ``kafka.bootstrap.servers``, one of ``subscribe``, ``subscribePattern`` and ``assign``,
    ``startingOffsets`` and ``endingOffsets`` with their forms by timestamp,
    ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``minPartitions``, ``failOnDataLoss``,
    ``includeHeaders`` and others: see docs/spark.md. For writing: ``kafka.bootstrap.servers``,
    ``topic``. Further ``kafka.*`` options are passed to the client.

    Spark supports the output modes append and complete for Python sinks, but not update;
    `write_updates` writes in this mode.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        # Spark pickles this object after it has requested the columns.
        self._found: tuple[RegisteredValue, DataType, DataType | None] | None = None

    @classmethod
    def name(cls) -> str:
        return "aioprod"

    def schema(self) -> StructType:
        from aioprod.spark.source_options import check_read_options

        if "topic" not in self.options:  # with a topic, it is a view to write to
            # Invalid options are reported by load(); otherwise the stream would start and fail
            # later.
            check_read_options(self.options)
        return self._columns()

    def _columns(self) -> StructType:
        from aioprod.spark.source_options import typed_values, wants_headers

        headers = wants_headers(self.options)
        if (typed := typed_values(self.options)) is not None:
            return source_columns(
                include_headers=headers, value_type=typed.schema, include_raw=typed.include_raw
            )
        if (found := self._registered()) is None:
            return source_columns(include_headers=headers)
        value, value_type, key_type = found
        return source_columns(
            include_headers=headers,
            value_type=value_type,
            key_type=key_type,
            include_raw=value.options.include_raw,
        )

    def _registered(self) -> tuple[RegisteredValue, DataType, DataType | None] | None:
        """Return the schemas, the type of values, and that of keys if they have a schema. Request
        the schemas once per read.
        """
        from aioprod.spark.source_options import registry_values

        if "topic" in self.options or (options := registry_values(self.options)) is None:
            return None
        if self._found is None:
            from aioprod.spark.registered.columns import spark_type
            from aioprod.spark.registered.schemas import fetch_schema

            value = fetch_schema(options)
            key_type = None if value.key is None else spark_type(value.key)
            self._found = value, spark_type(value), key_type
        return self._found

    def _source_options(self, *, streaming: bool) -> SourceOptions:
        from aioprod.spark.source_options import parse_source_options

        options = parse_source_options(self.options, streaming=streaming)
        found = self._registered()
        return options if found is None else replace(options, registered=found[0])

    def reader(self, schema: StructType) -> DataSourceReader:
        from aioprod.spark.filters import in_pushdown_process
        from aioprod.spark.readers import FilteringReader, KafkaReader

        self._check_schema(schema)
        reader = FilteringReader if in_pushdown_process() else KafkaReader
        return reader(self._source_options(streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from aioprod.spark.readers import KafkaStreamReader

        self._check_schema(schema)
        return KafkaStreamReader(self._source_options(streaming=True))

    def _check_schema(self, schema: StructType) -> None:
        fixed = self._columns().simpleString()
        if schema.simpleString() != fixed:
            raise ConfigError(
                f"the columns of a read are fixed: omit .schema(...), and select from {fixed}"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from aioprod.spark.sink import KafkaWriter
        from aioprod.spark.sink_columns import check_columns
        from aioprod.spark.sink_options import parse_sink_options, with_schema

        if overwrite:
            raise ConfigError('Kafka topics can only be appended to: use .mode("append")')
        options = with_schema(parse_sink_options(self.options), schema)
        check_columns(schema, options.topic, registered=options.registered)
        return KafkaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from aioprod.spark.sink import KafkaStreamWriter
        from aioprod.spark.sink_columns import check_columns
        from aioprod.spark.sink_options import parse_sink_options, with_schema

        # Output mode complete requests overwriting; as in Spark's own sink, each result is
        # appended.
        options = with_schema(parse_sink_options(self.options, streaming=True), schema)
        check_columns(schema, options.topic, registered=options.registered)
        return KafkaStreamWriter(options, schema)
