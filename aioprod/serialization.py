"""Serializers and deserializers of keys and values."""

import json
import struct
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Generic

from aioprod.decoding_limits import DEFAULT_LIMITS, DecodingLimits, load_json
from aioprod.errors import ConfigError
from aioprod.serializing import Deserializer as Deserializer
from aioprod.serializing import Serializer as Serializer
from aioprod.serializing import WithHeaders as WithHeaders
from aioprod.types import Headers, V_co, V_contra

__all__ = [
    "BooleanDeserializer",
    "BooleanSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FloatDeserializer",
    "FloatSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "LongDeserializer",
    "LongSerializer",
    "Serializer",
    "ShortDeserializer",
    "ShortSerializer",
    "StringDeserializer",
    "StringSerializer",
    "TypedSerializer",
    "UUIDDeserializer",
    "UUIDSerializer",
    "VoidDeserializer",
    "VoidSerializer",
    "WithHeaders",
]


class TypedSerializer(Generic[V_contra]):
    """Base class of serializers that accept certain types; None is stored as a null."""

    takes: ClassVar[tuple[type, ...]] = ()

    def __call__(self, topic: str, headers: Headers, data: V_contra | None, /) -> bytes | None:
        """Serialize ``data``.

        Raises:
            TypeError: if ``data`` has another type, such as bool for a number.
            ValueError: if ``data`` can't be represented, such as a number that is too large.
        """
        if data is None:
            return None
        if not isinstance(data, self.takes) or (isinstance(data, bool) and bool not in self.takes):
            raise TypeError(
                f"expected {' or '.join(kind.__name__ for kind in self.takes) or 'None'}"
            )
        return self.encode(data)

    def encode(self, data: V_contra) -> bytes:
        """Serialize data of an accepted type."""
        raise NotImplementedError


class BytesSerializer(TypedSerializer[bytes | bytearray | memoryview]):
    """Accepts bytes, bytearray and memoryview, as a producer without serializers does."""

    takes: ClassVar[tuple[type, ...]] = (bytes, bytearray, memoryview)

    def encode(self, data: bytes | bytearray | memoryview) -> bytes:
        """Copy the data, unless it is bytes."""
        return bytes(data)


class StringSerializer(TypedSerializer[str]):
    """Encodes text, as UTF-8 by default."""

    takes: ClassVar[tuple[type, ...]] = (str,)

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise ConfigError(f"encoding={encoding!r}: Python has no such encoding") from None
        self._encoding = encoding

    def encode(self, data: str) -> bytes:
        """Encode text."""
        return data.encode(self._encoding)


class JsonSerializer:
    """Encodes objects as compact JSON in UTF-8; None is stored as a null, not as JSON's ``null``.

    Models of pydantic, dataclasses, ``datetime``, ``UUID``, ``Decimal``, ``Enum`` and others are
    converted; docs/recipes/json.md has the list.

    Args:
        default: converts objects that JSON does not support, as in ``json.dumps``, in place of the
            conversions above.
        sort_keys: sort the names in objects, so that equal keys of records have equal bytes.
    """

    def __init__(
        self, default: Callable[[Any], Any] | None = None, *, sort_keys: bool = True
    ) -> None:
        self._converts = default is None
        self._encode = json.JSONEncoder(
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=_to_jsonable if default is None else default,
            sort_keys=sort_keys,
        ).encode

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> bytes | None:
        """Encode ``data``.

        Raises:
            TypeError, ValueError: if JSON can't represent it, such as NaN or an infinity; or if it
                is bytes, which are probably JSON already.
        """
        if data is None:
            return None
        if self._converts and isinstance(data, bytes | bytearray | memoryview):
            raise TypeError("pass the object, not bytes: they would be encoded twice")
        try:
            return self._encode(data).encode()
        except TypeError:
            if not self._converts:
                raise
        # A key that is not text, perhaps: the encoder does not convert keys.
        from aioprod.json_values import to_jsonable, with_text_keys

        return self._encode(with_text_keys(data, to_jsonable)).encode()


def _to_jsonable(value: Any) -> Any:
    from aioprod.json_values import to_jsonable

    return to_jsonable(value)


class _NumberSerializer(TypedSerializer[V_contra]):
    form: ClassVar[struct.Struct]

    def encode(self, data: V_contra) -> bytes:
        try:
            return self.form.pack(data)
        except (struct.error, OverflowError):
            raise ValueError(f"the number does not fit into {self.form.size} bytes") from None


