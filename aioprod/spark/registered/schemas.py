"""Requests the schema of a read or write from the registry. The driver does this once, and Spark
sends the result to the tasks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aioprod.config.redaction import hide_arguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.schemas import Schema, SchemaRegistryError
from aioprod.spark.registered.options import RegistryOptions
from aioprod.spark.waiting import named_wait

_TYPES = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class RegisteredValue:
    """A schema, with the options that it was found with.

    Attributes:
        options: the options.
        schema: the schema. For Avro it has no references, because the text includes them.
        schema_id, version: the id and version of the schema.
        key: for values, the schema of keys; None if they stay binary.
    """

    options: RegistryOptions
    schema: Schema
    schema_id: int
    version: int | None
    key: RegisteredValue | None = None


@hide_arguments
def open_registry(settings: Mapping[str, str]) -> SchemaRegistry:
    """Return a client.

    Raises:
        ConfigError: if a setting is invalid, or a certificate file can't be read.
    """
    basic = None
    if "username" in settings:
        basic = settings["username"], settings["password"]
    context = None
    if settings.keys() & {"ssl.ca", "ssl.certificate"}:
        try:
            context = ssl.create_default_context(cafile=settings.get("ssl.ca"))
            if "ssl.certificate" in settings:
                context.load_cert_chain(
                    settings["ssl.certificate"],
                    settings["ssl.key"],
                    settings.get("ssl.key.password"),
                )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"options schema.registry.ssl.*: {error}; the files must be on each node"
            ) from None
    return SchemaRegistry(
        settings["url"],
        basic_auth=basic,
        bearer_token=settings.get("token"),
        ssl_context=context,
        context=settings.get("context"),
    )


def fetch_schema(options: RegistryOptions) -> RegisteredValue:
    """Request the schema of values, and that of keys if they have one.

    Raises:
        ConfigError: if the registry does not have it, or it has another format.
        KafkaError: if the registry can't be reached.
    """
    value = asyncio.run(_fetch(options))
    if options.key is None:
        return value
    return replace(value, key=asyncio.run(_fetch(options.key)))


async def _fetch(options: RegistryOptions) -> RegisteredValue:
    form = "serialized" if options.format == "protobuf" else None
    what = f"asking the schema registry for subject {options.subject}"
    async with open_registry(options.settings) as registry:
        try:
            with named_wait(what, "30 s"):
                found = await registry.get_version(
                    options.subject, options.version or "latest", form=form
                )
            wanted = _TYPES[options.format]
            if found.schema.type != wanted:
                raise ConfigError(
                    f"option {options.column}.format={options.format}: the schema of subject "
                    f"{options.subject} is {found.schema.type}"
                )
            schema = found.schema
            if wanted == "AVRO":
                schema = await _with_references(registry, schema)
        except SchemaRegistryError as error:
            if error.retriable:
                raise
            raise ConfigError(
                f"option {options.column}.subject={options.subject}: {error}"
            ) from None
    return RegisteredValue(options, schema, found.id, found.version)


async def _with_references(registry: SchemaRegistry, schema: Schema) -> Schema:
    from aioprod.schema_registry.avro import parsed_with_references

    try:
        parsed = await parsed_with_references(registry, schema)
    except KafkaError:
        raise
    except Exception as error:
        raise ConfigError(f"the schema is not Avro: {error}") from None
    return Schema(json.dumps(parsed.schema))
