"""Parses the definitions of the protocol's messages.

A definition, one file per API, looks like this::

    api Produce key 0

    request 3-13 flexible 9+
      acks: int16                         a field in all versions
      transactional_id: string? = null    nullable, with a default
      topics: []TopicData                 an array of a struct, with its fields below
        name: string 3-12 ignorable       only in versions 3 to 12; ignored in others
        rack: string?7+                   nullable from version 7 on
        cluster_id: string? 12+ tag 0     a tagged field
      hmac: bytes secret                not in the repr
      struct Shared                       a struct that several fields use
        id: int32

A field has the versions of its struct unless it names others. A field without a default has the
zero value of its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

PRIMITIVES = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "float64",
        "uuid",
        "string",
        "bytes",
        "records",
    }
)
_NULLABLE = frozenset({"string", "bytes", "records"})

_FIELD = re.compile(
    r"(?P<name>\w+): (?P<array>\[\])?(?P<type>\w+)(?P<nullable>\?(?P<null_from>\d+\+)?)?"
    r"(?: (?P<versions>\d+(?:-\d+|\+)?))?(?: tag (?P<tag>\d+))?(?: = "
    r"(?P<default>\S+))?(?P<ignorable> ignorable)?(?P<secret> secret)?$"
)
_MESSAGE = re.compile(
    r"(?P<kind>request|response) (?P<versions>\d+(?:-\d+)?)(?: flexible (?P<flexible>\d+)\+)?$"
)
_API = re.compile(r"api (?P<name>\w+) key (?P<key>\d+)$")


class SchemaError(Exception):
    """A definition is not valid."""


@dataclass(frozen=True)
class Versions:
    """The versions from ``first`` to ``last``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, within: Versions) -> Versions:
        first, separator, last = text.removesuffix("+").partition("-")
        versions = cls(
            int(first),
            int(last) if separator else within.last if text.endswith("+") else int(first),
        )
        if not within.first <= versions.first <= versions.last <= within.last:
            raise SchemaError(f"versions {text} are not within {within.first}-{within.last}")
        return versions

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass
class Field:
    """One field of a struct.

    Attributes:
        nullable_from: the first version in which it may be null, if any.
        default: as in the definition, if any.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable_from: int | None
    default: str | None
    tag: int | None
    ignorable: bool
    secret: bool

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES

    def nullable_in(self, version: int) -> bool:
        return self.nullable_from is not None and version >= self.nullable_from


@dataclass
class Struct:
    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    """A request or a response.

    Attributes:
        structs: nested ones, each after those that it uses.
    """

    api_name: str
    api_key: int
    kind: str
    versions: Versions
    flexible_from: int | None
    root: Struct
    structs: list[Struct]

    @property
    def name(self) -> str:
        return self.root.name


@dataclass
class ApiDefinition:
    name: str
    key: int
    request: Message
    response: Message


@dataclass
class _Line:
    text: str
    depth: int
    children: list[_Line] = field(default_factory=list)


def parse_api(text: str) -> ApiDefinition:
    """Parse the definition of an API.

    Raises:
        SchemaError: if it is not valid.
    """
    head, *messages = _tree(text)
    match = _API.match(head.text)
    if match is None or len(messages) != 2:
        raise SchemaError(
            f"expected an api line, a request and a response, found {head.text!r} and "
            f"{len(messages)} more"
        )
    request, response = (
        _parse_message(line, match["name"], int(match["key"])) for line in messages
    )
    if (request.kind, response.kind) != ("request", "response"):
        raise SchemaError(f"{match['name']}: the request comes first, then the response")
    names = [
        struct.name
        for message in (request, response)
        for struct in [*message.structs, message.root]
    ]
    if clashes := {name for name in names if names.count(name) > 1}:
        raise SchemaError(
            f"{match['name']}: more than one struct is called {', '.join(sorted(clashes))}"
        )
    return ApiDefinition(match["name"], int(match["key"]), request, response)


def _tree(text: str) -> list[_Line]:
    """Return the lines, each with those that are indented below it."""
    root = _Line("", -1)
    path = [root]
    for line in _lines(text):
        if line.depth > path[-1].depth + 1:
            raise SchemaError(f"{line.text!r} is indented too far")
        del path[line.depth + 1 :]
        path[-1].children.append(line)
        path.append(line)
    return root.children


def _lines(text: str) -> Iterator[_Line]:
    for raw in text.splitlines():
        line = raw.partition("#")[0].rstrip()
        if line:
            yield _Line(line.lstrip(), (len(line) - len(line.lstrip())) // 2)


def _parse_message(line: _Line, api_name: str, api_key: int) -> Message:
    match = _MESSAGE.match(line.text)
    if match is None:
        raise SchemaError(f"not a message: {line.text!r}")
    first, _, last = match["versions"].partition("-")
    versions = Versions(int(first), int(last or first))
    structs: dict[str, Struct] = {}
    shared = [child for child in line.children if child.text.startswith("struct ")]
    for child in shared:
        name = child.text.removeprefix("struct ")
        structs[name] = Struct(name, versions)
    for child in shared:
        _parse_fields(child.children, structs[child.text.removeprefix("struct ")], structs)
    root = Struct(api_name + match["kind"].capitalize(), versions)
    _parse_fields([child for child in line.children if child not in shared], root, structs)
    flexible = match["flexible"]
    return Message(
        api_name,
        api_key,
        match["kind"],
        versions,
        int(flexible) if flexible else None,
        root,
        _dependencies_first(root, structs),
    )


def _parse_fields(lines: list[_Line], struct: Struct, structs: dict[str, Struct]) -> None:
    for line in lines:
        parsed = _parse_field(line.text, struct.versions)
        struct.fields.append(parsed)
        if line.children:
            if not parsed.is_struct or parsed.type in structs:
                raise SchemaError(
                    f"{line.text!r} can't have fields, or its struct is defined twice"
                )
            structs[parsed.type] = Struct(parsed.type, parsed.versions)
            _parse_fields(line.children, structs[parsed.type], structs)
        elif parsed.is_struct and parsed.type not in structs:
            raise SchemaError(f"{line.text!r} has an unknown type")


def _parse_field(text: str, within: Versions) -> Field:
    match = _FIELD.match(text)
    if match is None:
        raise SchemaError(f"not a field: {text!r}")
    versions = Versions.parse(match["versions"], within) if match["versions"] else within
    nullable_from = None
    if match["nullable"]:
        nullable_from = (
            Versions.parse(match["null_from"], versions).first
            if match["null_from"]
            else versions.first
        )
    if nullable_from is not None and not match["array"] and match["type"] in PRIMITIVES - _NULLABLE:
        raise SchemaError(f"{text!r}: only strings, bytes, records, arrays and structs can be null")
    tag = int(match["tag"]) if match["tag"] else None
    if (
        tag is not None
        and nullable_from is not None
        and (match["array"] or match["type"] not in PRIMITIVES)
    ):
        raise SchemaError(f"{text!r}: no API has a tagged array or struct that can be null")
    return Field(
        match["name"],
        match["type"],
        match["array"] is not None,
        versions,
        nullable_from,
        match["default"],
        tag,
        match["ignorable"] is not None,
        match["secret"] is not None,
    )


def _dependencies_first(root: Struct, structs: dict[str, Struct]) -> list[Struct]:
    ordered: dict[str, Struct] = {}

    def visit(struct: Struct) -> None:
        for child in struct.fields:
            if child.is_struct and child.type not in ordered:
                visit(structs[child.type])
                ordered[child.type] = structs[child.type]

    visit(root)
    if unused := structs.keys() - ordered.keys():
        raise SchemaError(f"{root.name} does not use {', '.join(sorted(unused))}")
    return list(ordered.values())
