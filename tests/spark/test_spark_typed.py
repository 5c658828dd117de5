"""Typed values of reads: the options and their errors, and reads in each mode."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession

from aioprod import ConfigError
from aioprod.spark.source import KafkaDataSource
from aioprod.spark.source_options import parse_source_options
from aioprod.spark.typed.decoder import ValueDecoder
from aioprod.spark.typed.options import parse_typed_options
from aioprod.spark.typed.record_decoder import RecordDecoder, Row
from aioprod.spark.typed.rows import TypedRows
from aioprod.testing import ThreadedCluster

from .source_topics import send

SCHEMA = "id BIGINT, at TIMESTAMP, _corrupt_record STRING"
GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "json"}
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
GOOD = b'{"id":1,"at":"2026-01-02T03:04:05Z"}'
BAD = b'{"id":"x","at":"2026-01-02T03:04:05Z"}'


def test_the_schema_is_known_from_the_options_alone() -> None:
    given = {**GIVEN, "value.schema": SCHEMA, "includeRawValue": "true", "includeHeaders": "true"}
    schema = KafkaDataSource(given).schema()
    assert schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,_corrupt_record:string>"
    )
    assert schema.names[-2:] == ["headers", "rawValue"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("id BIGINT", "struct<id:bigint>"),
        ("struct<id: int not null, `a b``c`: string comment 'x'>", "struct<id:int,a b`c:string>"),
        (
            "a ARRAY<STRUCT<b: DECIMAL(9, 3), c DATE>>, d decimal",
            "struct<a:array<struct<b:decimal(9,3),c:date>>,d:decimal(10,0)>",
        ),
    ],
)
def test_a_schema_is_ddl(schema: str, expected: str) -> None:
    typed = parse_source_options({**GIVEN, "value.schema": schema}, streaming=True).typed
    assert typed is not None and typed.schema.simpleString() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option value.schema is required with value.format=json, .* not inferred"),
        ({"value.schema": ""}, "option value.schema must be fields in DDL, got '': it ends"),
        ({"value.schema": "id MAP<STRING, INT>"}, "type MAP at 3 is not supported; supported are"),
        ({"value.schema": "id INT,"}, "it ends where a field's name is expected"),
        ({"value.schema": "id INT> , x INT"}, "unexpected '>' at 6"),
        ({"value.schema": "id INT; x"}, "unexpected character ';' at 6"),
        ({"value.schema": "id INT, id INT"}, "field id occurs twice"),
        ({"value.schema": "id DECIMAL(39,1)"}, "precision must be from 1 to 38"),
        ({"value.schema": "id " + "ARRAY<" * 33}, "nested deeper than 32 types"),
        ({"value.schema": "x" * 100_001}, "has 100001 characters, at most 100000 are allowed"),
        ({"value.schema": "_corrupt_record INT, a INT"}, "_corrupt_record must be a STRING"),
        ({"value.schema": "_corrupt_record STRING"}, "no field besides the corrupt-record column"),
        ({"value.schema": "id INT", "mode": "drop"}, "option mode must be permissive or .*'drop'"),
        ({"value.schema": "id INT", "timeZone": "Mars/X"}, "option timeZone must be .*'Mars/X'"),
        (
            {"value.schema": "id INT", "value.format": "xml"},
            "option value.format must be json or avro",
        ),
        ({"value.schema": "id INT", "columnNameOfCorruptRecord": " "}, "must be a column's name"),
    ],
)
def test_a_wrong_option_says_which_and_why(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaDataSource({**GIVEN, **options}).schema()


def test_options_of_typed_values_need_the_format() -> None:
    given = {name: text for name, text in GIVEN.items() if name != "value.format"}
    with pytest.raises(ConfigError, match=r"option mode requires value\.format=json"):
        KafkaDataSource({**given, "mode": "failfast"}).schema()


def decoder(**options: str) -> ValueDecoder:
    given = {"value.format": "json", "value.schema": SCHEMA, **options}
    typed = parse_typed_options(given)
    assert typed is not None
    return ValueDecoder(typed)


def test_usual_values_are_decoded_by_arrow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also next to a malformed one; without Arrow a value takes five times as long."""
    alone: list[bytes] = []
    decode = RecordDecoder.decode

    def counted(self: RecordDecoder, value: bytes) -> tuple[Row | None, bool]:
        alone.append(value)
        return decode(self, value)

    monkeypatch.setattr(RecordDecoder, "decode", counted)
    structs, malformed = decoder().decode(pa.array([GOOD] * 1000, pa.binary()))
    assert not alone and not malformed.any() and structs[999].as_py()["at"] == AT
    structs, malformed = decoder().decode(pa.array([GOOD] * 1000 + [BAD] + [GOOD] * 1000))
    assert [place for place, bad in enumerate(malformed) if bad] == [1000]
    assert structs[1000].as_py() == {"id": None, "at": AT, "_corrupt_record": BAD.decode()}
    assert structs[2000].as_py() == {"id": 1, "at": AT, "_corrupt_record": None}
    assert BAD in alone and len(alone) <= 8


