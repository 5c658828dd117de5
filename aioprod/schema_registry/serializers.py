"""The common parts of the serializers of all formats: schema lookups, and schema ids in records.

A call is synchronous if the schema is known. Otherwise the serializer raises NotPrepared, and the
client awaits the request to the registry.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Unpack

from aioprod.column_serialization import DecodedColumn, EncodedColumn
from aioprod.errors import ConfigError, SerializationError
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.column_reading import MOST_KEPT, ColumnReading
from aioprod.schema_registry.model_fields import is_model
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.schemas import RegisteredSchema, Schema, SchemaRegistryError
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.schema_registry.subjects import SubjectNameStrategy, topic_name
from aioprod.schema_registry.wire_format import (
    KEY_HEADER,
    VALUE_HEADER,
    SchemaId,
    find_id,
    write_id,
)
from aioprod.schema_registry.work_apart import TakesLong
from aioprod.serializing import WithHeaders
from aioprod.types import Header, Headers

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.schema_registry.columns import Shape

P = TypeVar("P")
"""A schema in the form that its format uses."""

GivenSchema = str | Schema | Mapping[str, Any] | list[Any] | type | None
"""The forms in which an application can give a schema in JSON."""


class _Ready(NamedTuple, Generic[P]):
    """The schema with which the records of a topic are serialized.

    Attributes:
        parsed: the schema.
        schema_id: the bytes of its id.
        until: loop time when the latest version is fetched again; None for never.
    """

    parsed: P
    schema_id: bytes
    until: float | None


class SchemaSerializer(Generic[P]):
    """Base class of the serializers. Format classes implement :meth:`parse`, :meth:`encode` and
    :meth:`own_schema`.

    Args:
        registry: the client of the registry.
        is_key: whether it serializes keys.
        auto_register: register the schema; otherwise it must already be registered.
        use_latest_version: write with the latest version of the subject instead of the own schema.
        use_schema_id: write with the schema that has this id.
        latest_ttl_ms: how long a latest version is used; None: without a limit.
        normalize: let the registry normalize the schema.
        subject: returns the name of the subject.
        id_in_header: write the schema's GUID to a header of the record instead of in front of the
            data.

    Raises:
        ConfigError: if arguments contradict each other.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        is_key: bool = False,
        auto_register: bool = True,
        use_latest_version: bool = False,
        use_schema_id: int | None = None,
        latest_ttl_ms: float | None = None,
        normalize: bool = False,
        subject: SubjectNameStrategy = topic_name,
        id_in_header: bool = False,
    ) -> None:
        if use_latest_version and use_schema_id is not None:
            raise ConfigError("use_latest_version and use_schema_id are both set: set one of them")
        self.registry = registry
        self._is_key = is_key
        self._auto_register = auto_register
        self._use_latest = use_latest_version
        self._use_id = use_schema_id
        self._ttl_s = None if latest_ttl_ms is None else latest_ttl_ms / 1000
        self.normalize = normalize
        self._subject = subject
        self._header = (KEY_HEADER if is_key else VALUE_HEADER) if id_in_header else None
        self._ready: BoundedCache[tuple[str, Hashable], _Ready[P]] = BoundedCache(MOST_KEPT)

    # -- what formats implement --------------------------------------------------------------------

    def kind_of(self, data: Any) -> Hashable:
        """Return a key for the schema of data; None if all data has the same schema."""
        return None

    async def own_schema(
        self, kind: Hashable, *, register: bool
    ) -> tuple[Schema | None, str | None]:
        """Return the serializer's own schema for data of a kind, and the name of its record.

        Args:
            register: whether to register the schemas that it refers to, too.
        """
        raise NotImplementedError

    async def parse(self, schema: Schema, kind: Hashable) -> P:
        """Convert a schema to the form that :meth:`encode` uses."""
        raise NotImplementedError

    def encode(self, parsed: P, data: Any) -> bytes:
        """Serialize data."""
        raise NotImplementedError

    def encode_column(self, parsed: P, prefix: bytes, column: pa.Array, first_row: int) -> pa.Array:
        """Serialize each value of a column, after ``prefix``; nulls stay nulls.

        Args:
            first_row: the number of the first value, for errors.

        Raises:
            TypeError, ValueError: if the column does not fit the schema; the message names it.
        """
        raise NotImplementedError

    def id_suffix(self, kind: Hashable) -> bytes:
        """Return the bytes that follow the schema's id."""
        return b""

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> bytes | WithHeaders | None:
        """Serialize ``data``; None is a null.

        Raises:
            NotPrepared: if the schema has to be fetched.
            TypeError, ValueError: if the data doesn't fit the schema.
        """
        if data is None:
            return None
        ready = self._ready_for(topic, self.kind_of(data))
        encoded = self.encode(ready.parsed, data)
        if self._header is None:
            return ready.schema_id + encoded
        return WithHeaders(encoded, ((self._header, ready.schema_id),))

    def column_encoder(self, topic: str) -> Callable[[Any], EncodedColumn]:
        """Return a function that serializes Arrow columns for a topic; any thread may call it.

        Raises:
            NotPrepared: if the schema has to be fetched.
        """
        return partial(self._encoded_column, self._ready_for(topic, None))

    def _encoded_column(self, ready: _Ready[P], column: Any) -> EncodedColumn:
        from aioprod.schema_registry.columns import encode_in_portions

        prefix = ready.schema_id if self._header is None else b""
        data = encode_in_portions(column, partial(self.encode_column, ready.parsed, prefix))
        headers = () if self._header is None else ((self._header, ready.schema_id),)
        return EncodedColumn(data, headers)

    async def serialize(self, topic: str, data: Any) -> tuple[bytes | None, tuple[Header, ...]]:
        """Serialize data without a producer; return the bytes, and the headers of the record.

        Raises:
            SerializationError: if the schema can't be fetched; the cause is the error of the
            registry. TypeError, ValueError: if the data doesn't fit the schema.
        """
        for _ in range(MOST_ATTEMPTS):
            try:
                found = self(topic, (), data)
            except NotPrepared as needed:
                await _prepared(needed)
            else:
                return found if isinstance(found, WithHeaders) else (found, ())
        raise SerializationError(
            f"the schema for topic {topic!r} was repeatedly evicted from the cache"
        )

    def _ready_for(self, topic: str, kind: Hashable) -> _Ready[P]:
        ready = self._ready.get((topic, kind))
        if ready is None or _has_expired(ready):
            raise NotPrepared(partial(self._prepare, topic, kind))
        return ready

    async def _prepare(self, topic: str, kind: Hashable) -> None:
        subject, found = await self._find(topic, kind)
        schema_id: SchemaId = found.id
        if self._header is not None:
            schema_id = await self._guid_of(subject, found)
        parsed = await self.parse(found.schema, kind)
        until = None
        if self._use_latest and self._ttl_s is not None:
            until = asyncio.get_running_loop().time() + self._ttl_s
        ready = _Ready(parsed, write_id(schema_id) + self.id_suffix(kind), until)
        self._ready.put((topic, kind), ready)

    async def _find(self, topic: str, kind: Hashable) -> tuple[str, RegisteredSchema]:
        registers = self._auto_register and not self._use_latest and self._use_id is None
        schema, name = await self.own_schema(kind, register=registers)
        subject = self._subject(topic, self._is_key, name)
        if self._use_id is not None:
            given = await self.registry.get_schema(self._use_id)
            return subject, RegisteredSchema(given, self._use_id, subject)
        if self._use_latest:
            return subject, await self.registry.get_version(subject)
        if schema is None:
            raise ConfigError(
                "the serializer has no schema: give one, or set use_latest_version or use_schema_id"
            )
        ask = self.registry.register if self._auto_register else self.registry.lookup
        return subject, await ask(subject, schema, normalize=self.normalize)

    async def _guid_of(self, subject: str, found: RegisteredSchema) -> uuid.UUID:
        if found.guid is None:  # not all registries return it when a schema is registered
            found = await self.registry.lookup(subject, found.schema, normalize=self.normalize)
        if found.guid is None:
            raise SchemaRegistryError(
                f"the registry returned no GUID for schema {found.id} of {subject}, which "
                "id_in_header requires",
                status=0,
                subject=subject,
            )
        return uuid.UUID(found.guid)


