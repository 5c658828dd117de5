"""Hostile records are refused, at a cost that grows only with their size."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from aioprod import (
    ConfigError,
    Consumer,
    DecodingLimits,
    DeserializationError,
    JsonDeserializer,
    Producer,
    TopicPartition,
)
from aioprod.preparation import NotPrepared
from aioprod.processing import Processor
from aioprod.schema_registry import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Schema,
    SchemaRegistry,
)
from aioprod.schema_registry.avro_limits import check_of
from aioprod.schema_registry.avro_nodes import parse_node
from aioprod.schema_registry.json_references import subschemas
from aioprod.schema_registry.json_validation import Steps, first_error, limited
from aioprod.schema_registry.schemas import SchemaRegistryError
from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import hostile
from tests.schema_registry.hostile import Hostile, array, record, zigzag

LIMITS = DecodingLimits()
IDS: dict[str, Any] = {"ids": lambda case: f"{case.schema.type}: {case.name}"}


class Work:
    """Counts calls of functions, of C too, while it is entered."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Work:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")


class Uncounted(Work):
    """Does not count, which would take time."""

    def __enter__(self) -> Work:
        return self


async def placed(
    registry: SchemaRegistry, case: Hostile
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what reads the record as a row, and as a column."""
    found = await registry.register(f"case-{hostile.ALL.index(case)}", case.schema)
    data = hostile.framed(found.id, case)
    reads = hostile.deserializer(registry, case)
    column = pa.array([data], pa.binary())
    return lambda: reads("t", (), data), lambda: reads.deserialize_column("t", None, column)


async def outcome(read: Callable[[], Any], work: Work | None = None) -> tuple[Any, int]:
    """Return what a read returns or raises in the end, and how many calls it took."""
    work = work or Work()
    for _ in range(4):
        work.calls = 0
        with work:
            try:
                return read(), work.calls
            except NotPrepared as needed:
                waits = needed
            except Exception as error:
                return error, work.calls
        await waits.prepare()
        if waits.error is not None:
            return waits.error, 0
    raise AssertionError("it is never prepared")


@pytest.mark.parametrize("case", hostile.ALL, **IDS)
async def test_the_work_in_the_event_loop_grows_with_the_bytes_only(
    registry: SchemaRegistry, case: Hostile
) -> None:
    for read in await placed(registry, case):
        found, calls = await outcome(read)
        if not isinstance(found, Exception):  # a column has its errors with it
            (found,) = found.errors.values()
        assert isinstance(found, ValueError | EOFError | OverflowError | SchemaRegistryError), found
        assert len(str(found)) < 1_000
        # Types that name one another are made columns up to a number of 4,000.
        of_schema = 250_000 if "doubled in fields" in case.name else 60_000
        assert calls < of_schema + 3 * len(case.data)


def test_no_record_ends_the_process() -> None:
    program = """
import asyncio
from aioprod.schema_registry import SchemaRegistry
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import hostile
from tests.schema_registry.test_hostile_records import Uncounted, outcome, placed

async def main():
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        for case in hostile.ALL:
            for read in await placed(registry, case):
                await outcome(read, Uncounted())

asyncio.run(main())
print('alive')
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2_000:]


async def test_a_consumer_goes_on_behind_a_hostile_record() -> None:
    node = hostile.AVRO[0]
    async with (
        EmbeddedCluster() as broker,
        EmbeddedSchemaRegistry() as server,
        SchemaRegistry(server.url) as registry,
        Producer(broker.bootstrap_servers) as producer,
    ):
        found = await registry.register("t-value", node.schema)
        await producer.send_and_wait("t", hostile.framed(found.id, node))
        await producer.send_and_wait("t", hostile.framed(found.id, node._replace(data=b"\x02\0")))
        async with Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(registry),
        ) as consumer:
            with pytest.raises(DeserializationError, match=r"max_depth=100.*seek to offset 1"):
                await consumer.getone(timeout_ms=9_000)
            consumer.seek(TopicPartition("t", 0), 1)
            assert (await consumer.getone(timeout_ms=9_000)).value == {"next": {"next": None}}


