"""Protobuf, with the package protobuf."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from aioprod.errors import ConfigError
from aioprod.preparation import NotPrepared
from aioprod.public_module import set_module
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.known_imports import known_imports
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.schemas import Schema, SchemaReference
from aioprod.schema_registry.serializers import SchemaDeserializer, SchemaSerializer
from aioprod.schema_registry.wire_format import Place, find_id, read_indexes, write_indexes
from aioprod.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.schema_registry.columns import ColumnTypes, Decode

_SERIALIZED = "serialized"


@set_module("aioprod.schema_registry")
class ProtobufSerializer(SchemaSerializer[bool]):
    """Serializes messages of one type.

    Its schema is the file of the type. The files that it imports are registered as references,
    except Google's and Confluent's, which are built into registries.

    Args:
        registry: the client of the registry.
        message_type: the generated class.
        reference_subject: returns the subject for the path of an imported file; by default the
            path.
        options: as in :class:`AvroSerializer`.

    Raises:
        ConfigError: if ``message_type`` is not a message class, or options contradict each
            other.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message],
        *,
        reference_subject: Callable[[str], str] = str,
        **options: Unpack[SerializerOptions],
    ) -> None:
        super().__init__(registry, **options)
        self._type = _checked(message_type)
        self._reference_subject = reference_subject
        self._indexes = write_indexes(indexes_of(message_type.DESCRIPTOR))

    async def own_schema(
        self, kind: Hashable, *, register: bool
    ) -> tuple[Schema | None, str | None]:
        """Return the file of the type, and the type's full name."""
        descriptor = self._type.DESCRIPTOR
        uses_own = not self._use_latest and self._use_id is None
        schema = await self._schema_of(descriptor.file, register) if uses_own else None
        return schema, descriptor.full_name

    async def _schema_of(self, file: Any, register: bool) -> Schema:
        references = []
        for used in file.dependencies:
            if used.name in known_imports():
                continue
            subject = self._reference_subject(used.name)
            schema = await self._schema_of(used, register)
            if register:
                await self.registry.register(subject, schema, normalize=self.normalize)
            place = await self.registry.lookup(subject, schema, normalize=self.normalize)
            references.append(SchemaReference(used.name, subject, place.version or 1))
        return Schema(_text_of(file), "PROTOBUF", tuple(references))

    async def parse(self, schema: Schema, kind: Hashable) -> bool:
        """Return True: a message is serialized by its own class."""
        return True

    def encode(self, parsed: bool, data: Any) -> bytes:
        """Serialize a message.

        Raises:
            TypeError: if it has another type.
        """
        if not isinstance(data, self._type):
            raise TypeError(f"must be {self._type.__name__}, not {type(data).__name__}")
        return data.SerializeToString()

    def encode_column(
        self, parsed: bool, prefix: bytes, column: pa.Array, first_row: int
    ) -> pa.Array:
        """Serialize each struct of a column as a message; nulls are not set."""
        from aioprod.schema_registry.columns import encode_one_by_one, python_values
        from aioprod.schema_registry.protobuf_columns import message_type

        write = message_type(self._type.DESCRIPTOR).write
        assert write is not None

        def encode(value: Any) -> bytes:
            return self._type(**write(value)).SerializeToString()

        return encode_one_by_one(python_values(column), prefix, encode, first_row)

    def id_suffix(self, kind: Hashable) -> bytes:
        """Return the indexes of the type in its file."""
        return self._indexes