class JsonSchemaTextSerializer(SchemaSerializer[P]):
    """Base class for formats whose schemas are JSON. They implement :meth:`record_name`, too.

    Args:
        registry: the client of the registry.
        schema: in any form; None to use the registry's.
        schema_from: converts it to a schema, and checks it.
        options: as in :class:`SchemaSerializer`.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema,
        schema_from: Callable[[GivenSchema], Schema | None],
        **options: Unpack[SerializerOptions],
    ) -> None:
        super().__init__(registry, **options)
        self._schema = schema_from(schema)
        if self._schema is None and not (self._use_latest or self._use_id is not None):
            raise ConfigError("schema is missing: give it, or set use_latest_version")

    def record_name(self, content: Any) -> str | None:
        """Return the record name in the content of a schema."""
        raise NotImplementedError

    async def own_schema(
        self, kind: Hashable, *, register: bool
    ) -> tuple[Schema | None, str | None]:
        """Return the given schema and the name of its records."""
        if self._schema is None:
            return None, None
        return self._schema, self.record_name(json.loads(self._schema.text))


class SchemaDeserializer(ColumnReading[P]):
    """Base class of the deserializers. Format classes implement :meth:`parse` and :meth:`decode`,
    and for columns the abstract methods of :class:`ColumnReading`.

    The schema id is read from the record's header if it has one, otherwise from the first bytes of
    the data.

    Args:
        registry: the client of the registry.
        is_key: whether it deserializes keys.
    """

    def __init__(self, registry: SchemaRegistry, *, is_key: bool = False) -> None:
        super().__init__(is_key=is_key)
        self.registry = registry

    form: str | None = None
    """The form in which the registry returns schemas of this format."""

    async def parse(self, schema: Schema) -> P:
        """Convert the schema of a record to the form that :meth:`decode` uses."""
        raise NotImplementedError

    def decode(self, parsed: P, data: bytes) -> Any:
        """Deserialize the data that follow the id."""
        raise NotImplementedError

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """Deserialize ``data``; a null is None.

        Raises:
            NotPrepared: if the schema has to be fetched.
            ValueError: if there is no schema id, or the data doesn't fit the schema.
        """
        if data is None:
            return None
        schema_id, coded, end = find_id(headers, self._is_key, data)
        parsed = self._ready.get(schema_id)
        if parsed is None:
            raise NotPrepared(partial(self._prepare, schema_id))
        content = data[end:] if coded is data else data
        if self._apart and (outcome := self._apart.take((schema_id, content))) is not None:
            if outcome.error is not None:
                raise outcome.error
            return outcome.value
        try:
            return self.decode(parsed, content)
        except TakesLong:
            decode = partial(self.decode, parsed, content)
            raise self._apart.start((schema_id, content), decode) from None

    async def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> Any:
        """Deserialize data without a consumer.

        Raises:
            SerializationError: if the schema can't be fetched; the cause is the error of the
            registry. ValueError: if there is no schema id, or the data doesn't fit the schema.
        """
        for _ in range(MOST_ATTEMPTS):
            try:
                return self(topic, headers, data)
            except NotPrepared as needed:
                await _prepared(needed)
        raise SerializationError(
            f"a schema for topic {topic!r} was repeatedly evicted from the cache"
        )

    async def _prepare(self, schema_id: SchemaId) -> None:
        if isinstance(schema_id, int):
            schema = await self.registry.get_schema(schema_id, form=self.form)
        else:
            schema = await self.registry.get_schema_by_guid(str(schema_id), form=self.form)
        self._ready.put(schema_id, await self.parse(schema))


class JsonSchemaTextDeserializer(SchemaDeserializer[P]):
    """Base class for formats whose schemas are JSON.

    Args:
        registry: the client of the registry.
        reader_schema: the schema that the application knows, in any form, or None.
        schema_from: converts it to a schema, and checks it.
        model: the class to convert each record to; its schema is the reader's unless that is given.
        from_dict: creates the result instead of ``model``.
        is_key: whether it deserializes keys.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: GivenSchema,
        schema_from: Callable[[GivenSchema], Schema | None],
        *,
        model: type | None,
        from_dict: Callable[[Any], Any] | None,
        is_key: bool,
    ) -> None:
        super().__init__(registry, is_key=is_key)
        if is_model(reader_schema) and model is None:
            assert isinstance(reader_schema, type)
            model = reader_schema
        self._reader_schema = schema_from(model if reader_schema is None else reader_schema)
        self._model = model
        self._from_dict = from_dict

    @property
    def has_reader(self) -> bool:
        """True if there is a reader's schema."""
        return self._reader_schema is not None

    def deserialize_column(
        self, topic: str, headers: Any, column: Any, *, shape: Shape | None = None
    ) -> DecodedColumn:
        """Deserialize an Arrow column to the types of the schema, even if there is a model."""
        if self._from_dict is not None:
            raise ConfigError(
                "from_dict is not called for columns: deserialize records, or leave it out"
            )
        return super().deserialize_column(topic, headers, column, shape=shape)

    def _result(self, content: Any, from_content: Callable[[Any, Any], Any]) -> Any:
        if self._from_dict is not None:
            return self._from_dict(content)
        return content if self._model is None else from_content(self._model, content)


def _has_expired(ready: _Ready[P]) -> bool:
    return ready.until is not None and asyncio.get_running_loop().time() >= ready.until


async def _prepared(needed: NotPrepared) -> None:
    await needed.prepare()
    if needed.error is not None:
        raise SerializationError(f"the schema can't be fetched: {needed.error}") from needed.error