async def test_tables_and_a_processor_go_on_behind_a_hostile_record() -> None:
    many = next(each for each in hostile.AVRO if each.name == "many of null")
    done: list[Any] = []
    async with (
        EmbeddedCluster() as broker,
        EmbeddedSchemaRegistry() as server,
        SchemaRegistry(server.url) as registry,
        Producer(broker.bootstrap_servers) as producer,
    ):
        found = await registry.register("t-value", many.schema)
        for data in (many.data, zigzag(2) + b"\0"):
            await producer.send_and_wait("t", hostile.framed(found.id, many._replace(data=data)))
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "value_deserializer": AvroDeserializer(registry),
        }
        async with Consumer("t", auto_offset_reset="earliest", **settings) as consumer:
            with pytest.raises(DeserializationError, match="max_empty_values=10000"):
                await consumer.getarrow(timeout_ms=9_000)
            consumer.seek(TopicPartition("t", 0), 1)
            table = await consumer.getarrow(timeout_ms=9_000)
            assert table["value"].to_pylist() == [{"flags": [None, None]}]

        handled = asyncio.Event()

        async def handle(record: Any) -> None:
            done.append(record.value)
            handled.set()

        broker.create_topic("dead")
        processor: Any = Processor(handle, "t", group_id="g", dead_letter_topic="dead", **settings)
        async with processor, asyncio.timeout(30):
            await handled.wait()
        assert done == [{"flags": [None, None]}]
        (dead,) = broker.records("dead")
        assert dead.value == hostile.framed(found.id, many)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_depth", "max_empty_values", "max_decimal_digits"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9"])
def test_a_limit_is_a_whole_number_of_at_least_1(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value!r}: must be a whole number"):
        DecodingLimits(**{name: value})


NULLS = record("E", flags=array("null"))
ORDER = record("O", amount=hostile.DECIMAL)
NINES = decimal.Decimal("9" * 1_000).scaleb(-2, decimal.Context(prec=1_000))


def written(number: decimal.Decimal) -> bytes:
    whole = int(number.scaleb(2, decimal.Context(prec=9_000)))
    data = whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)
    return zigzag(len(data)) + data


@pytest.mark.parametrize(
    ("schema", "data", "beyond", "limits", "match"),
    [
        (
            hostile.NODE,
            b"\2" * 99 + b"\0",
            b"\2" * 100 + b"\0",
            {"max_depth": 101},
            "max_depth=100",
        ),
        (
            NULLS,
            zigzag(10_000) + b"\0",
            zigzag(10_001) + b"\0",
            {"max_empty_values": 10_001},
            "max_empty_values=10000",
        ),
        (
            ORDER,
            written(NINES),
            written(NINES * 10_000),
            {"max_decimal_digits": 1_010},
            "max_decimal_digits=1000",
        ),
    ],
)
async def test_a_record_of_avro_at_the_limit_is_read(
    registry: SchemaRegistry, schema: Any, data: bytes, beyond: bytes, limits: Any, match: str
) -> None:
    found = await registry.register("t-value", Schema(json.dumps(schema)))
    start = b"\0" + found.id.to_bytes(4, "big")
    assert await AvroDeserializer(registry).deserialize("t", start + data)
    with pytest.raises(ValueError, match=match):
        await AvroDeserializer(registry).deserialize("t", start + beyond)
    raised = AvroDeserializer(registry, limits=DecodingLimits(**limits))
    assert await raised.deserialize("t", start + beyond)


async def test_a_decimal_has_all_of_its_digits(registry: SchemaRegistry) -> None:
    """fastavro rounds to the precision, which a writer may have exceeded."""
    found = await registry.register("t-value", Schema(json.dumps(ORDER)))
    data = b"\0" + found.id.to_bytes(4, "big") + written(NINES)
    assert await AvroDeserializer(registry).deserialize("t", data) == {"amount": NINES}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32-be"])
def test_json_at_the_limit_is_read(encoding: str) -> None:
    deep, deeper = ("[" * times + '"[[{"' + "]" * times for times in (100, 101))
    assert JsonDeserializer()("t", (), deep.encode(encoding))
    with pytest.raises(ValueError, match="max_depth=100: give the deserializer limits="):
        JsonDeserializer()("t", (), deeper.encode(encoding))
    raised = JsonDeserializer(limits=DecodingLimits(max_depth=101))
    assert raised("t", (), deeper.encode(encoding))


@pytest.mark.parametrize("data", [b"[" * 9_000, b'{"a":' * 9_000, b"[[]" * 9_000])
def test_what_is_never_closed_is_too_deep(data: bytes) -> None:
    with pytest.raises(ValueError, match="max_depth=100"):
        JsonDeserializer()("t", (), data)


