"""Checks of a registry's responses: returns values of the expected type, or raises an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aioprod.foreign_text import reason_of
from aioprod.schema_registry.schemas import (
    CompatibilityResult,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaRegistryError,
    SchemaType,
)

_MAX_INT = 2**31 - 1
_MOST_MESSAGES = 100


class Answer:
    """The JSON of a response.

    Args:
        content: the JSON.
        what: names the request in errors.
        subject: the subject of the request, if it had one.

    Each method raises SchemaRegistryError if the content has another shape.
    """

    def __init__(self, content: Any, what: str, subject: str | None = None) -> None:
        self._content = content
        self._what = what
        self._subject = subject

    def texts(self) -> list[str]:
        """Return a list of strings."""
        return [self._text(each, "a list of strings") for each in self._list("a list of strings")]

    def numbers(self) -> list[int]:
        """Return a list of numbers, such as versions."""
        wanted = "a list of whole numbers"
        return [self._number(each, wanted) for each in self._list(wanted)]

    def number(self) -> int:
        """Return a number."""
        return self._number(self._content, "a whole number")

    def text(self, name: str) -> str:
        """Return the text of a field."""
        return self._text(self._object().get(name), f"an object with a string {name!r}")

    def places(self) -> list[tuple[str, int]]:
        """Return subjects and versions."""
        wanted = "a list of objects with subject and version"
        found = [self._mapping(each, wanted) for each in self._list(wanted)]
        return [
            (self._text(each.get("subject"), wanted), self._number(each.get("version"), wanted))
            for each in found
        ]

    def schema(self) -> Schema:
        """Return a schema."""
        found = self._object()
        references = found.get("references")
        if references is not None and not isinstance(references, list):
            raise self._error("an object with a list 'references'")
        kind = found.get("schemaType")
        return Schema(
            self._text(found.get("schema"), "an object with a string 'schema'"),
            cast("SchemaType", self._text(kind or "AVRO", "an object with a string 'schemaType'")),
            tuple(self._reference(each) for each in references or ()),
        )

    def registered(self, subject: str, schema: Schema | None = None) -> RegisteredSchema:
        """Return a schema with its id, subject and version.

        Args:
            subject: the name that the caller gave.
            schema: the schema, if the response may lack it and the version.
        """
        found = self._object()
        wanted = "an object with whole numbers 'id' and 'version'"
        version, guid = found.get("version"), found.get("guid")
        if version is not None or schema is None:
            version = self._number(version, wanted)
        if guid is not None:
            guid = self._text(guid, "an object with a string 'guid'")
        id_ = self._number(found.get("id"), wanted)
        return RegisteredSchema(schema or self.schema(), id_, subject, version, guid)

    def compatibility(self) -> CompatibilityResult:
        """Return whether a schema is compatible."""
        found = self._object()
        compatible, messages = found.get("is_compatible"), found.get("messages")
        wanted = "an object with 'is_compatible', true or false, and a list 'messages'"
        if not isinstance(compatible, bool) or not isinstance(messages, list | None):
            raise self._error(wanted)
        texts = [self._text(each, wanted) for each in (messages or ())[:_MOST_MESSAGES]]
        return CompatibilityResult(compatible, tuple(map(reason_of, texts)))

    def _object(self) -> Mapping[str, Any]:
        return self._mapping(self._content, "an object")

    def _mapping(self, value: Any, wanted: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._error(wanted)
        return value

    def _list(self, wanted: str) -> list[Any]:
        if not isinstance(self._content, list):
            raise self._error(wanted)
        return self._content

    def _number(self, value: object, wanted: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT:
            raise self._error(wanted)
        return value

    def _text(self, value: object, wanted: str) -> str:
        try:
            if isinstance(value, str):
                value.encode()  # fails for an unpaired surrogate
                return value
        except UnicodeEncodeError:
            pass
        raise self._error(wanted)

    def _reference(self, value: object) -> SchemaReference:
        wanted = "an object with references of name, subject and version"
        found = self._mapping(value, wanted)
        return SchemaReference(
            self._text(found.get("name"), wanted),
            self._text(found.get("subject"), wanted),
            self._number(found.get("version"), wanted),
        )

    def _error(self, wanted: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"schema registry: {self._what}: the response is not {wanted}; "
            "is this the address of a schema registry?",
            status=200,
            subject=self._subject,
        )
