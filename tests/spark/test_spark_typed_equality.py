"""Typed values of the source equal those of Spark's ``from_json``, the corrupt column included.

Two kinds of values differ, and both are malformed for the source: text that is not JSON has no
fields, and old forms of dates and times are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from aioprod.spark.typed.decoder import ValueDecoder
from aioprod.spark.typed.options import parse_typed_options

SCHEMAS = [
    "a DOUBLE, b INT, c BIGINT, d STRING, _corrupt_record STRING",
    "a TIMESTAMP, b DATE, c BOOLEAN, d STRING",
    "_corrupt_record STRING, a FLOAT, b TINYINT, c SMALLINT, d DECIMAL(9,3)",
    "a STRUCT<a: INT, b: ARRAY<STRUCT<a: DOUBLE, c: TIMESTAMP>>>, b ARRAY<INT>, "
    "c ARRAY<ARRAY<STRING>>, d DATE, _corrupt_record STRING",
]
#: As text: JSON has forms that Python does not write.
SCALARS = [
    *("0", "1", "-1", "-0", "-0.0", "2.0", "1.5", "-1.25e3", "1E5", "0.001", "1e-400", "1e400"),
    *("127", "128", "255", "256", "-129", "32768", "2147483648", "9223372036854775808"),
    *("12345678901234567890123", "16777217", "16777217.0000000001", "123456.7895", "999999.9995"),
    *("00", "01", "1.", ".5", "1e", "+1", "--1", "1x", "0x1", "1_0", "-", "1e5e", "1" * 1001),
    *("true", "false", "null", "tru", "nul", "True", "NaN", "Infinity", "-Infinity", "Inf", "INF"),
    *("-INF", "+INF", "+Infinity", "nan", "[", "]", "{", "}", "[]", "{}", ",", ":", '"', ""),
    *('""', '"x"', '"é"', '"😀"', r'"\u00e9"', r'"\ud83d\ude00"', r'"\ud83d"', r'"x\udc00y"'),
    *(r'"\n\"\\\/"', r'"\q"', r'"\u12g4"', '"\n"', '"\x00"', '"\x7f"', r'"\u0000"', '"a', r'"\\'),
    *('"NaN"', '"INF"', '"-Infinity"', '"Infinity"', '"1"', '"1.5"', '" 1"', '"1e2"', '".5"'),
    *('"2013-01-01"', '"2013-1-1"', '"2013"', '"2013-02-30"', '"2013-01-01T10:00:00Z"'),
    *('"2013-01-01 10:00:00"', '"2013-01-01T10:00:00.123456+01:00"', '"2013-01-01T10:00:00GMT"'),
    *('"2013-01-01T10:00:00.1234567Z"', '"2013-01-01T24:00:00Z"', '"2013-01-01T10:00"'),
    *('"2013-01-01T10:00:00+18:00"', '"2013-01-01T10:00:00-18:01"', '"2013-01-01T10:00:00z"'),
    *('"2013-01-01T10:00:00 Europe/Berlin"', '"2013-03-31T02:30:00 CET"', '"2013-10-27T02:30 CET"'),
    *('"2013-01-01T10:00:00UTC+1"', '"2013-01-01T10:00:00+1:5"', '"2013-01-01T10:00:00 Mars/X"'),
    *("12.", "1.x", "-1.", "0.", "0.x", "-0.", "1.5e", "1.5e+", "12e-", "0e", "0ex", "1.5.2"),
    *("-x", "+", "+x", "-INFx", "-Infinit", "+IN", "nulls", "true_"),
    *('"9999-12-31T23:59:59.999999Z"', '"0001-01-01T00:00:00Z"', '"+2013-01-01"'),
    *('"2013-01-01T"', '"2013-01-01 x"', '"2013-01-01T10:00:60Z"', '" 2013-01-01 "'),
    *('"2013-01-01T10:00:00."', '"2013-01-01T10:0:0"', '"T2013"'),
]
#: Spark reads them as dates or times.
OLD_TIMES = [
    *('"0000-01-01"', '"10000-01-01"', '"-0001-01-01"', '"2013-01-01T10:00:00PST"', '"T10:00"'),
    *('"2013-01-01T10:00:00GMT+01:00"', '"2013-01-01T10:00:00 GMT+1"', '"10:30:00Z"'),
    *('"5"', '"-1"', '"12345678"', '"-12345678"', '"20130101"', '"-141428"'),
]
#: Spark 1.5 wrote dates so.
QUOTED_NUMBER = re.compile(rb'"[+-]?[0-9]{1,10}"')
NAMES = ["a", "b", "c", "d", "e", "_corrupt_record", r"\u0061", "A", ""]


def joined(items: Sequence[str], marks: str) -> str:
    return marks[0] + ",".join(items) + marks[1]


def nested(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.builds('"{}":{}'.format, st.sampled_from(NAMES), children)
    return st.lists(member, max_size=4).map(lambda items: joined(items, "{}")) | st.lists(
        children, max_size=3
    ).map(lambda items: joined(items, "[]"))


DOCUMENTS = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=8)
OBJECTS = st.lists(
    st.builds('"{}":{}'.format, st.sampled_from(NAMES), DOCUMENTS), min_size=1, max_size=5
).map(lambda items: joined(items, "{}"))
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from([1.5, 2, "2013-01-01T10:00:00Z", {"a": 1}]),
        "b": st.sampled_from([7, "2013-01-02", [1, 2]]),
        "d": st.text(max_size=5),
        "z": st.none(),
    },
).map(json.dumps)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = draw(OBJECTS).encode(errors="replace")
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from([*b'{}[]",: \\\n\t0-e.', 0xFF, 0xED, 0xA0, 0x80, 0xEF]))
        cut = draw(st.integers(0, 1))
        data = data[:place] + bytes([piece]) + data[place + cut :]
    return data


ODD = st.sampled_from(
    [
        b"",
        b" ",
        b"null",
        b"[{}]",
        b'{"b":1} x',
        b'{"b":1}{"b":2}',
        b'\xef\xbb\xbf{"b":1}',
        b'{"a":[',
    ]
)
VALUES = st.lists(
    st.none() | ODD | PLAIN.map(str.encode) | OBJECTS.map(str.encode) | damaged(),
    min_size=1,
    max_size=60,
)


def plain(value: Any) -> Any:
    """A value that can be compared: NaN, times beyond Python's and invalid UTF-8 included."""
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return {name: plain(value[name]) for name in value}
    if pa.types.is_list(value.type):
        return [plain(item) for item in value.values]
    if pa.types.is_temporal(value.type):
        return value.value
    if pa.types.is_string(value.type):
        return value.as_buffer().to_pybytes()
    return repr(value.as_py())


