"""Records to Arrow and back, compared with Spark's own conversion of the declared columns."""

from __future__ import annotations

import datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from aioprod import ConfigError, CorruptRecordError
from aioprod.protocol.arrow_reader import RecordArrays, read_arrays
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.record_batch import set_base_offset
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.spark.arrow import NoTopicError, arrow_schema, by_topic, payload_bytes, source_rows
from aioprod.spark.committing import summary
from aioprod.spark.exactly_once.reports import Written
from aioprod.spark.sink_columns import check_columns
from aioprod.spark.source import source_columns

HEADERS = source_columns(include_headers=True)["headers"].dataType
TEXT, BYTES = T.StringType(), T.BinaryType()


def columns(**types: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_schema_is_what_spark_demands_for_the_declared_columns(
    include_headers: bool,
) -> None:
    declared = source_columns(include_headers=include_headers)
    assert to_arrow_schema(declared, timezone="UTC").equals(
        arrow_schema(include_headers=include_headers)
    )


def records(timestamps: list[int], include_headers: bool) -> RecordArrays:
    """Records from offset 5 on, the last with headers, and all in one batch."""
    writer = RecordBatchWriter(timestamps[0])
    for number, timestamp in enumerate(timestamps):
        writer.append(
            timestamp,
            None if number else b"a",
            b"y" * number,
            [("h", b"1"), ("h", None)] if number else [],
        )
    data = bytearray(writer.build())
    set_base_offset(data, 0, 5, 0)
    (arrays,) = read_arrays(bytes(data), iter_batches(data), include_headers=include_headers)
    return arrays


@pytest.mark.parametrize("include_headers", [False, True])
def test_records_become_rows(include_headers: bool) -> None:
    batch = source_rows(records([1_000, 2_500], include_headers), "t", 3)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(include_headers=include_headers))
    first, second = batch.to_pylist()
    assert (first["key"], first["value"], first["offset"], first.pop("headers", None)) == (
        b"a",
        b"",
        5,
        None,
    )
    assert second.pop("headers", None) == (
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if include_headers else None
    )
    assert second == {
        "key": None,
        "value": b"y",
        "topic": "t",
        "partition": 3,
        "offset": 6,
        "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=datetime.UTC),
        "timestampType": 0,
    }


def test_a_time_that_spark_cannot_keep_is_named() -> None:
    with pytest.raises(CorruptRecordError, match=r"t-3, offsets 5 to 6: .*out of bounds"):
        source_rows(records([0, 2**60], False), "t", 3)


def test_sink_columns_of_text_and_bytes() -> None:
    headers = pa.array(
        [[{"key": "a", "value": b"1"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["é", None]),
            pa.array([None, b"\xff"]),
            pa.array([1, None], pa.int32()),
            headers,
            pa.array([1, 2]),
        ],
        names=["value", "key", "partition", "headers", "other"],
    )
    ((topic, numbers, rows),) = by_topic(batch, "t")
    assert (topic, list(numbers), rows.schema.names) == (
        "t",
        [0, 1],
        ["value", "key", "partition", "headers"],
    )
    assert rows.column("value").to_pylist() == ["é", None]
    assert payload_bytes(batch) == 3


def test_the_option_topic_wins_over_the_column() -> None:
    batch = pa.record_batch({"value": ["x", "y"], "topic": ["a", None]})
    assert [(topic, list(numbers)) for topic, numbers, _ in by_topic(batch, "t")] == [("t", [0, 1])]
    with pytest.raises(NoTopicError) as caught:
        list(by_topic(batch, None))
    assert caught.value.args == (1,)


def test_rows_are_parted_by_topic_in_their_order() -> None:
    batch = pa.record_batch({"value": ["1", "2", "3", "4"], "topic": ["b", "a", "b", "b"]})
    parts = [
        (topic, list(numbers), rows.column("value").to_pylist())
        for topic, numbers, rows in by_topic(batch, None)
    ]
    assert parts == [("b", [0, 2, 3], ["1", "3", "4"]), ("a", [1], ["2"])]


@pytest.mark.parametrize(
    ("given", "topic", "message"),
    [
        (
            columns(key=TEXT),
            "t",
            r"the column value \(string or binary\) is required; the data has key",
        ),
        (columns(value=TEXT), None, "set the option topic, or add a string column topic"),
        (
            columns(value=T.IntegerType()),
            "t",
            "the column value must be string or binary, it is int",
        ),
        (
            columns(value=TEXT, key=T.LongType()),
            "t",
            "the column key must be string or binary, it is bigint",
        ),
        (
            columns(value=TEXT, topic=T.IntegerType()),
            "t",
            "the column topic must be string, it is int",
        ),
        (
            columns(value=TEXT, partition=TEXT),
            "t",
            "the column partition must be int or smallint, it is string",
        ),
        (
            columns(value=TEXT, headers=T.MapType(TEXT, BYTES)),
            "t",
            "the column headers must be array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_wrong_columns_of_a_write_are_named(
    given: T.StructType, topic: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_columns(given, topic)


def test_right_columns_of_a_write() -> None:
    check_columns(
        columns(
            value=BYTES, key=TEXT, partition=T.IntegerType(), headers=HEADERS, other=T.DateType()
        ),
        "t",
    )
    check_columns(columns(value=TEXT, topic=TEXT), None)


def test_commit_messages_are_summed_up() -> None:
    assert (
        summary([Written(3, 30), None, Written(4, 41)])
        == "7 rows of 71 bytes written by 2 of 3 tasks"
    )