def test_many_brackets_are_no_depth() -> None:
    wide = [[{"a": "]"}, ["\\", '"[[[']]] * 500
    assert JsonDeserializer()("t", (), json.dumps(wide).encode()) == wide


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text('ab[]{}"\\\\é', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text('[{"\\\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=30,
)


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


@settings(max_examples=100, deadline=None)
@given(value=JSON_VALUES, around=st.integers(0, 24), ascii=st.booleans())
def test_the_depth_of_json_is_that_of_its_values(value: Any, around: int, ascii: bool) -> None:
    for _ in range(around):
        value = [value, "]"]
    data = json.dumps(value, ensure_ascii=ascii).encode()
    deep = depth(value)
    for limit in {1, deep, deep - 1, 9, 15} - {0, -1}:
        reads = JsonDeserializer(limits=DecodingLimits(max_depth=limit))
        if deep <= limit:
            assert reads("t", (), data) == value
        else:
            with pytest.raises(ValueError, match="nested deeper"):
                reads("t", (), data)


async def test_what_takes_long_is_checked_in_a_thread(registry: SchemaRegistry) -> None:
    """A caller that is cancelled, and calls again, finds the work in progress."""
    schema = {"type": "array", "items": {"type": "object", "properties": {"a": {"minimum": 0}}}}
    rows = [{"a": number} for number in range(5_000)]
    data, _ = await JsonSchemaSerializer(registry, schema).serialize("t", rows)
    assert data is not None
    reads = JsonSchemaDeserializer(registry)
    await reads.deserialize("t", data.replace(b"4999", b"4998"))
    with pytest.raises(NotPrepared) as needed:
        reads("t", (), data)
    first = asyncio.ensure_future(needed.value.prepare())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(NotPrepared) as needed:
        reads("t", (), data)
    await needed.value.prepare()
    assert needed.value.is_done and reads("t", (), data) == rows
    with pytest.raises(ValueError, match="/4999/a violate 'minimum'"):
        await reads.deserialize("t", data.replace(b"4999", b"-999"))


@dataclass
class Left:
    kid: Left | Right | None = None
    at: datetime.datetime | None = None


@dataclass
class Right:
    kid: Left | Right | None = None
    at: datetime.datetime | None = None


async def test_the_types_of_a_union_are_not_tried_forever(registry: SchemaRegistry) -> None:
    """The leaf fits the schema, and is a time of neither."""
    wide = JsonSchemaSerializer(registry, {"type": "object"})
    value: dict[str, Any] = {"at": "never"}
    for depth in range(1, 90):
        value = {"kid": value}
        if depth in (3, 89):
            data, _ = await wide.serialize("t", value)
            reads = JsonSchemaDeserializer(registry, Left, limits=DecodingLimits(max_checks=5_000))
            with pytest.raises(
                ValueError, match="max_checks=5000" if depth > 3 else "fits none"
            ) as e:
                await reads.deserialize("t", data)
            assert len(str(e.value)) < 1_000
    data, _ = await wide.serialize("t", {"kid": {"kid": {"at": "2026-01-02"}}})
    found = await JsonSchemaDeserializer(registry, Left).deserialize("t", data)
    assert found == Left(Left(Left(at=datetime.datetime(2026, 1, 2))))


async def test_a_check_ends_at_its_limit(registry: SchemaRegistry) -> None:
    case = next(each for each in hostile.JSON if each.name == "branches")
    found = await registry.register("t-value", case.schema)
    data = hostile.framed(found.id, case)
    with pytest.raises(ValueError, match="more to check than max_checks=9000"):
        limits = DecodingLimits(max_checks=9_000)
        await JsonSchemaDeserializer(registry, limits=limits).deserialize("t", data)


# -- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        ["null", "string"],
        ORDER,
        record("A", a=array(record("B", b="boolean")), m={"type": "map", "values": "null"}),
        record("U", a=record("Address", street="string"), b="Address"),
    ],
)  # fmt: skip
def test_records_of_most_schemas_are_decoded_as_they_are(schema: Any) -> None:
    assert check_of(parse_node(schema), LIMITS) is None


