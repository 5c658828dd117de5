"""Python code for the ``write`` and ``read`` methods of one struct.

The code of a field depends on the version. The versions of each field are divided into spans with
the same code, newest first. The spans become one chain of ``if`` statements (to write) or one
conditional expression (to read).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from aioprod._tools.field_code import annotation, default_value, is_set, method, snake_case
from aioprod._tools.schema import Field, Message, SchemaError, Struct, Versions

_RESERVED = frozenset(
    {
        "cls",
        "self",
        "version",
        "reader",
        "writer",
        "flexible",
        "length",
        "tag",
        "tags",
        "part",
        "uuid",
        "field",
    }
)
_ITEM_NAMES = {"string": "text", "bytes": "data", "uuid": "identifier"}


class StructVersions:
    """The versions of one struct of a message, divided where its code differs."""

    def __init__(self, message: Message, struct: Struct) -> None:
        self.struct = struct
        self.flexible_from = (
            message.versions.last + 1 if message.flexible_from is None else message.flexible_from
        )
        if clashes := _RESERVED & {field.name for field in struct.fields}:
            raise SchemaError(
                f"{struct.name}: {', '.join(sorted(clashes))} can't be used as the name of a field"
            )

    @property
    def flexible(self) -> str:
        """An expression that is true if the version is flexible."""
        if self.flexible_from <= self.struct.versions.first:
            return "True"
        return "False" if self.flexible_from > self.struct.versions.last else "flexible"

    def compact(self, version: int) -> bool:
        """Return whether a version is flexible, and therefore has compact types (KIP-482)."""
        return version >= self.flexible_from

    def spans(self, code_of: Callable[[int], str]) -> list[tuple[Versions, str]]:
        """Divide the struct's versions, newest first, into spans with the same ``code_of``."""
        spans: list[tuple[Versions, str]] = []
        for version in range(self.struct.versions.first, self.struct.versions.last + 1):
            code = code_of(version)
            if spans and spans[-1][1] == code:
                spans[-1] = (Versions(spans[-1][0].first, version), code)
            else:
                spans.append((Versions(version, version), code))
        return spans[::-1]

    def with_flexible(self, code: list[str]) -> list[str]:
        """Return code that begins with an assignment to ``flexible`` if it uses the variable."""
        uses = any(re.search(r"\bflexible\b", line) for line in code)
        return [f"flexible = version >= {self.flexible_from}", *code] if uses else code


def _indented(lines: Iterable[str], steps: int = 1) -> list[str]:
    return ["    " * steps + line for line in lines]


def _guarded(condition: str, lines: list[str]) -> list[str]:
    """Return lines under a condition. If they are one ``if``, its condition is extended."""
    if len(lines) == 2 and lines[0].startswith("if "):
        return [f"if {condition} and {lines[0].removeprefix('if ')}", lines[1]]
    return [f"if {condition}:", *_indented(lines)] if lines else []


def _chain(spans: list[tuple[Versions, str]]) -> list[str]:
    """Return a chain of ``if`` that runs each span's code in its versions."""
    (newest, code), *older = spans
    if not older:
        return code.split("\n") if code else []
    rest = _chain(older)
    if not code:
        return _guarded(f"version <= {older[0][0].last}", rest)
    if not rest:
        return _guarded(f"version >= {newest.first}", code.split("\n"))
    lines = [f"if version >= {newest.first}:", *_indented(code.split("\n"))]
    if rest[0].startswith("if ") and not any(line.startswith("if ") for line in rest[1:]):
        return [*lines, f"el{rest[0]}", *rest[1:]]
    return [*lines, "else:", *_indented(rest)]


# --- writing --------------------------------------------------------------------------------------


def write_method(message: Message, struct: Struct) -> list[str]:
    """Return the lines of a struct's ``write``."""
    versions = StructVersions(message, struct)
    code: list[str] = []
    for field in struct.fields:
        code += _chain(versions.spans(partial(_write_field, versions, field)))
    code += _chain(versions.spans(partial(_write_tagged_fields, versions)))
    head = "    def write(self, writer: Writer, version: int) -> None:"
    return [head, *_indented(versions.with_flexible(code) or ["pass"], 2)]


def _write_field(versions: StructVersions, field: Field, version: int) -> str:
    if version not in field.versions:
        if field.ignorable:
            return ""
        return (
            f'if {is_set(field)}:\n    raise absent("{versions.struct.name}.{field.name}", version)'
        )
    return "" if field.tag is not None else _write_value(versions, field, version, "writer")


