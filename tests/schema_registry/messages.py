"""Messages of Protobuf, made without a compiler."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

STRING, INT64, MESSAGE = (FieldDescriptorProto.Type.ValueType(number) for number in (9, 3, 11))
OPTIONAL = FieldDescriptorProto.Label.ValueType(1)


def field(
    name: str, number: int, kind: FieldDescriptorProto.Type.ValueType, of: str = ""
) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name, number=number, type=kind, label=OPTIONAL, type_name=of or None
    )


def message(name: str, *fields: Any, nested: tuple[Any, ...] = ()) -> DescriptorProto:
    return DescriptorProto(name=name, field=fields, nested_type=nested)


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    pool.Add(
        FileDescriptorProto(
            name="shop/address.proto",
            package="shop",
            syntax="proto3",
            message_type=[message("Address", field("street", 1, STRING))],
        )
    )
    inner = message("Inner", field("text", 1, STRING))
    middle = message("Middle", field("n", 1, INT64), nested=(message("Other"), inner))
    pool.Add(
        FileDescriptorProto(
            name="shop/user.proto",
            package="shop",
            syntax="proto3",
            dependency=["shop/address.proto", "google/protobuf/timestamp.proto"],
            message_type=[
                message(
                    "User",
                    field("name", 1, STRING),
                    field("home", 2, MESSAGE, ".shop.Address"),
                    field("at", 3, MESSAGE, ".google.protobuf.Timestamp"),
                ),
            ],
        )
    )
    pool.Add(
        FileDescriptorProto(
            name="shop/outer.proto",
            package="shop",
            syntax="proto3",
            message_type=[message("First"), message("Outer", nested=(middle,))],
        )
    )
    pool.Add(
        FileDescriptorProto(
            name="shop/note.proto",
            package="shop",
            syntax="proto3",
            message_type=[message("Note", field("text", 1, STRING))],
        )
    )
    return pool


_POOL = _pool()


def type_of(name: str) -> Any:
    """The class of a message."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"shop.{name}"))


Note, User, Inner = type_of("Note"), type_of("User"), type_of("Outer.Middle.Inner")
Address = type_of("Address")
EXAMPLES = (
    Note(text="a note"),
    User(name="Ann", home=Address(street="Main")),
    Inner(text="nested"),
)
