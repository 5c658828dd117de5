"""Checks if data of one Avro schema can be read with another one (Avro's schema resolution)."""

from __future__ import annotations

from typing import Any

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class AvroReading:
    """Compares a reader's schema with a writer's.

    Args:
        reader, writer: as ``fastavro.parse_schema`` returns them.
        named: the named types that the reader's schema and the writer's refer to.
    """

    def __init__(
        self, reader: Any, writer: Any, named: tuple[dict[str, Any], dict[str, Any]]
    ) -> None:
        self._start = reader, writer
        self._named = named
        self._compared: set[tuple[str, str]] = set()

    def faults(self) -> list[str]:
        """Return the reasons why data can't be read; an empty list if it can."""
        return self._compare(*self._start, "/")

    def _compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        if isinstance(writer, list):
            return [fault for each in writer for fault in self._compare(reader, each, path)]
        if isinstance(reader, list):
            if any(not self._compare(each, writer, path) for each in reader):
                return []
            return [f"{path}: no type of the reader's union reads {_name(writer)}"]
        reader, writer = _resolved(reader, self._named[0]), _resolved(writer, self._named[1])
        read, written = _kind(reader), _kind(writer)
        if read != written:
            if read in _PROMOTIONS.get(written, ()):
                return []
            return [f"{path}: {read} does not read {written}"]
        if read == "array":
            return self._compare(reader["items"], writer["items"], f"{path}items/")
        if read == "map":
            return self._compare(reader["values"], writer["values"], f"{path}values/")
        if read == "enum":
            return self._compare_enums(reader, writer, path)
        if read == "fixed" and reader["size"] != writer["size"]:
            return [f"{path}: the size {reader['size']} does not read {writer['size']}"]
        return self._compare_records(reader, writer, path) if read in ("record", "error") else []

    def _compare_enums(self, reader: Any, writer: Any, path: str) -> list[str]:
        missing = [each for each in writer["symbols"] if each not in reader["symbols"]]
        if missing and "default" not in reader:
            return [f"{path}: the reader has no symbols {missing}, and no default"]
        return []

    def _compare_records(self, reader: Any, writer: Any, path: str) -> list[str]:
        names = {reader["name"].rpartition(".")[2]}
        names |= {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
        if writer["name"].rpartition(".")[2] not in names:
            return [f"{path}: the record {reader['name']} does not read {writer['name']}"]
        pair = reader["name"], writer["name"]
        if pair in self._compared:
            return []
        self._compared.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        found = []
        for field in reader["fields"]:
            names_of = (field["name"], *field.get("aliases", ()))
            other = next((written[name] for name in names_of if name in written), None)
            where = f"{path}{field['name']}/"
            if other is not None:
                found += self._compare(field["type"], other["type"], where)
            elif "default" not in field:
                found.append(f"{where}: the writer has no such field, and it has no default")
        return found


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else _kind(kind)


def _name(schema: Any) -> str:
    return str(schema.get("name", schema.get("type"))) if isinstance(schema, dict) else str(schema)