def _write_value(versions: StructVersions, field: Field, version: int, writer: str) -> str:
    value = f"self.{field.name}"
    nullable = field.nullable_in(version)
    if field.nullable_from is not None and not nullable:
        value = f'not_null({value}, "{versions.struct.name}.{field.name}", version)'
    if not field.is_array:
        if field.is_struct:
            write = f"{value}.write({writer}, version)"
            return (
                f"{writer}.int8(-1 if {value} is None else 1)\nif {value} is not None:\n    {write}"
                if nullable
                else write
            )
        return f"{writer}.{method(field, versions.compact(version), nullable)}({value})"
    flexible = versions.flexible if writer == "writer" else "True"
    item = snake_case(field.type) if field.is_struct else _ITEM_NAMES.get(field.type, "number")
    write = (
        f"{item}.write({writer}, version)"
        if field.is_struct
        else f"{writer}.{method(field, versions.compact(version), False)}({item})"
    )
    lines = []
    if nullable:
        length, items = f"-1 if {value} is None else len({value})", f"{value} or ()"
    elif field.nullable_from is not None:
        lines.append(f"{field.name} = {value}")
        length, items = f"len({field.name})", field.name
    else:
        length, items = f"len({value})", value
    return "\n".join(
        [
            *lines,
            f"{writer}.array_length({length}, {flexible})",
            f"for {item} in {items}:",
            f"    {write}",
        ]
    )


def _fields_by_tag(versions: StructVersions) -> list[tuple[Field, str]]:
    """Return the tagged fields by tag, each with a condition on the version; the condition is empty
    if the first flexible version has the field.
    """
    fields = sorted(
        (field for field in versions.struct.fields if field.tag is not None),
        key=lambda field: field.tag or 0,
    )
    first = max(versions.flexible_from, versions.struct.versions.first)
    return [
        (field, f"version >= {field.versions.first}" if field.versions.first > first else "")
        for field in fields
    ]


def _write_tagged_fields(versions: StructVersions, version: int) -> str:
    if not versions.compact(version):
        return ""
    tagged = _fields_by_tag(versions)
    if not tagged:
        return "writer.no_tagged_fields()"
    lines = ["tags: dict[int, Writer] = {}"]
    for field, condition in tagged:
        lines += [
            f"if {condition and condition + ' and '}{is_set(field)}:",
            f"    tags[{field.tag}] = part = Writer()",
        ]
        lines += _indented(_write_value(versions, field, field.versions.last, "part").split("\n"))
    return "\n".join([*lines, "writer.tagged_fields(tags)"])


# --- reading --------------------------------------------------------------------------------------


def read_method(message: Message, struct: Struct) -> list[str]:
    """Return the lines of a struct's ``read``."""
    versions = StructVersions(message, struct)
    code: list[str] = []
    for field in struct.fields:
        if field.is_array and field.nullable_from is not None:
            lengths = versions.spans(partial(_read_length, versions, field))
            code.append(_assign("length", lengths))
        name = field.name if field.tag is None else f"{field.name}: {annotation(field)}"
        code.append(_assign(name, versions.spans(partial(_read_field, versions, field))))
    code += _chain(versions.spans(partial(_read_tagged_fields, versions)))
    code = versions.with_flexible(code)
    code.append(f"return cls({', '.join(field.name for field in struct.fields)})")
    return [
        "    @classmethod",
        "    def read(cls, reader: Reader, version: int) -> Self:",
        *_indented(code, 2),
    ]


def _assign(name: str, spans: list[tuple[Versions, str]]) -> str:
    newer = "".join(f"{code} if version >= {part.first} else " for part, code in spans[:-1])
    return f"{name} = {newer}{spans[-1][1]}"


def _read_length(versions: StructVersions, field: Field, version: int) -> str:
    if version not in field.versions:
        return "-1" if default_value(field) == "None" else "0"
    prefix = "nullable_" if field.nullable_in(version) else ""
    return f"reader.{prefix}array_length({versions.flexible})"


def _read_field(versions: StructVersions, field: Field, version: int) -> str:
    if field.is_array and field.nullable_from is not None:
        return (
            f"None if length < 0 else [{_read_item(versions, field, version, 'reader')} for _ in "
            "range(length)]"
        )
    if version not in field.versions or field.tag is not None:
        return default_value(field)
    return _read_value(versions, field, version, "reader")


def _read_item(versions: StructVersions, field: Field, version: int, reader: str) -> str:
    if field.is_struct:
        return f"{field.type}.read({reader}, version)"
    nullable = field.nullable_in(version) and not field.is_array
    return f"{reader}.{method(field, versions.compact(version), nullable, reading=True)}()"


def _read_value(versions: StructVersions, field: Field, version: int, reader: str) -> str:
    item = _read_item(versions, field, version, reader)
    if not field.is_array:
        return (
            f"{item} if {reader}.int8() >= 0 else None"
            if field.is_struct and field.nullable_in(version)
            else item
        )
    flexible = versions.flexible if reader == "reader" else "True"
    return f"[{item} for _ in range({reader}.array_length({flexible}))]"


def _read_tagged_fields(versions: StructVersions, version: int) -> str:
    if not versions.compact(version):
        return ""
    tagged = _fields_by_tag(versions)
    if not tagged:
        return "reader.skip_tagged_fields()"
    lines = ["for tag, part in reader.tagged_fields():"]
    for index, (field, condition) in enumerate(tagged):
        lines.append(
            f"    {'if' if index == 0 else 'elif'} tag == "
            f"{field.tag}{condition and ' and ' + condition}:"
        )
        lines.append(
            f"        {field.name} = {_read_value(versions, field, field.versions.last, 'part')}"
        )
    return "\n".join(lines)