async def test_a_schema_that_is_nested_too_deep_is_refused(registry: SchemaRegistry) -> None:
    deep = '{"type":"array","items":' * 5_000 + '"null"' + "}" * 5_000
    with pytest.raises(ConfigError, match="a schema is nested deeper than 500 levels"):
        AvroDeserializer(registry, deep)
    with pytest.raises(ConfigError, match="a schema is nested deeper than 500 levels"):
        JsonSchemaDeserializer(registry, '{"not":' * 5_000 + "{}" + "}" * 5_000)


async def test_a_long_chain_of_types_is_walked(registry: SchemaRegistry) -> None:
    """The schema is flat, the records are not."""
    chain = [record("L0", a="boolean")]
    chain += [record(f"L{level}", a=f"L{level - 1}") for level in range(1, 150)]
    schema = record("All", **{f"f{level}": each for level, each in enumerate(chain)})
    found = await registry.register("t-value", Schema(json.dumps(schema)))
    with pytest.raises(ValueError, match="max_depth=100"):
        await AvroDeserializer(registry).deserialize(
            "t", b"\0" + found.id.to_bytes(4, "big") + b"\1" * 150
        )


# -- any bytes -------------------------------------------------------------------------------------

TREE = record(
    "Tree",
    name="string",
    kids=array("Tree"),
    by_name={"type": "map", "values": ["null", "Tree", "double"]},
    empty=array(WITHOUT := record("Nothing", a="null")),
    size={"type": "fixed", "name": "Size", "size": 3},
    flag=["boolean", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}],
)
PARSED = fastavro.parse_schema(TREE)


def _tree(kids: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "name": st.text(max_size=5),
            "kids": st.lists(kids, max_size=3),
            "by_name": st.dictionaries(
                st.text(max_size=3), st.none() | kids | st.floats(allow_nan=False), max_size=3
            ),
            "empty": st.lists(st.just({"a": None}), max_size=5),
            "size": st.binary(min_size=3, max_size=3),
            "flag": st.booleans() | st.sampled_from(["RED", "BLUE"]),
        }
    )


def _leaf(tree: dict[str, Any]) -> dict[str, Any]:
    return {**tree, "kids": []}


TREES = st.recursive(_tree(st.none()).map(_leaf), _tree, max_leaves=5)


@settings(max_examples=60, deadline=None)
@given(tree=TREES)
def test_the_walk_refuses_no_valid_record(tree: Any) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, tree)
    check = check_of(parse_node(TREE), LIMITS)
    assert check is not None
    check(b"..." + out.getvalue(), 3)


@settings(max_examples=60, deadline=None)
@given(tree=TREES, data=st.data())
def test_what_passes_the_walk_can_be_decoded(tree: Any, data: st.DataObject) -> None:
    """Of bytes that were changed at random."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, tree)
    changed = bytearray(out.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check = check_of(parse_node(TREE), LIMITS)
    assert check is not None
    with Work() as work:
        try:
            check(bytes(changed), 0)
        except ValueError:
            return
        finally:
            sys.setprofile(None)
            assert work.calls < 100 + 20 * len(changed)
    try:
        fastavro.schemaless_reader(io.BytesIO(bytes(changed)), PARSED, None)
    except (UnicodeDecodeError, IndexError):
        pass


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([1.0, 0.5, "", "a", "b", "ab"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=12,
)
PATTERNS = st.sampled_from(["^a", "b$", "^[ab]+$", "c"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": named,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "items": inner,
            "contains": inner,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "uniqueItems": st.booleans(),
            "pattern": PATTERNS,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
            "prefixItems": some,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "type": st.sampled_from(["object", "array", ["array", "null"], "number", "boolean"]),
            "minItems": st.integers(0, 2),
            "maxProperties": st.integers(0, 2),
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.just("#/$defs/x"),
        },
    )


SCHEMAS = st.recursive(
    st.booleans() | st.sampled_from([{}, {"type": "string"}, {"type": "integer"}, {"enum": [1]}]),
    _schemas,
    max_leaves=6,
)


@pytest.mark.parametrize("draft", ["Draft4", "Draft7", "Draft201909", "Draft202012"])
@settings(max_examples=60, deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_the_limited_keywords_decide_as_those_of_jsonschema(
    draft: str, schema: Any, value: Any
) -> None:
    kind: Any = getattr(validators, f"{draft}Validator")
    if draft == "Draft4" and any(isinstance(each, bool) for each in subschemas(schema)):
        return  # booleans are no schemas there
    whole = {"allOf": [schema], "$defs": {"x": {"uniqueItems": True, "pattern": "a"}}}
    try:
        expected = kind(whole).is_valid(value)
    except TypeError:  # jsonschema fails if items is a boolean, with unevaluatedItems
        assert draft == "Draft201909"
        return
    steps = Steps(100_000, lambda: AssertionError("too many steps"))
    error = first_error(limited(kind, True)(whole), value, steps)
    assert (error is None) == expected
    assert error is None or isinstance(error, ValidationError)


async def test_nulls_of_a_large_fixed_take_no_memory(registry: SchemaRegistry) -> None:
    """The record has one byte, and the schema is its writer's."""
    fixed = {"type": "fixed", "name": "Large", "size": 1 << 16}
    case = Hostile("", Schema(json.dumps(record("R", f=["null", fixed]))), b"\0")
    found = await registry.register("fixed", case.schema)
    reads = hostile.deserializer(registry, case)
    column = pa.array([hostile.framed(found.id, case)] * 1_000, pa.binary())
    decoded, _ = await outcome(lambda: reads.deserialize_column("t", None, column))
    assert decoded.data.null_count == 0 and decoded.data.field(0).null_count == 1_000
    assert decoded.data.nbytes < 100_000


