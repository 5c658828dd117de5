"""Schemas as text: checks if they are valid, equal or compatible."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for

from aioprod.testing.registry.avro_compatibility import AvroReading

Reference = tuple[str, str, int]
"""Name, subject and version."""


@dataclass(frozen=True)
class Content:
    """A schema in a canonical form, so that equivalent schemas compare equal.

    Attributes:
        type: "AVRO", "JSON" or "PROTOBUF".
        text: the text.
        references: names, subjects and versions of other schemas.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()

    @property
    def guid(self) -> str:
        """A GUID that depends only on the content, so it is the same in each registry."""
        whole = json.dumps([self.type, self.text, self.references])
        return str(uuid.UUID(bytes=hashlib.md5(whole.encode(), usedforsecurity=False).digest()))


def content_of(kind: str, text: str, references: tuple[Reference, ...]) -> Content:
    """Return the content for the text of a schema.

    Raises:
        ValueError: if it is not JSON, or not of its type.
    """
    if kind == "PROTOBUF":
        if _descriptor(text) is None and not re.search(r"\b(message|enum|syntax)\b", text):
            raise ValueError("neither a file descriptor in Base64 nor the text of a .proto file")
        return Content(kind, text, references)
    parsed = json.loads(text)
    if kind == "JSON":
        try:
            # Like Confluent's registry, assume draft 7 if the schema does not name its draft.
            validator_for(parsed, default=Draft7Validator).check_schema(parsed)
        except SchemaError as error:
            raise ValueError(error.message) from error
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
    elif isinstance(parsed, dict) and parsed.keys() == {"type"}:
        parsed = parsed["type"]  # {"type": "string"} and "string" are the same schema
    return Content(kind, json.dumps(parsed, separators=(",", ":")), references)


def check_avro(content: Content, used: Sequence[Content]) -> None:
    """Check an Avro schema, together with those that it refers to.

    Raises:
        ValueError: if it is invalid.
    """
    try:
        _parsed(content, used)
    except Exception as error:  # fastavro raises many kinds
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _descriptor(text: str) -> FileDescriptorProto | None:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _parsed(content: Content, used: Sequence[Content]) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    for each in used:
        fastavro.parse_schema(json.loads(each.text), named_schemas=named)
    return fastavro.parse_schema(json.loads(content.text), named_schemas=named), named


def faults_between(
    level: str,
    new: Content,
    earlier: Sequence[Content],
    used_by: Callable[[Content], Sequence[Content]],
) -> list[str]:
    """Return the reasons why a schema is incompatible with earlier ones. Only Avro's rules are
    implemented: schemas of the other types are compatible with any of their own type.

    Args:
        level: the compatibility level, such as "BACKWARD" or "FULL_TRANSITIVE".
        new: the schema.
        earlier: the earlier schemas, oldest first.
        used_by: a function that returns the schemas that a schema refers to.
    """
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    base = level.removesuffix("_TRANSITIVE")
    found: list[str] = []
    for old in reversed(compared) if base != "NONE" else ():
        if old.type != new.type:
            found.append(f"the type changes from {old.type} to {new.type}")
        elif new.type == "AVRO":
            if base in ("BACKWARD", "FULL"):
                found += _reading(new, old, used_by)
            if base in ("FORWARD", "FULL"):
                found += _reading(old, new, used_by)
    return found


def _reading(
    reader: Content, writer: Content, used_by: Callable[[Content], Sequence[Content]]
) -> list[str]:
    reads, reader_named = _parsed(reader, used_by(reader))
    writes, writer_named = _parsed(writer, used_by(writer))
    return AvroReading(reads, writes, (reader_named, writer_named)).faults()
