"""Finds the types, fields and branches of a reader's schema that match those of a writer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aioprod.schema_registry.avro_nodes import AvroField, AvroNode, short_name

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def is_promoted(writer: AvroNode, reader: AvroNode) -> bool:
    """Return whether values of a primitive type can be read as those of another."""
    return reader.kind in _PROMOTIONS.get(writer.kind, ())


def branch_for(writer: AvroNode, reader: AvroNode) -> int:
    """Return the branch of the reader's union that a type is read as: one of the same type and
    name, then one of the same type, then one that it is promoted to.

    Raises:
        ValueError: if no branch matches.
    """
    same = [place for place, each in enumerate(reader.branches) if each.kind == writer.kind]
    tests: tuple[Callable[[AvroNode], bool], ...] = (
        lambda each: each.name == writer.name and each.logical == writer.logical,
        lambda each: each.name == writer.name,
        lambda each: writer.name in each.aliases,
        lambda each: _share_a_name(writer, each),
    )
    for test in tests:
        for place in same:
            if test(reader.branches[place]):
                return place
    for place, each in enumerate(reader.branches):
        if is_promoted(writer, each):
            return place
    raise ValueError(f"{writer} can't be read as {reader}")


def by_writers_names(writer: AvroNode, reader: AvroNode) -> dict[str, AvroField]:
    """Return the reader's fields by the names that they have in the writer's record."""
    written = {each.name for each in writer.fields}
    found = {}
    for field in reader.fields:
        name = field.name
        if name not in written:
            name = next((each for each in field.aliases if each in written), name)
        if name in found:  # an alias that names another field
            name = f"-{field.name}"
        found[name] = field
    return found


def _share_a_name(writer: AvroNode, reader: AvroNode) -> bool:
    names = {short_name(each) for each in (reader.name, *reader.aliases)}
    return short_name(writer.name) in names


def check_names(writer: AvroNode, reader: AvroNode) -> None:
    """Check that two types have the same name, without namespaces, or share an alias.

    Raises:
        ValueError: if they do not.
    """
    if not _share_a_name(writer, reader):
        raise ValueError(f"{writer} can't be read as {reader}: give it an alias")