class ShortSerializer(_NumberSerializer[int]):
    """Whole numbers in 2 bytes, big end first, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (int,)
    form: ClassVar[struct.Struct] = struct.Struct(">h")


class IntegerSerializer(_NumberSerializer[int]):
    """Whole numbers in 4 bytes, big end first, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (int,)
    form: ClassVar[struct.Struct] = struct.Struct(">i")


class LongSerializer(_NumberSerializer[int]):
    """Whole numbers in 8 bytes, big end first, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (int,)
    form: ClassVar[struct.Struct] = struct.Struct(">q")


class FloatSerializer(_NumberSerializer[float]):
    """Numbers in the 4 bytes of IEEE single precision, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (float, int)
    form: ClassVar[struct.Struct] = struct.Struct(">f")


class DoubleSerializer(_NumberSerializer[float]):
    """Numbers in the 8 bytes of IEEE double precision, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (float, int)
    form: ClassVar[struct.Struct] = struct.Struct(">d")


class BooleanSerializer(TypedSerializer[bool]):
    """True and False as one byte, 1 or 0, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (bool,)

    def encode(self, data: bool) -> bytes:
        """One byte."""
        return b"\x01" if data else b"\x00"


class UUIDSerializer(TypedSerializer[uuid.UUID]):
    """UUIDs as text, as Java's."""

    takes: ClassVar[tuple[type, ...]] = (uuid.UUID,)

    def encode(self, data: uuid.UUID) -> bytes:
        """36 characters."""
        return str(data).encode()


class VoidSerializer(TypedSerializer[None]):
    """Accepts None only, as Java's."""


class BytesDeserializer:
    """Returns bytes, as a consumer without deserializers does."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> bytes | None:
        """Return the bytes."""
        return data


class StringDeserializer:
    """Decodes text, from UTF-8 by default; a null is None."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise ConfigError(f"encoding={encoding!r}: Python has no such encoding") from None
        self._encoding = encoding

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> str | None:
        """Decode text."""
        return None if data is None else data.decode(self._encoding)


class JsonDeserializer:
    """Decodes JSON by ``json.loads``; a null is None.

    Args:
        limits: the limits of a record, of which ``max_depth`` counts here.
    """

    def __init__(self, *, limits: DecodingLimits = DEFAULT_LIMITS) -> None:
        self._max_depth = limits.max_depth

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """Decode JSON.

        Raises:
            ValueError: if it is not JSON, or nested too deep.
        """
        return None if data is None else load_json(data, self._max_depth)


class _NumberDeserializer(Generic[V_co]):
    form: ClassVar[struct.Struct]

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> V_co | None:
        """Decode a number; a null is None."""
        if data is None:
            return None
        if len(data) != self.form.size:
            raise ValueError(f"expected {self.form.size} bytes, got {len(data)}")
        number: V_co = self.form.unpack(data)[0]
        return number


class ShortDeserializer(_NumberDeserializer[int]):
    """Whole numbers of 2 bytes, big end first, as Java's."""

    form: ClassVar[struct.Struct] = ShortSerializer.form


class IntegerDeserializer(_NumberDeserializer[int]):
    """Whole numbers of 4 bytes, big end first, as Java's."""

    form: ClassVar[struct.Struct] = IntegerSerializer.form


class LongDeserializer(_NumberDeserializer[int]):
    """Whole numbers of 8 bytes, big end first, as Java's."""

    form: ClassVar[struct.Struct] = LongSerializer.form


class FloatDeserializer(_NumberDeserializer[float]):
    """Numbers of IEEE single precision, as Java's."""

    form: ClassVar[struct.Struct] = FloatSerializer.form


class DoubleDeserializer(_NumberDeserializer[float]):
    """Numbers of IEEE double precision, as Java's."""

    form: ClassVar[struct.Struct] = DoubleSerializer.form


class BooleanDeserializer:
    """One byte, 1 or 0, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> bool | None:
        """Decode True or False; a null is None."""
        if data not in (None, b"\x00", b"\x01"):
            raise ValueError("expected one byte, 0 or 1")
        return None if data is None else data == b"\x01"


class UUIDDeserializer:
    """UUIDs from text, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> uuid.UUID | None:
        """Decode a UUID; a null is None."""
        return None if data is None else uuid.UUID(data.decode("ascii"))


class VoidDeserializer:
    """Accepts nulls only, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> None:
        """Return None."""
        if data is not None:
            raise ValueError("expected a null")