LONG = "x" * 10_000
ARRAY, OBJECT = [LONG], {LONG: LONG}
# By keyword: a value, and large data that does not fit it.
VIOLATED: dict[str, list[tuple[Any, Any]]] = {
    "type": [("integer", LONG), (["null", "integer"], ARRAY)],
    "enum": [([1, [2]], LONG)],
    "const": [("y", LONG), ({}, OBJECT)],
    "anyOf": [([{"type": "null"}, {"enum": [1]}], LONG)],
    "oneOf": [([{}, {}], OBJECT), ([{"type": "null"}], OBJECT)],
    "not": [({}, ARRAY)],
    "minItems": [(2, ARRAY)],
    "maxItems": [(0, ARRAY)],
    "uniqueItems": [(True, [LONG, LONG])],
    "minProperties": [(2, OBJECT)],
    "maxProperties": [(0, OBJECT)],
    "minLength": [(99_999, LONG)],
    "maxLength": [(1, LONG)],
    "pattern": [("^y", LONG)],
    "additionalProperties": [(False, OBJECT)],
    "unevaluatedItems": [(False, ARRAY)],
    "unevaluatedProperties": [(False, OBJECT)],
    "required": [(["y"], OBJECT)],
    "dependentRequired": [({LONG: ["y"]}, OBJECT)],
}
# Those of numbers, and those whose errors are those of other schemas, or count by their length.
OTHERS = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy"),
    *("allOf", "items", "properties", "patternProperties", "prefixItems", "propertyNames", "if"),
    *("$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "dependencies", "disallow"),
    *("extends", "contains", "additionalItems", "format"),
}

FALSE: list[tuple[Any, Any]] = [
    (False, LONG),
    ({"allOf": [False]}, ARRAY),
    ({"anyOf": [False, False]}, ARRAY),
    ({"oneOf": [False, False]}, ARRAY),
    ({"properties": {LONG: False}}, OBJECT),
    ({"additionalProperties": False}, OBJECT),
    ({"not": True}, LONG),
]


@pytest.mark.parametrize("draft", ["Draft4", "Draft6", "Draft7", "Draft201909", "Draft202012"])
def test_no_error_shows_large_data(draft: str) -> None:
    """An error for each alternative takes long otherwise, and no step counts that."""
    kind = limited(getattr(validators, f"{draft}Validator"), True)
    known = kind.VALIDATORS.keys()
    assert known <= VIOLATED.keys() | OTHERS
    for name in VIOLATED.keys() & known:
        for value, data in VIOLATED[name]:
            steps = Steps(100_000, lambda: AssertionError("too many steps"))
            error = first_error(kind({name: value}), data, steps)
            assert error is not None, name
            shown = error.message.replace(LONG, "", 1) if name == "dependentRequired" else ""
            assert len(shown or error.message) < 100, name
    if draft != "Draft4":  # which has no schema false
        for schema, data in FALSE:
            steps = Steps(100_000, lambda: AssertionError("too many steps"))
            error = first_error(kind(schema), data, steps)
            assert error is not None, schema
            assert len(error.message) < 100, schema
