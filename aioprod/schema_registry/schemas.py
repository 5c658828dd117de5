"""Schemas, and information about them from a registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from aioprod.decoding_limits import load_json
from aioprod.errors import KafkaError
from aioprod.public_module import set_module

SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
Compatibility: TypeAlias = Literal[
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]
Mode: TypeAlias = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD"]
Version: TypeAlias = int | Literal["latest"]

_MOST_DEPTH = 500
"""The most levels of nesting in the JSON of a schema. fastavro recurses for each level, in C."""
_RETRIABLE_STATUS = frozenset({408, 429, 500, 502, 503, 504})


@set_module("aioprod.schema_registry")
class SchemaRegistryError(KafkaError):
    """A registry refused a request, or could not be reached.

    Attributes:
        status: the HTTP status; None if there was no response.
        code: the registry's own code, such as 40403 for a schema that it does not have.
        subject: the subject of the request, if it had one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: int | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.subject = subject

    @property
    def retriable(self) -> bool:
        """True if a retry may succeed: there was no response, or one such as 503."""
        return self.status is None or self.status in _RETRIABLE_STATUS


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses.

    Attributes:
        name: its name in the other schema: the full name of an Avro type, the path of a Protobuf
            import, the ``$ref`` of a JSON Schema.
        subject, version: where that schema is.
    """

    name: str
    subject: str
    version: int


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema.

    Attributes:
        text: JSON for Avro and JSON Schema; for Protobuf a file descriptor in Base64, or the text
            of a ``.proto`` file.
        type: "AVRO", "JSON" or "PROTOBUF".
        references: the schemas that it uses.
    """

    text: str
    type: SchemaType = "AVRO"
    references: tuple[SchemaReference, ...] = ()


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id and version in a registry.

    Attributes:
        schema: the schema.
        id: its number in the registry, or in its context.
        subject, version: a subject that has the schema, and its version there.
        guid: its global id, from registries that have them (Confluent Platform 8.0 and later).
    """

    schema: Schema
    id: int
    subject: str
    version: int | None = None
    guid: str | None = None


@set_module("aioprod.schema_registry")
@dataclass(frozen=True, slots=True)
class CompatibilityResult:
    """The result of a compatibility check with the versions of a subject. False if it is not
    compatible.

    Attributes:
        is_compatible: whether it is compatible.
        messages: the reasons if it is not.
    """

    is_compatible: bool
    messages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.is_compatible


def load_schema(text: str) -> Any:
    """Parse the JSON of a schema.

    Raises:
        ValueError: if it is not JSON, or nested too deep.
    """
    return load_json(text, _MOST_DEPTH, "a schema")


@contextmanager
def invalid_if_it_fails(what: str) -> Iterator[None]:
    """Convert any error in a block that reads a registry's schema to a ValueError.

    Libraries raise errors of many types for an invalid schema.
    """
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the schema is not valid {what}: {reason}") from error


def body_of(schema: Schema) -> dict[str, Any]:
    """Return a schema as the body of a request."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type != "AVRO":
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body
