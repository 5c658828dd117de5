"""Files of Protobuf that registries have built in."""

from __future__ import annotations

import base64
import importlib

import pytest
from google.protobuf import descriptor_pb2

from aioprod import SerializationError
from aioprod.schema_registry import (
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
)
from aioprod.schema_registry.known_imports import known_imports
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import confluent

FIELD = descriptor_pb2.FieldDescriptorProto


def theirs(name: str) -> descriptor_pb2.FileDescriptorProto:
    """A file as Google's or Confluent's package has it, without comments for generators."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module.startswith("confluent."):
        assert confluent
        module = f"confluent_kafka.schema_registry.{module}"
    file = importlib.import_module(module).DESCRIPTOR
    found = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
    found.ClearField("options")
    messages = [*found.message_type]
    for message in messages:
        messages += message.nested_type
    for field in [*found.extension, *(each for message in messages for each in message.field)]:
        field.ClearField("json_name")
        field.ClearField("proto3_optional")
    return found


@pytest.mark.parametrize("name", [n for n in known_imports() if "google/protobuf/" not in n])
def test_a_file_is_as_its_owner_has_it(name: str) -> None:
    assert known_imports()[name] == theirs(name)


@pytest.mark.parametrize("name", known_imports())
async def test_a_schema_may_import_it_without_a_reference(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry, name: str
) -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=[name]
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="item", number=1, label=FIELD.LABEL_OPTIONAL, type=FIELD.TYPE_STRING)
    used = known_imports()[name]
    if used.message_type:
        order.field.add(
            name="used",
            number=2,
            label=FIELD.LABEL_OPTIONAL,
            type=FIELD.TYPE_MESSAGE,
            type_name=f".{used.package}.{used.message_type[0].name}",
        )
    text = base64.b64encode(file.SerializeToString()).decode()
    found = await registry.register("orders-value", Schema(text, "PROTOBUF"))
    data = b"\0" + found.id.to_bytes(4, "big") + b"\0" + b"\x0a\x03tea\x12\x00"
    made = await ProtobufDeserializer(registry).deserialize("orders", data)
    assert made.item == "tea" and (not used.message_type or made.HasField("used"))
    # What is written with it has no references either.
    await ProtobufSerializer(registry, type(made)).serialize("others", made)
    assert (await registry.get_version("others-value")).schema.references == ()
    assert server.subjects() == ["orders-value", "others-value"]


async def test_a_reference_is_used_before_what_is_built_in(registry: SchemaRegistry) -> None:
    own = descriptor_pb2.FileDescriptorProto(
        name="google/type/date.proto", package="google.type", syntax="proto3"
    )
    own.message_type.add(name="Date").field.add(
        name="text", number=9, label=FIELD.LABEL_OPTIONAL, type=FIELD.TYPE_STRING
    )
    await registry.register(
        "date", Schema(base64.b64encode(own.SerializeToString()).decode(), "PROTOBUF")
    )
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", syntax="proto3", dependency=[own.name]
    )
    file.message_type.add(name="Order").field.add(
        name="day", number=1, label=1, type=11, type_name=".google.type.Date"
    )
    text = base64.b64encode(file.SerializeToString()).decode()
    references = (SchemaReference(own.name, "date", 1),)
    found = await registry.register("orders-value", Schema(text, "PROTOBUF", references))
    data = b"\0" + found.id.to_bytes(4, "big") + b"\0\x0a\x03\x4a\x01x"
    assert (await ProtobufDeserializer(registry).deserialize("orders", data)).day.text == "x"


@pytest.mark.parametrize("imports", [["nowhere.proto"], ["order.proto"]])
async def test_an_import_that_nothing_has_is_named(
    registry: SchemaRegistry, imports: list[str]
) -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", syntax="proto3", dependency=imports
    )
    file.message_type.add(name="Order")
    text = base64.b64encode(file.SerializeToString()).decode()
    found = await registry.register("orders-value", Schema(text, "PROTOBUF"))
    with pytest.raises(SerializationError, match=f"imports {imports[0]}, which is neither"):
        data = b"\0" + found.id.to_bytes(4, "big") + b"\0"
        await ProtobufDeserializer(registry).deserialize("orders", data)