@set_module("aioprod.schema_registry")
class ProtobufDeserializer(SchemaDeserializer["Messages"]):
    """Deserializes messages.

    Args:
        registry: the client of the registry.
        message_type: the generated class, which reads older and newer versions by Protobuf's rules,
            without the registry. None: the class is built from the record's schema. This requires a
            registry that returns schemas as descriptors (Confluent's).
        is_key: whether it deserializes keys.

    Raises:
        ConfigError: if ``message_type`` is not a message class.
    """

    form: str = _SERIALIZED

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message] | None = None,
        *,
        is_key: bool = False,
    ) -> None:
        super().__init__(registry, is_key=is_key)
        self._type = None if message_type is None else _checked(message_type)
        file: Any = None if self._type is None else self._type.DESCRIPTOR.file
        self._own = None if file is None else Messages(file)

    @property
    def has_reader(self) -> bool:
        """True if a class was given."""
        return self._type is not None

    def known(self, place: Place) -> Messages | None:
        """Return the schema of a record, or that of the class."""
        return super().known(place) if self._own is None else self._own

    def locate(self, headers: Headers, data: bytes) -> tuple[Place, int]:
        """Return the schema id and the message's indexes, and where the data begin."""
        schema_id, coded, end = find_id(headers, self._is_key, data)
        indexes, end = read_indexes(coded, end)
        return Place(schema_id, indexes), end if coded is data else 0

    async def parse_reader(self) -> None:
        """Do nothing: a class is ready."""

    def column_types(self, place: Place | None, newest: Messages | None) -> ColumnTypes:
        """Return the column types of the class, or of the newest schema."""
        from aioprod.schema_registry.columns import ColumnTypes
        from aioprod.schema_registry.protobuf_columns import message_type

        found = message_type(self._class(place, newest).DESCRIPTOR).arrow
        return ColumnTypes(found, found)

    def column_decoder(
        self, parsed: Messages, place: Place, reader: Place | None, newest: Messages | None
    ) -> Decode:
        """Return a function that decodes messages by the class, or by the newest schema. Protobuf's
        rules for unknown and missing fields apply.
        """
        from aioprod.schema_registry.protobuf_columns import message_type

        kind = self._class(reader, newest)
        read = message_type(kind.DESCRIPTOR).read
        assert read is not None
        if self._type is None:
            written = parsed.at(place.indexes).DESCRIPTOR.full_name
            if written != kind.DESCRIPTOR.full_name:
                raise ValueError(
                    f"messages of {written} and {kind.DESCRIPTOR.full_name} are in one topic: "
                    "a column has one type"
                )

        def decode(data: bytes, start: int) -> Any:
            try:
                return read(kind.FromString(data[start:]))
            except DecodeError as error:
                raise ValueError(f"the data is not a {kind.__name__}: {error}") from error

        return decode

    def _class(self, place: Place | None, newest: Messages | None) -> type[Message]:
        if self._type is not None:
            return self._type
        assert place is not None and newest is not None
        return newest.at(place.indexes)

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """Deserialize ``data``; a null is None.

        Raises:
            NotPrepared: if the schema has to be fetched.
            ValueError: if there is no schema id, or the data is not a message.
        """
        if data is None:
            return None
        schema_id, coded, end = find_id(headers, self._is_key, data)
        indexes, end = read_indexes(coded, end)
        message_type = self._type
        if message_type is None:
            messages = self._ready.get(schema_id)
            if messages is None:
                raise NotPrepared(partial(self._prepare, schema_id))
            message_type = messages.at(indexes)
        try:
            return message_type.FromString(data[end:] if coded is data else data)
        except DecodeError as error:
            raise ValueError(f"the data is not a {message_type.__name__}: {error}") from error

    async def parse(self, schema: Schema) -> Messages:
        """Build the classes of a file."""
        used = await self.registry.resolve(schema, form=_SERIALIZED)
        files = {name: _descriptor(each, name) for name, each in used.items()}
        own = _descriptor(schema, None)
        return Messages(_built(own, files))


class Messages:
    """The message classes of a file.

    Args:
        file: the file.
    """

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    def at(self, indexes: tuple[int, ...]) -> type[Message]:
        """Return the class at the indexes in the file.

        Raises:
            ValueError: if there is no message at that place.
        """
        found = self._classes.get(indexes)
        if found is None:
            types = list(self._file.message_types_by_name.values())
            descriptor: Descriptor | None = None
            for index in indexes:
                if not 0 <= index < len(types):
                    raise ValueError(f"the schema has no message at {list(indexes)}")
                descriptor = types[index]
                types = list(descriptor.nested_types)
            assert descriptor is not None
            found = self._classes[indexes] = GetMessageClass(descriptor)
        return found

    def named(self, name: str) -> type[Message]:
        """Return the class of a message by its full name.

        Raises:
            ValueError: if the file has no such message.
        """
        try:
            return GetMessageClass(self._file.pool.FindMessageTypeByName(name))
        except KeyError:
            known = ", ".join(each.full_name for each in self._file.message_types_by_name.values())
            raise ValueError(f"the schema has no message {name}; it has {known}") from None


def indexes_of(descriptor: Any) -> list[int]:
    """Return the indexes of a message and of its enclosing types in its file."""
    # Any: the type stubs have two unrelated classes of descriptors.
    above = descriptor.containing_type
    if above is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    names = [each.name for each in above.nested_types]
    return [*indexes_of(above), names.index(descriptor.name)]


def _built(
    own: descriptor_pb2.FileDescriptorProto,
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
) -> FileDescriptor:
    """Return a file with the files that it imports, which are references, or built in.

    Raises:
        ValueError: if an import is neither, or imports are circular.
    """
    pool = DescriptorPool()
    met: set[str] = set()
    stack = [(own, False)]
    while stack:
        file, has_imports = stack.pop()
        if has_imports:
            pool.Add(file)
            continue
        if file.name in met:
            continue
        met.add(file.name)
        stack.append((file, True))
        for name in file.dependency:
            found = files.get(name) or known_imports().get(name)
            if found is None:
                raise ValueError(
                    f"{file.name} imports {name}, which is neither a reference of the schema "
                    "nor built into registries"
                )
            stack.append((found, False))
    return pool.FindFileByName(own.name)


def _text_of(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _descriptor(schema: Schema, name: str | None) -> descriptor_pb2.FileDescriptorProto:
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(schema.text, validate=True)
        )
    except (binascii.Error, ValueError, DecodeError):
        raise ValueError(
            "the registry returned the text of a .proto file, not a descriptor: give message_type"
        ) from None
    found.name = name or found.name or "default"
    return found


def _checked(message_type: object) -> type[Message]:
    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ConfigError(f"message_type={message_type!r}: must be a class of Protobuf messages")
    return message_type
