"""Avro's schema resolution: reads records of one schema as another schema.

fastavro decodes each record by a schema that is built here from both. It has the writer's encoding,
and the reader's names and logical types where fastavro handles them correctly. A function then
converts the decoded value, if anything is left to do: defaults, numbers that become floats,
symbols, decimals, and the branches of unions.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import fastavro

from aioprod.decoding_limits import DEFAULT_LIMITS, DecodingLimits
from aioprod.schema_registry.avro_branches import Branch
from aioprod.schema_registry.avro_limits import check_of
from aioprod.schema_registry.avro_logical import (
    Convert,
    decimal_reader,
    moment,
    time_of_day,
    unit_of,
    uuid_from_bytes,
    with_scale,
)
from aioprod.schema_registry.avro_matching import (
    branch_for,
    by_writers_names,
    check_names,
    is_promoted,
)
from aioprod.schema_registry.avro_nodes import MISSING, AvroField, AvroNode
from aioprod.schema_registry.avro_writing import default_bytes
from aioprod.schema_registry.schemas import invalid_if_it_fails

FinishBranch = Callable[[AvroNode, int], Convert | None]
"""``(union, index of the branch) -> conversion of its values``; None for no conversion."""

_BY_FASTAVRO: Final = frozenset(
    {
        "date",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    }
)
_FLOAT: Final = struct.Struct("<f")


class Form(NamedTuple):
    """The form of decoded values.

    Attributes:
        logical: "all" if values have logical types, "decimal" if only decimals do, "none" if all
            have underlying types.
        finish: converts the values of the reader's unions.
        limits: limits on the cost of decoding a record.
        of_models: whether the classes of models supply values for fields without a default.
    """

    logical: str
    finish: FinishBranch
    limits: DecodingLimits = DEFAULT_LIMITS
    of_models: bool = False


class _Resolved(NamedTuple):
    """Attributes:
    schema: the schema that fastavro decodes with.
    convert: the remaining conversion; None if nothing is left to do.
    """

    schema: Any
    convert: Convert | None


def reading(writer: AvroNode, reader: AvroNode, form: Form) -> Callable[[bytes, int], Any]:
    """Return a function that decodes records: ``(data, start) -> value``.

    Raises:
        ValueError: if no record of the writer's schema can be read as the reader's.
    """
    schema, convert = _resolved(writer, reader, form)
    with invalid_if_it_fails("Avro"):
        parsed = fastavro.parse_schema(schema)
    read, check = fastavro.schemaless_reader, check_of(writer, form.limits)

    def decode(data: bytes, start: int) -> Any:
        if check is not None:
            check(data, start)
        source = io.BytesIO(data)
        source.seek(start)
        try:
            found = read(source, parsed, None)
            left = len(data) - source.tell()
            if not left:
                return found if convert is None else convert(found)
        except ValueError:
            raise
        except Exception as error:  # fastavro raises EOFError, IndexError, OverflowError and others
            reason = f"{type(error).__name__} {error}".strip()
            raise ValueError(f"the Avro data does not fit its schema: {reason}") from error
        raise ValueError(f"{left} bytes follow the Avro data")

    return decode


def converting(writer: AvroNode, reader: AvroNode, form: Form) -> Convert:
    """Return a function that converts bytes, which are a value of the writer's type.

    Raises:
        ValueError: if they can't be read as the reader's type.
    """
    target = reader
    if reader.kind == "union":
        target = reader.branches[branch_for(writer, reader)]
    _, convert = _resolved(writer, reader, form)
    if target.kind == "string":
        convert = _both(bytes.decode, convert)
    return convert or (lambda data: data)


def _resolved(writer: AvroNode, reader: AvroNode, form: Form) -> _Resolved:
    found = _Resolver(form, itertools.count(), assumes_nothing_is_left=True).resolve(writer, reader)
    if found.convert is None:
        return found
    return _Resolver(form, itertools.count()).resolve(writer, reader)


@dataclass(slots=True)
class _Pair:
    """A record of the writer's schema, and the reader's record that it is read as.

    Attributes:
        name: the name of the record that is decoded.
        convert: the remaining conversion.
        is_done: whether ``convert`` is known.
    """

    name: str
    convert: Convert | None = None
    is_done: bool = False

    def later(self, value: Any) -> Any:
        """Convert a record that is nested in a record of the same type."""
        return value if self.convert is None else self.convert(value)


class _Resolver:
    """Builds schema and conversion for one pair of types.

    Args:
        form: the form of decoded values.
        names: numbers for the records that it creates.
        assumes_nothing_is_left: whether a record in a record of the same type is assumed to need no
            conversion. This is true if the whole record needs none.
    """

    def __init__(
        self, form: Form, names: Iterator[int], *, assumes_nothing_is_left: bool = False
    ) -> None:
        self._form = form
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._names = names
        self._assumes = assumes_nothing_is_left

    def resolve(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        if writer.kind == "union":
            return self._from_union(writer, reader)
        if reader.kind == "union":
            place = branch_for(writer, reader)
            found = self.resolve(writer, reader.branches[place])
            return _Resolved(found.schema, _both(found.convert, self._form.finish(reader, place)))
        if writer.kind == reader.kind:
            return getattr(self, f"_{writer.kind}", self._leaf)(writer, reader)
        if is_promoted(writer, reader):
            return self._leaf(writer, reader)
        raise ValueError(f"{writer} can't be read as {reader}")

    def _name(self) -> str:
        return f"r{next(self._names)}"

    # -- unions ------------------------------------------------------------------------------------

    def _from_union(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        found = []
        failures = []
        for place, branch in enumerate(writer.branches):
            each, error = self._or_error(
                branch, partial(self._branch, branch, reader, place, writer)
            )
            found.append(each)
            if error is not None:
                failures.append(error)
        if found and len(failures) == len(found):
            raise failures[0]
        return self._union_of(found, writer)

    def _or_error(
        self, writer: AvroNode, resolve: Callable[[], _Resolved]
    ) -> tuple[_Resolved, ValueError | None]:
        """Resolve a type that not every record has. If that fails, its values are errors."""
        before = dict(self._pairs)
        try:
            return resolve(), None
        except ValueError as error:
            self._pairs = before
            return _Resolved(self._skipped(writer).schema, partial(_fail, str(error))), error

    def _branch(
        self, branch: AvroNode, reader: AvroNode, place: int, writer: AvroNode
    ) -> _Resolved:
        if reader.kind == "union" and reader is writer:
            found = self.resolve(branch, branch)
            return _Resolved(found.schema, _both(found.convert, self._form.finish(reader, place)))
        return self.resolve(branch, reader)

    def _union_of(self, found: list[_Resolved], writer: AvroNode) -> _Resolved:
        schemas = [each.schema for each in found]
        converts = [each.convert for each in found]
        if not any(converts):
            return _Resolved(schemas, None)
        null = writer.null_branch
        if len(found) == 2 and null is not None and converts[null] is None:
            (convert,) = (each for each in converts if each is not None)
            return _Resolved(schemas, lambda value: None if value is None else convert(value))
        # A record with one field is encoded like the field; its name identifies the branch.
        wrapped = [
            schema
            if place == null and converts[place] is None
            else {
                "type": "record",
                "name": self._name(),
                "fields": [{"name": str(place), "type": schema}],
            }
            for place, schema in enumerate(schemas)
        ]
        by_place = {str(place): each for place, each in enumerate(converts)}

        def convert_branch(value: Any) -> Any:
            if value is None:
                return None
            place, inner = value.popitem()
            convert = by_place[place]
            return inner if convert is None else convert(inner)

        return _Resolved(wrapped, convert_branch)

    # -- containers --------------------------------------------------------------------------------

    def _items(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        return self._or_error(writer, lambda: self.resolve(writer, reader))[0]

    def _array(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        schema, convert = self._items(writer.item, reader.item)
        if convert is None:
            return _Resolved({"type": "array", "items": schema}, None)
        return _Resolved(
            {"type": "array", "items": schema}, lambda items: [convert(each) for each in items]
        )

    def _map(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        schema, convert = self._items(writer.item, reader.item)
        if convert is None:
            return _Resolved({"type": "map", "values": schema}, None)
        return _Resolved(
            {"type": "map", "values": schema},
            lambda found: {key: convert(each) for key, each in found.items()},
        )

    def _record(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        pair = self._pairs.get((id(writer), id(reader)))
        if pair is not None:
            later = None if self._assumes else pair.later
            return _Resolved(pair.name, pair.convert if pair.is_done else later)
        check_names(writer, reader)
        pair = self._pairs[id(writer), id(reader)] = _Pair(self._name())
        wanted = by_writers_names(writer, reader)
        fields = []
        dropped: list[str] = []
        converts: list[tuple[str, Convert]] = []
        for place, field in enumerate(writer.fields):
            target = wanted.pop(field.name, None)
            try:
                if target is None:
                    name = f"-{place}"
                    dropped.append(name)
                    found = self._skipped(field.node)
                else:
                    name = target.name
                    found = self.resolve(field.node, target.node)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
            fields.append({"name": name, "type": found.schema})
            if found.convert is not None:
                converts.append((name, found.convert))
        defaults = [_default(each, reader, self._form) for each in wanted.values()]
        pair.convert = _record_convert(
            dropped, converts, [each for each in defaults if each is not None]
        )
        pair.is_done = True
        schema = {"type": "record", "name": pair.name, "fields": fields}
        return _Resolved(schema, pair.convert)

    def _skipped(self, node: AvroNode) -> _Resolved:
        """Decode what the reader does not have, by the underlying types."""
        found = _Resolver(_SKIPPED, self._names).resolve(node, node)
        return _Resolved(found.schema, None)

    # -- leaves ------------------------------------------------------------------------------------

    def _enum(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        check_names(writer, reader)
        schema = {"type": "enum", "name": self._name(), "symbols": list(writer.symbols)}
        if set(writer.symbols) <= set(reader.symbols):
            return _Resolved(schema, None)
        known, default = frozenset(reader.symbols), reader.default

        def convert(symbol: str) -> str:
            if symbol in known:
                return symbol
            if default is None:
                raise ValueError(f"{symbol!r} is not a symbol of {reader}, which has no default")
            return default

        return _Resolved(schema, convert)

    def _fixed(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        check_names(writer, reader)
        if writer.size != reader.size:
            raise ValueError(f"{writer} has {writer.size} bytes, {reader} {reader.size}")
        schema = {"type": "fixed", "name": self._name(), "size": writer.size}
        return _Resolved(schema, self._logical_convert(writer, reader))

    def _leaf(self, writer: AvroNode, reader: AvroNode) -> _Resolved:
        """Decode a primitive. An int is encoded like a long, and a string like bytes."""
        if writer.kind in ("int", "long") and reader.kind in ("float", "double"):
            return _Resolved(writer.kind, _to_float if reader.kind == "float" else float)
        kind = writer.kind if writer.kind == "float" else reader.kind
        convert = self._logical_convert(writer, reader)
        if self._form.logical != "all" or convert is not None:
            return _Resolved(kind, convert)
        if reader.logical in _BY_FASTAVRO or (reader.logical == "uuid"):
            return _Resolved({"type": kind, "logicalType": reader.logical}, None)
        return _Resolved(kind, None)

    def _logical_convert(self, writer: AvroNode, reader: AvroNode) -> Convert | None:
        """Return a function that converts the underlying type to the reader's logical type; None
        if fastavro does so, or nothing is to be done.
        """
        form = self._form.logical
        if reader.logical == "decimal" and form != "none":
            if writer.logical != "decimal" or writer.scale == reader.scale:
                return decimal_reader(reader.scale, self._form.limits)
            first = decimal_reader(writer.scale, self._form.limits)
            return _both(first, partial(with_scale, reader))
        if reader.logical == "uuid" and reader.kind == "fixed" and form == "all":
            return uuid_from_bytes
        return self._time_convert(writer, reader)

    def _time_convert(self, writer: AvroNode, reader: AvroNode) -> Convert | None:
        ours, theirs = unit_of(reader.logical), unit_of(writer.logical)
        if ours is None:
            return None
        kind, per_second = ours
        rescale: Convert | None = None
        if theirs is not None and theirs[0] == kind and theirs != ours:
            rescale = partial(_rescaled, theirs[1], per_second)
        if self._form.logical == "all" and kind == "time":
            # fastavro accepts numbers that are not a time of day.
            return _both(rescale, partial(time_of_day, per_second=per_second))
        if rescale is None or self._form.logical != "all" or reader.logical not in _BY_FASTAVRO:
            return rescale
        return _both(rescale, partial(moment, kind=kind, per_second=per_second))


def _record_convert(
    dropped: list[str],
    converts: list[tuple[str, Convert]],
    defaults: list[tuple[str, Callable[[], Any]]],
) -> Convert | None:
    if not (dropped or converts or defaults):
        return None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name in dropped:
            del record[name]
        for name, each in converts:
            record[name] = each(record[name])
        for name, make in defaults:
            record[name] = make()
        return record

    return convert


def _default(
    field: AvroField, reader: AvroNode, form: Form
) -> tuple[str, Callable[[], Any]] | None:
    """Return a function that returns the value of a field that the writer lacks; None if the class
    of a model supplies it.
    """
    if field.default is MISSING:
        if field.supplied and form.of_models:
            return None
        raise ValueError(
            f"{reader} has a field {field.name!r} that the record does not have, without a default"
        )
    try:
        data = default_bytes(field)
        assert data is not None
        decode = reading(field.node, field.node, form)
        value = decode(data, 0)
    except ValueError as error:
        raise ValueError(f"{reader}: {error}") from None
    if isinstance(value, list | dict | tuple):
        return field.name, partial(decode, data, 0)
    return field.name, lambda: value


def _both(first: Convert | None, second: Convert | None) -> Convert | None:
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def _to_float(value: int) -> float:
    found: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return found


def _rescaled(given: int, wanted: int, count: int) -> int:
    return count * wanted // given


def _fail(text: str, value: Any) -> Any:
    raise ValueError(text)


def nothing(union: AvroNode, place: int) -> Convert | None:
    """Leave the values of unions unchanged."""
    return None


def _keep(union: AvroNode, place: int) -> Convert:
    return partial(Branch, place)


_SKIPPED: Final = Form("none", nothing)
UNDERLYING: Final = Form("none", _keep)
"""Values of underlying types, in which those of unions are :class:`Branch`."""