def by_spark(
    session: SparkSession, values: list[bytes | None], schema: str, options: dict[str, str]
) -> list[Any]:
    frame = session.createDataFrame(pa.table({"value": pa.array(values, pa.binary())}))
    event = F.from_json(F.col("value").cast("string"), schema, {"timeZone": "UTC", **options})
    return [plain(item) for item in frame.select(event.alias("event")).toArrow().column(0)]


def by_source(
    values: list[bytes | None], schema: str, options: dict[str, str]
) -> tuple[list[Any], int]:
    given = {"value.format": "json", "value.schema": schema}
    typed = parse_typed_options(given | {name.lower(): text for name, text in options.items()})
    assert typed is not None
    decoder = ValueDecoder(typed)
    structs, malformed = decoder.decode(pa.array(values, pa.binary()))
    found = [plain(item) for item in structs]
    # Next to a value that Arrow refuses, others may not be decoded by Arrow.
    for value, together in zip(values, found, strict=True):
        alone, _ = decoder.decode(pa.array([value], pa.binary()))
        assert plain(alone[0]) == together, (value, schema)
    return found, int(malformed.sum())


def is_json(value: bytes | None, *, non_numeric: bool) -> bool:
    """Return whether a value begins with JSON, as Python reads it, in the limits of Jackson."""
    if value is None:
        return True

    def number(text: str) -> None:
        if len(text.lstrip("-")) > 1000:
            raise ValueError("too long")

    def constant(text: str) -> None:
        if not non_numeric:
            raise ValueError(text)

    text = value.decode(errors="replace").lstrip(" \t\n\r")
    decoder = json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=constant)
    try:
        return not text or decoder.raw_decode(text) is not None
    except ValueError:
        return False


