"""Schema Registry for asyncio: a client, and serializers for Avro, JSON Schema and Protobuf.

Needs the extra ``schema-registry``.
"""

from __future__ import annotations

from aioprod.schema_registry.avro import AvroDeserializer, AvroSerializer
from aioprod.schema_registry.avro_models import AvroDecimal, avro_schema
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.json_format import JsonSchemaDeserializer, JsonSchemaSerializer
from aioprod.schema_registry.json_models import json_schema
from aioprod.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from aioprod.schema_registry.schemas import (
    CompatibilityResult,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaRegistryError,
)
from aioprod.schema_registry.subjects import record_name, topic_name, topic_record_name

__all__ = [
    "AvroDecimal",
    "AvroDeserializer",
    "AvroSerializer",
    "CompatibilityResult",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "Schema",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaRegistryError",
    "avro_schema",
    "json_schema",
    "record_name",
    "topic_name",
    "topic_record_name",
]
