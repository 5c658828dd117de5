"""Asks the registry for the schema of a read or write. The driver does so once; what it has found
is part of what Spark sends to the tasks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from aioprod.config.redaction import hide_arguments
from aioprod.errors import ConfigError, KafkaError
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.schemas import Schema, SchemaRegistryError
from aioprod.spark.registered.options import RegistryOptions
from aioprod.spark.waiting import named_wait

_TYPES = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


@dataclass(frozen=True, slots=True)
class RegisteredValue:
    """A schema with the options by which it was found.

    Attributes:
        options: the options.
        schema: for Avro without references: they are part of the text.
        schema_id, version: of the schema.
    """

    options: RegistryOptions
    schema: Schema
    schema_id: int
    version: int | None


@hide_arguments
def open_registry(settings: Mapping[str, str]) -> SchemaRegistry:
    """Return a client.

    Raises:
        ConfigError: if a setting is invalid, or a file of certificates can't be read.
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
    """Ask for the schema.

    Raises:
        ConfigError: if the registry does not have it, or it has another format.
        KafkaError: if the registry is not reached.
    """
    return asyncio.run(_fetch(options))


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
                    f"option value.format={options.format}: the schema of subject "
                    f"{options.subject} is {found.schema.type}"
                )
            schema = found.schema
            if wanted == "AVRO":
                schema = await _with_references(registry, schema)
        except SchemaRegistryError as error:
            if error.retriable:
                raise
            raise ConfigError(f"option value.subject={options.subject}: {error}") from None
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
