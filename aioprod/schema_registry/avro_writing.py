"""Writes Python values as Avro. A function is created once for each type; it appends bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aioprod.schema_registry.avro_branches import (
    TEXTS_AND_BYTES,
    Branch,
    OfBranch,
    TextOfBranch,
    candidates,
    marked,
    named_branch,
)
from aioprod.schema_registry.avro_json import from_json_default
from aioprod.schema_registry.avro_leaves import (
    AvroTypeError,
    AvroValueError,
    Misfit,
    Write,
    leaf_writer,
    long_bytes,
    wrong,
)
from aioprod.schema_registry.avro_nodes import MISSING, AvroField, AvroNode
from aioprod.schema_registry.model_fields import ModelField, is_model, model_fields
from aioprod.varints import append_varint


def writer_of(node: AvroNode, *, strict: bool = False) -> Callable[[Any], bytes]:
    """Return a function that converts a value to bytes.

    Args:
        node: the type.
        strict: refuse records with fields that the type does not have.

    The result raises TypeError and ValueError; their texts name the field.
    """
    write = _Compiler(strict).writer(node)

    def encode(value: Any) -> bytes:
        out = bytearray()
        write(out, value)
        return bytes(out)

    return encode


def default_bytes(field: AvroField) -> bytes | None:
    """Return the bytes of a field that a record lacks: its default, or null.

    Returns:
        None if the field has neither.

    Raises:
        ValueError: if the default does not fit the type.
    """
    node = field.node
    if field.default is MISSING:
        if node.kind == "null":
            return b""
        place = node.null_branch
        return None if place is None else bytes((2 * place,))
    try:
        return writer_of(node)(from_json_default(node, field.default))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field.name}: the default of the schema does not fit: {error}") from None


class _Compiler:
    """Creates the functions. A type that contains itself is looked up at each write."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._records: dict[int, Write] = {}

    def writer(self, node: AvroNode) -> Write:
        if node.kind == "record":
            return self._record(node)
        make: Callable[[AvroNode], Write] = getattr(self, f"_{node.kind}", leaf_writer)
        return make(node)

    def _union(self, node: AvroNode) -> Write:
        writers = [self.writer(each) for each in node.branches]
        prefixes = [long_bytes(place) for place in range(len(writers))]
        null = node.null_branch
        others = [place for place in range(len(writers)) if place != null]
        only = others[0] if len(others) == 1 else None

        def write(out: bytearray, value: Any) -> None:
            if value is None and null is not None:
                out += prefixes[null]
                return
            place = only
            if place is None or isinstance(value, tuple | OfBranch):
                place, value = _chosen_branch(node, value)
                if place is None:
                    place = only
            if place is None:
                _guess(node, writers, prefixes, out, value)
            else:
                out += prefixes[place]
                writers[place](out, value)

        return write

    def _array(self, node: AvroNode) -> Write:
        item = self.writer(node.item)

        def write(out: bytearray, value: Any) -> None:
            if type(value) is not list:
                if not isinstance(value, Iterable) or isinstance(value, _NO_ARRAYS):
                    raise wrong(node, value)
                value = list(value)
            if not value:
                out.append(0)
                return
            append_varint(out, len(value))
            place = 0
            try:
                for each in value:
                    item(out, each)
                    place += 1
            except Misfit as error:
                error.below(f"[{place}]")
                raise
            out.append(0)

        return write

    def _map(self, node: AvroNode) -> Write:
        item = self.writer(node.item)
        key_writer = leaf_writer(AvroNode("string"))

        def write(out: bytearray, value: Any) -> None:
            if not isinstance(value, Mapping):
                raise wrong(node, value)
            if not value:
                out.append(0)
                return
            append_varint(out, len(value))
            key: Any = None
            try:
                for key, each in value.items():
                    key_writer(out, key)
                    item(out, each)
            except Misfit as error:
                error.below(f"[{key!r}]")
                raise
            out.append(0)

        return write

    def _record(self, node: AvroNode) -> Write:
        known = self._records.get(id(node))
        if known is not None:
            return known
        inner: list[Write] = []
        self._records[id(node)] = lambda out, value: inner[0](out, value)
        fields = [(each.name, self.writer(each.node), _Default(each)) for each in node.fields]
        write = self._records[id(node)] = _record_writer(node, fields, self._strict)
        inner.append(write)
        return write


class _Default:
    """The bytes of a field that a record lacks; created when first used."""

    def __init__(self, field: AvroField) -> None:
        self._field = field
        self._made: bytes | None = None

    def append(self, out: bytearray) -> None:
        if self._made is None:
            try:
                self._made = default_bytes(self._field)
            except ValueError as error:
                raise AvroValueError(str(error)) from None
        if self._made is None:
            raise AvroValueError(
                f"expected {self._field.node}, but the record has no such field, and the schema "
                "has no default for it"
            )
        out += self._made


def _record_writer(
    node: AvroNode, fields: list[tuple[str, Write, _Default]], strict: bool
) -> Write:
    names = frozenset(name for name, _, _ in fields)
    models: dict[Any, list[ModelField]] = {}

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not dict:
            value = _as_mapping(node, value, models)
        if strict and (more := value.keys() - names - {"-type"}):
            raise AvroValueError(
                f"{node} has no field {', '.join(sorted(map(repr, more)))}, and strict is set"
            )
        name = ""
        try:
            for name, write_field, default in fields:
                found = value.get(name, MISSING)
                if found is MISSING:
                    default.append(out)
                else:
                    write_field(out, found)
        except Misfit as error:
            error.below(name)
            raise

    return write


def _as_mapping(node: AvroNode, value: Any, models: dict[Any, list[ModelField]]) -> Any:
    if isinstance(value, Mapping):
        return value
    kind: Any = type(value)
    fields = models.get(kind)
    if fields is None:
        if not is_model(kind):
            raise wrong(node, value)
        fields = models[kind] = model_fields(kind, {each.name for each in node.fields})
    found = {}
    for name, attribute, is_plain_text in fields:
        each = getattr(value, attribute)
        if is_plain_text and type(each) is str:
            each = marked(TextOfBranch, "string", each)
        found[name] = each
    return found


def _chosen_branch(union: AvroNode, value: Any) -> tuple[int | None, Any]:
    """Return the branch that a value names itself (None without a name), and the value."""
    if isinstance(value, Branch):
        return value.place, value.value
    if isinstance(value, OfBranch):
        return named_branch(union, value.branch), value
    if isinstance(value, dict) and isinstance(name := value.get("-type"), str):
        if (place := named_branch(union, name)) is None:
            raise AvroValueError(f"{union} has no branch {name!r}")
        return place, value
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        place = named_branch(union, value[0])
        if place is not None:
            return place, value[1]
        if not any(each.kind == "array" for each in union.branches):
            raise AvroValueError(f"{union} has no branch {value[0]!r}")
    return None, value


def _guess(
    union: AvroNode, writers: list[Write], prefixes: list[bytes], out: bytearray, value: Any
) -> None:
    places = candidates(union, value)
    before = len(out)
    failures: list[Misfit] = []
    for place in places:
        out += prefixes[place]
        try:
            writers[place](out, value)
        except Misfit as error:
            del out[before:]
            failures.append(error)
        else:
            return
    if len(failures) == 1:
        raise failures[0]
    text = "; ".join(map(str, failures))
    given = type(value).__qualname__
    raise AvroTypeError(f"expected {union}, got {given}{': ' if text else ''}{text}")


_NO_ARRAYS: Final = (*TEXTS_AND_BYTES, Mapping)
