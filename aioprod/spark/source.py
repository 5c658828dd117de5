"""The data source ``aioprod``, which Spark calls first.

Spark does so in a new process each time, so each method imports only what it needs: importing is
half of its time.
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
_VALUE_PLACE = 1
_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def source_columns(
    *, include_headers: bool, value_type: DataType | None = None, include_raw: bool = False
) -> StructType:
    """The columns of Spark's own Kafka source, name by name and type by type.

    Args:
        value_type: of ``value``, if values are decoded.
        include_raw: whether there is the column ``rawValue``.
    """
    columns = [*_COLUMNS, _HEADERS] if include_headers else [*_COLUMNS]
    if value_type is not None:
        columns[_VALUE_PLACE] = StructField("value", value_type)
    if include_raw:
        columns.append(StructField(RAW_VALUE, BinaryType()))
    return StructType(columns)


class KafkaDataSource(DataSource):
    """Kafka topics for ``spark.read``, ``spark.readStream``, ``df.write`` and ``df.writeStream``
    under ``format("aioprod")``.

    Options and columns are those of Spark's own Kafka connector. Reading:
    ``kafka.bootstrap.servers``, one of ``subscribe``, ``subscribePattern`` and ``assign``,
    ``startingOffsets`` and ``endingOffsets`` with their forms by timestamp,
    ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``minPartitions``, ``failOnDataLoss``,
    ``includeHeaders`` and more: see docs/spark.md. Writing: ``kafka.bootstrap.servers``, ``topic``.
    Further ``kafka.*`` options go to the client.

    Spark offers Python sinks the output modes append and complete, not update; write updates from
    ``foreachBatch`` with ``df.write``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))
        # Spark pickles this object after it has asked for the columns.
        self._found: tuple[RegisteredValue, DataType] | None = None

    @classmethod
    def name(cls) -> str:
        return "aioprod"

    def schema(self) -> StructType:
        from aioprod.spark.source_options import check_read_options

        if "topic" not in self.options:  # with a topic it is a view to write to
            # load() reports an invalid option; otherwise the stream would start and fail later.
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
        value, kind = found
        return source_columns(
            include_headers=headers, value_type=kind, include_raw=value.options.include_raw
        )

    def _registered(self) -> tuple[RegisteredValue, DataType] | None:
        """Return the schema of values and their type; ask the registry once for a read."""
        from aioprod.spark.source_options import registry_values

        if "topic" in self.options or (options := registry_values(self.options)) is None:
            return None
        if self._found is None:
            from aioprod.spark.registered.columns import spark_type
            from aioprod.spark.registered.schemas import fetch_schema

            value = fetch_schema(options)
            self._found = value, spark_type(value)
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
                f"the columns of a read are fixed: leave .schema(...) away, and select from {fixed}"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from aioprod.spark.sink import KafkaWriter
        from aioprod.spark.sink_columns import check_columns
        from aioprod.spark.sink_options import parse_sink_options, with_schema

        if overwrite:
            raise ConfigError('Kafka topics can only be appended to: use .mode("append")')
        options = with_schema(parse_sink_options(self.options), schema)
        check_columns(schema, options.topic, registered=options.registered is not None)
        return KafkaWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from aioprod.spark.sink import KafkaStreamWriter
        from aioprod.spark.sink_columns import check_columns
        from aioprod.spark.sink_options import parse_sink_options, with_schema

        # Output mode complete asks for overwriting; as in Spark's own sink each result is appended.
        options = with_schema(parse_sink_options(self.options, streaming=True), schema)
        check_columns(schema, options.topic, registered=options.registered is not None)
        return KafkaStreamWriter(options, schema)
