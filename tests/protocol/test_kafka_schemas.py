"""The definitions of messages, compared field by field with the schemas in Kafka's own jar."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from typing import Any

import pytest

from aioprod._tools.generate import load_apis
from aioprod._tools.schema import PRIMITIVES, Field, Message
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing.jars import kafka_jars

pytestmark = pytest.mark.kafka

NEWEST = "4.4.0"
#: Versions that only brokers use among themselves, or that are not stable, are left out.
LEFT_OUT = {
    "InitProducerIdRequest": "version 6 is not stable: two-phase commit (KIP-939)",
    "InitProducerIdResponse": "version 6 is not stable: two-phase commit (KIP-939)",
}
MESSAGES = {message.name: message for api in load_apis() for message in (api.request, api.response)}


@functools.cache
def schemas() -> dict[str, dict[str, Any]]:
    """All schemas by name."""
    (jar,) = [path for path in kafka_jars(NEWEST) if path.name.startswith("kafka-clients-")]
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(?m)(^|\s)//.*$", "", archive.read(name).decode())
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def within(versions: str | None, version: int) -> bool:
    if versions is None or versions == "none":
        return False
    first, _, last = versions.partition("-") if "-" in versions else (versions, "", "")
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last or first)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def number(default: str) -> str:
    """A default in one form: 0x7f and 127 are the same, and so are no default and zero."""
    try:
        return str(int(default, 0))
    except ValueError:
        return {"false": "0", "": "0", "0.0": "0"}.get(default.lower(), default)


def theirs(
    fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]], version: int
) -> list[tuple[Any, ...]]:
    """The fields of a version, with those of their structs."""
    found: list[tuple[Any, ...]] = []
    for field in fields:
        if not within(field["versions"], version):
            continue
        kind = field["type"].removeprefix("[]")
        inner = field.get("fields") or common.get(kind)
        nullable = within(field.get("nullableVersions"), version)
        tag = field["tag"] if within(field.get("taggedVersions"), version) else None
        found.append(
            (
                snake_case(field["name"]),
                kind if inner is None else theirs(inner, common, version),
                field["type"].startswith("[]"),
                nullable,
                tag,
                number(str(field.get("default", ""))),
                field.get("ignorable", False) in (True, "true"),
            )
        )
    return found


def ours(message: Message, fields: list[Field], version: int) -> list[tuple[Any, ...]]:
    structs = {struct.name: struct for struct in message.structs}
    return [
        (
            field.name,
            field.type
            if field.type in PRIMITIVES
            else ours(message, structs[field.type].fields, version),
            field.is_array,
            field.nullable_in(version),
            field.tag,
            number(field.default or ""),
            field.ignorable,
        )
        for field in fields
        if version in field.versions
    ]


def test_api_keys_have_the_numbers_and_highest_versions_of_kafkas_schemas() -> None:
    highest = {}
    for name, schema in schemas().items():
        if name.endswith("Request") and "apiKey" in schema:
            last = schema["validVersions"].rpartition("-")[2].replace("none", "-1")
            highest[schema["apiKey"]] = int(last) - (name in LEFT_OUT)
    assert {int(key): key.newest for key in ApiKey} == highest


@pytest.mark.parametrize("name", MESSAGES)
def test_each_version_has_the_fields_of_kafkas_schema(name: str) -> None:
    message, schema = MESSAGES[name], schemas()[name]
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    newest = int(schema["validVersions"].rpartition("-")[2])
    if name in LEFT_OUT:
        assert message.versions.last == newest - 1, LEFT_OUT[name]
    else:
        assert message.versions.last == newest
    for version in range(message.versions.first, message.versions.last + 1):
        assert within(schema["validVersions"], version)
        flexible = message.flexible_from is not None and version >= message.flexible_from
        assert flexible == within(schema["flexibleVersions"], version)
        expected = theirs(schema["fields"], common, version)
        assert ours(message, message.root.fields, version) == expected, version
