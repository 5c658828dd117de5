"""The comparison of Avro: each case is written and read by all ways that aioprod has, and by other
implementations. Each difference needs a reason in ``REASONS``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.schema_registry.avro import (
    AvroDeserializer,
    AvroSerializer,
    Parsing,
    read_by,
)
from aioprod.schema_registry.avro_json import from_json, to_json
from aioprod.schema_registry.avro_nodes import AvroNode, all_nodes, parse_node
from aioprod.schema_registry.avro_resolution import UNDERLYING
from aioprod.schema_registry.avro_writing import writer_of
from aioprod.schema_registry.columns import Row, column_of, encode_in_portions
from aioprod.schema_registry.wire_format import Place
from tests.schema_registry.avro_cases import Case, plain
from tests.schema_registry.avro_judges import (
    Confluent,
    Error,
    JavaAvro,
    fastavro_bytes,
    fastavro_value,
)
from tests.schema_registry.avro_reasons import (
    REASONS,
    column_reason,
    error_reason,
    guess_reason,
    json_reason,
    order_or_unit,
    representation,
    same,
)

PLACE = Place(1)


@dataclass
class Counts:
    """The number of comparisons and differences.

    Attributes:
        cases: how many schemas with values.
        compared: how many comparisons, by their names.
        differences: how many were different, by comparison and reason.
        unexplained: those without a reason.
    """

    cases: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    differences: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def report(self) -> str:
        """Return the counts as text."""
        lines = [
            f"{self.cases} cases, {self.compared.total()} comparisons, "
            f"{self.differences.total()} differences, {len(self.unexplained)} unexplained"
        ]
        for name, count in sorted(self.compared.items()):
            lines.append(f"  {name}: {count}")
            lines += [
                f"    {times} x {reason}"
                for (where, reason), times in sorted(self.differences.items())
                if where == name
            ]
        return "\n".join(lines)


class Matrix:
    """Compares cases.

    Args:
        java, confluent: other implementations; None if they are left out.
    """

    def __init__(self, java: JavaAvro | None, confluent: Confluent | None) -> None:
        self.counts = Counts()
        self._java = java
        self._confluent = confluent

    def compare(self, case: Case) -> None:
        """Write and read a case by all ways."""
        self.counts.cases += 1
        _Comparison(self.counts, case, self._java, self._confluent).run()


class _Comparison:
    def __init__(
        self, counts: Counts, case: Case, java: JavaAvro | None, confluent: Confluent | None
    ) -> None:
        self._counts = counts
        self._case = case
        self._java = java
        self._confluent = confluent
        self._writer = parse_node(case.writer)
        self._reader = parse_node(case.reader)
        self._evolves = case.reader is not case.writer
        self._parsed = Parsing(self._writer, is_bytes=False)

    def run(self) -> None:
        data = writer_of(self._writer)(self._case.value)
        self._written(data)
        self._json(data)
        read = self._read_rows(data)
        self._columns(data, read)

    # -- writing -----------------------------------------------------------------------------------

    def _written(self, data: bytes) -> None:
        case = self._case
        raw = for_fastavro(self._writer, case.value)
        self._same("written: fastavro", data, fastavro_bytes(case.writer, raw))
        guess = for_fastavro(self._writer, plain(case.value))
        if not any(each.logical == "uuid" and each.size for each in all_nodes(self._writer)):
            ours = attempt(lambda: writer_of(self._writer)(plain(case.value)))
            theirs = fastavro_bytes(case.writer, guess)
            self._check("guessed: fastavro", ours, theirs, self._guess_reason)
        self._again(data)

    def _again(self, data: bytes) -> None:
        """A row that was read is written as it was."""
        row = self._rows(self._writer, data)
        if isinstance(row, Error):
            return
        self._same("row again", data, attempt(lambda: writer_of(self._writer)(row)))

    def _guess_reason(self, ours: Any, theirs: Any) -> str | None:
        if isinstance(theirs, Error) and "Invalid isoformat" in theirs.text:
            return "text-of-date"
        if isinstance(theirs, Error) and "decimal" in theirs.text:
            return "guessed-decimal"
        if isinstance(theirs, Error) or isinstance(ours, Error):
            return f"{ours} {theirs}"
        read = read_by(self._parsed, self._writer, UNDERLYING)
        return guess_reason(self._writer, read(ours, 0), read(theirs, 0))

    # -- JSON --------------------------------------------------------------------------------------

    def _json(self, data: bytes) -> None:
        read = read_by(self._parsed, self._writer, UNDERLYING)
        text = json.dumps(to_json(self._writer, read(data, 0)))
        again = attempt(lambda: writer_of(self._writer)(from_json(self._writer, json.loads(text))))
        self._check("JSON and back", data, again, partial(self._order_reason, self._writer))
        if self._java is None:
            return
        theirs = self._java.read(self._case.writer, data=data)
        if isinstance(theirs, Error):
            self._check("JSON: Java", json.loads(text), theirs, error_reason)
            return
        self._check("JSON: Java", json.loads(text), theirs[1], json_reason)
        back = self._java.read(self._case.writer, shown=text)
        theirs_back = back if isinstance(back, Error) else back[0]
        self._check("JSON to Java", data, theirs_back, partial(self._order_reason, self._writer))

    # -- reading -----------------------------------------------------------------------------------

    def _rows(self, reader: AvroNode, data: bytes) -> Any:
        deserializer = AvroDeserializer(None)  # type: ignore[arg-type]
        deserializer._reader = reader
        return attempt(lambda: deserializer.decode(Parsing(self._writer, is_bytes=False), data))

    def _read_rows(self, data: bytes) -> Any:
        case = self._case
        ours = self._rows(self._reader, data)
        java_agrees = self._read_java(data)
        why = partial(self._row_reason, java_agrees)
        wanted = case.reader if self._evolves else None
        self._check("read: fastavro", ours, fastavro_value(case.writer, wanted, data), why)
        if self._confluent is not None:
            raw = for_fastavro(self._writer, case.value)
            written, value = self._confluent.bytes_and_value(case.writer, wanted, raw)
            if not isinstance(written, Error) and case.value is not None:
                is_bytes = self._writer.kind == "bytes" and self._writer.logical is None
                expected = case.value if is_bytes else data
                self._same("written: confluent-kafka", expected, written)
                self._check("read: confluent-kafka", ours, value, why)
        return ours

    def _read_java(self, data: bytes) -> bool | None:
        """Return whether Java reads the same; None if it was not asked."""
        if self._java is None:
            return None
        ours = attempt(
            lambda: writer_of(self._reader)(
                read_by(self._parsed, self._reader, UNDERLYING)(data, 0)
            )
        )
        answer = self._java.read(self._case.writer, self._case.reader, data=data)
        theirs = answer if isinstance(answer, Error) else answer[0]
        found: list[str | None] = []

        def why(ours: Any, theirs: Any) -> str | None:
            found.append(self._order_reason(self._reader, ours, theirs))
            return found[0]

        self._check("read: Java", ours, theirs, why)
        return found in ([], ["map-order"], ["nan"])

    def _order_reason(self, node: AvroNode, ours: Any, theirs: Any) -> str | None:
        if isinstance(ours, Error) and ours.text.startswith("UnicodeDecodeError"):
            return "utf-8"
        if isinstance(theirs, Error) and "Got VALUE_STRING" in theirs.text:
            return "not-finite"
        if isinstance(ours, Error) and re.search(r"record \S+ can't be read as", ours.text):
            return "names-of-records"
        if isinstance(theirs, Error) and "moved." in json.dumps(self._case.reader):
            return "full-names"
        if isinstance(ours, Error) or isinstance(theirs, Error):
            return f"{ours} {theirs}"
        read = read_by(Parsing(node, is_bytes=False), node, UNDERLYING)
        return order_or_unit(node, read(ours, 0), read(theirs, 0))

    def _row_reason(self, java_agrees: bool | None, ours: Any, theirs: Any) -> str | None:
        if isinstance(theirs, Error):
            if "data framing of length 6" in theirs.text:
                return "short"
            return "fastavro-refuses" if java_agrees else theirs.text
        if isinstance(ours, Error):
            is_utf_8 = ours.text.startswith("UnicodeDecodeError")
            return "utf-8" if is_utf_8 else "both-refuse" if java_agrees else ours.text
        return representation(ours, theirs)

    # -- columns -----------------------------------------------------------------------------------

    def _columns(self, data: bytes, row: Any) -> None:
        from aioprod.schema_registry.avro_types import avro_type

        try:
            kind = avro_type(self._reader)
        except ValueError:
            return  # Arrow has no such type
        deserializer = AvroDeserializer(None)  # type: ignore[arg-type]
        deserializer._reader = self._reader
        column = column_read(deserializer, self._parsed, data)
        expected = row if isinstance(row, Error) else as_column(self._reader, row)
        self._check("getarrow: rows", expected, column, column_reason)
        if isinstance(column, Error) or isinstance(row, Error) or row is None:
            return  # a null is not a record
        serializer = AvroSerializer(None, json.dumps(self._case.reader), strict=True)  # type: ignore[arg-type]
        parsed = Parsing(self._reader, is_bytes=False)
        values = column_array(deserializer, self._parsed, data)
        mine = attempt(lambda: writer_of(self._reader)(row))
        written = attempt(
            lambda: encode_in_portions(
                values, lambda part, first: serializer.encode_column(parsed, b"", part, first)
            )[0].as_py()
        )
        self._check("send_arrow: rows", mine, written, column_reason)
        self._spark(deserializer, serializer, data, mine)
        assert kind is not None

    def _spark(
        self, deserializer: AvroDeserializer, serializer: AvroSerializer, data: bytes, mine: Any
    ) -> None:
        """The same through the types that Spark has."""
        from aioprod.errors import ConfigError
        from aioprod.spark.registered.columns import spark_shape

        try:
            values = column_array(deserializer, self._parsed, data, spark_shape)
        except ConfigError:
            return  # Spark has no such type
        parsed = Parsing(self._reader, is_bytes=False)
        written = attempt(lambda: serializer.encode_column(parsed, b"", values, 0)[0].as_py())
        self._check("Spark: rows", mine, written, column_reason)

    # -- results -----------------------------------------------------------------------------------

    def _same(self, name: str, ours: Any, theirs: Any) -> None:
        self._check(name, ours, theirs, lambda ours, theirs: None)

    def _check(
        self, name: str, ours: Any, theirs: Any, why: Callable[[Any, Any], str | None]
    ) -> bool:
        """Return whether two results are the same, or a reason is known."""
        self._counts.compared[name] += 1
        if isinstance(ours, Error) and isinstance(theirs, Error):
            return True
        if same(ours, theirs):
            return True
        reason = why(ours, theirs)
        if reason in REASONS:
            self._counts.differences[name, str(reason)] += 1
            return True
        self._counts.unexplained.append(
            f"{name} ({reason}): {ours!r} != {theirs!r}\n"
            f"    writer: {json.dumps(self._case.writer)}\n"
            f"    reader: {json.dumps(self._case.reader) if self._evolves else '-'}\n"
            f"    value: {self._case.value!r}"
        )
        return False


def column_array(
    deserializer: AvroDeserializer, parsed: Parsing, data: bytes, shape: Any = None
) -> Any:
    """Return a column of one record."""
    types = deserializer.column_types(None, None)
    decode = deserializer.column_decoder(parsed, PLACE, None, None)
    errors: dict[int, Exception] = {}
    column = column_of([Row(PLACE, data, 0)], errors, {PLACE: decode}, types, shape)
    if errors:
        raise ValueError(str(errors[0]))
    return column


def column_read(deserializer: AvroDeserializer, parsed: Parsing, data: bytes) -> Any:
    """Return the value in a column, as Python has it."""
    return attempt(lambda: in_python(column_array(deserializer, parsed, data)))


def in_python(column: Any) -> Any:
    """Return the one value of a column; numbers of nanoseconds as numbers."""
    return _in_python(column[0])


def _in_python(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {field.name: _in_python(scalar[field.name]) for field in kind}
    if pa.types.is_map(kind):
        entries = scalar.values
        return {
            entries.field(0)[n].as_py(): _in_python(entries.field(1)[n])
            for n in range(len(entries))
        }
    if pa.types.is_list(kind):
        return [_in_python(each) for each in scalar.values]
    if pa.types.is_timestamp(kind):
        return scalar.value if kind.unit == "ns" else scalar.as_py()
    return scalar.as_py()


def as_column(node: AvroNode, value: Any) -> Any:
    """Return a row as a column has it: a column has no UUIDs."""
    if node.kind == "union":
        inner = [each for each in node.branches if each.kind != "null"]
        return value if value is None or not inner else as_column(inner[0], value)
    if isinstance(value, uuid.UUID):
        return str(value) if node.kind == "string" else value.bytes
    if node.kind == "array":
        return [as_column(node.item, each) for each in value]
    if node.kind == "map":
        return {key: as_column(node.item, each) for key, each in value.items()}
    if node.kind == "record":
        return {each.name: as_column(each.node, value[each.name]) for each in node.fields}
    return value


def for_fastavro(node: AvroNode, value: Any) -> Any:
    """Return a value without the logical types that fastavro does not have."""
    if node.kind == "union":
        if isinstance(value, tuple):
            inner = next(each for each in node.branches if each.label == value[0])
            return value[0], for_fastavro(inner, value[1])
        return value
    if node.logical == "uuid" and node.kind == "fixed" and isinstance(value, uuid.UUID):
        return value.bytes
    if node.kind == "array" and isinstance(value, list):
        return [for_fastavro(node.item, each) for each in value]
    if node.kind == "map" and isinstance(value, dict):
        return {key: for_fastavro(node.item, each) for key, each in value.items()}
    if node.kind == "record" and isinstance(value, dict):
        return {each.name: for_fastavro(each.node, value[each.name]) for each in node.fields}
    return value


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or its error."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError, IndexError, EOFError) as error:
        return Error(f"{type(error).__name__}: {error}")
