"""The equivalents of Java's serializers and deserializers, by class name."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.serialization import (
    BooleanDeserializer,
    BooleanSerializer,
    BytesDeserializer,
    BytesSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    FloatDeserializer,
    FloatSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    LongDeserializer,
    LongSerializer,
    ShortDeserializer,
    ShortSerializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
    UUIDSerializer,
    VoidDeserializer,
    VoidSerializer,
)

_JAVA_PACKAGE = "org.apache.kafka.common.serialization."


def _by_java_name(kind: str, *classes: type) -> dict[str, type]:
    names = {each.__name__: each for each in classes}
    names |= dict.fromkeys((f"ByteArray{kind}", f"ByteBuffer{kind}"), names[f"Bytes{kind}"])
    return {_JAVA_PACKAGE + name: each for name, each in names.items()}


#: The classes by the names of Java's classes with the same format.
JAVA_CLASSES: Mapping[str, type] = {
    **_by_java_name(
        "Serializer",
        BytesSerializer,
        StringSerializer,
        ShortSerializer,
        IntegerSerializer,
        LongSerializer,
        FloatSerializer,
        DoubleSerializer,
        BooleanSerializer,
        UUIDSerializer,
        VoidSerializer,
    ),
    **_by_java_name(
        "Deserializer",
        BytesDeserializer,
        StringDeserializer,
        ShortDeserializer,
        IntegerDeserializer,
        LongDeserializer,
        FloatDeserializer,
        DoubleDeserializer,
        BooleanDeserializer,
        UUIDDeserializer,
        VoidDeserializer,
    ),
}