def compare(session: SparkSession, values: list[bytes | None], schema: str, **options: str) -> None:
    """Compare a struct of each value. What is not JSON is malformed for both, but has no fields
    here.
    """
    sparks = by_spark(session, values, schema, options)
    ours, malformed = by_source(values, schema, options)
    non_numeric = options.get("allowNonNumericNumbers", "true") == "true"
    expected_malformed = 0
    for value, theirs, found in zip(values, sparks, ours, strict=True):
        if is_json(value, non_numeric=non_numeric):
            old = "DATE" in schema and QUOTED_NUMBER.search(value or b"")
            assert found == theirs or (old and is_poorer(found, theirs, value)), (value, schema)
            expected_malformed += bool(found and found.get("_corrupt_record") is not None)
        else:
            assert value is not None
            nothing = {**dict.fromkeys(theirs), **corrupt(schema, value)}
            assert found == nothing, (value, schema)
            expected_malformed += 1
    if "_corrupt_record" in schema:
        assert malformed == expected_malformed


def is_poorer(found: Any, theirs: Any, value: bytes | None) -> bool:
    """Return whether nulls are the only difference, and the value counts as malformed."""
    if found is None or (found == value and theirs is None):
        return True
    if isinstance(found, dict) and isinstance(theirs, dict):
        return all(is_poorer(found[name], theirs[name], value) for name in found)
    if isinstance(found, list) and isinstance(theirs, list) and len(found) == len(theirs):
        return all(is_poorer(*pair, value) for pair in zip(found, theirs, strict=True))
    return bool(found == theirs)


def corrupt(schema: str, value: bytes) -> dict[str, bytes]:
    return {"_corrupt_record": value} if "_corrupt_record" in schema else {}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_scalar_in_each_type(session: SparkSession, schema: str) -> None:
    values = [
        joined([f'"{name}":{scalar}', '"b":1'], "{}").encode()
        for name in "abcd"
        for scalar in SCALARS
        if not (name == "d" and "d STRING" in schema and is_unusual_fraction(scalar))
    ]
    compare(session, [*values, None], schema)


@pytest.mark.parametrize(
    "copied",
    ["[%s]", '{"x":%s}', "{%s:1}", "[0,%s]", "[%s,0]", '[{"x":%s}]', '{"y":0,"x":[%s]}', "[%s 0]"],
)
def test_each_scalar_in_an_object_or_array_that_is_copied_as_text(
    session: SparkSession, copied: str
) -> None:
    # Where Jackson reads on after an error decides whether the columns next to it are kept.
    values = [
        members.format(copied % scalar).encode()
        for scalar in SCALARS
        if not is_unusual_fraction(scalar)
        for members in ('{{"d":{}}}', '{{"a":1,"d":{}}}', '{{"d":{},"a":1}}', '{{"d":{}')
    ]
    compare(session, list(values), "a INT, d STRING, _corrupt_record STRING")


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_old_forms_of_times_are_malformed_and_never_another_time(
    session: SparkSession, kind: str
) -> None:
    schema = f"a {kind}, b INT, _corrupt_record STRING"
    values = [f'{{"a":{time},"b":1}}'.encode() for time in OLD_TIMES]
    sparks = by_spark(session, list(values), schema, {})
    ours, _ = by_source(list(values), schema, {})
    poorer = 0
    for value, theirs, found in zip(values, sparks, ours, strict=True):
        if found != theirs:
            assert found == {"a": None, "b": repr(1), "_corrupt_record": value}
            poorer += 1
    assert poorer >= 6


def is_unusual_fraction(scalar: str) -> bool:
    """Java before 19 does not write these with the fewest digits."""
    return scalar in ("1e-400",)


@settings(
    max_examples=15,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(values=VALUES, schema=st.sampled_from(SCHEMAS), non_numeric=st.booleans())
def test_any_values(
    session: SparkSession, values: list[bytes | None], schema: str, non_numeric: bool
) -> None:
    compare(session, values, schema, allowNonNumericNumbers=str(non_numeric).lower())