def test_the_number_of_malformed_values_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    typed = parse_typed_options({"value.format": "json", "value.schema": SCHEMA})
    assert typed is not None
    rows = pa.record_batch(
        {
            "topic": ["t"] * 4,
            "partition": pa.array([3] * 4, pa.int32()),
            "offset": pa.array(range(4), pa.int64()),
            "value": pa.array([GOOD, BAD, None, b"{"], pa.binary()),
        }
    )
    assert TypedRows(typed).decode(rows).num_rows == 4
    assert caplog.messages == [
        "mode=permissive: t-3, offset 1: the value does not fit value.schema; "
        "2 of 4 values of this batch do not"
    ]


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":1,"x":' + b"[" * 100_000,
        b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id":' + b"9" * 100_000 + b"}",
        b'{"id":1,"x":1.' + b"9" * 100_000 + b"}",
        b'{"id":1,"x":"' + b"\\" * 100_001,
    ],
)
def test_a_hostile_json_value_is_malformed(value: bytes) -> None:
    structs, malformed = decoder().decode(pa.array([value], pa.binary()))
    assert malformed.all()
    assert structs[0].as_py() == {"id": None, "at": None, "_corrupt_record": value.decode()}


def load(session: SparkSession, broker: ThreadedCluster, **options: str) -> DataFrame:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "typed",
        "value.format": "json",
        "value.schema": SCHEMA,
    }
    return session.read.format("aioprod").options(**given, **options).load()


def ids(frame: DataFrame) -> list[Any]:
    return [row[0] for row in frame.orderBy("offset").select("value.id").collect()]


def test_modes_of_batch_and_stream(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    send(threaded_broker.bootstrap_servers, "typed", value=[GOOD, BAD, None, b"", GOOD])
    permissive = load(session, threaded_broker, includeRawValue="true").orderBy("offset").collect()
    assert [row["rawValue"] for row in permissive] == [GOOD, BAD, None, b"", GOOD]
    assert [row["value"] and row["value"]["_corrupt_record"] for row in permissive] == [
        *(None, BAD.decode(), None, None, None)
    ]
    assert ids(load(session, threaded_broker, mode="DROPMALFORMED")) == [1, None, None, 1]
    with pytest.raises(Exception, match=r"typed-0, offset 1: the value does not fit value\.schema"):
        ids(load(session, threaded_broker, mode="failfast"))
    stream = (
        session.readStream.format("aioprod")
        .option("kafka.bootstrap.servers", threaded_broker.bootstrap_servers)
        .options(subscribe="typed", startingOffsets="earliest")
        .options(**{"value.format": "json", "value.schema": SCHEMA})
        .load()
    )
    query = (
        stream.select("value.*")
        .writeStream.format("memory")
        .queryName("typed_stream")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert [row.id for row in session.table("typed_stream").collect()].count(1) == 2
