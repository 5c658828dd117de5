"""How keys, values and headers become bytes, and bytes keys and values again (``key.serializer``,
``value.deserializer``).
"""

from __future__ import annotations

import inspect
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from aioprod.errors import ConfigError, SerializationError
from aioprod.types import Header, Headers
from aioprod.user_code import ENDS_PROGRAM


class Serializer(Protocol):
    """``(topic, headers, data) -> bytes or None``: a function, or an object that can be called so.

    An object may also have ``configure(settings, is_key)``, called once where the producer made it
    from a class or an import path, and ``close()``, called when the producer closes. It runs in the
    event loop: it must not block, and can't be async.
    """

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> bytes | None:
        """The bytes to store for ``data``; None stores a null.

        Any error is the cause of a SerializationError for that record, but for KeyboardInterrupt
        and SystemExit, which come out of ``send`` as they are.
        """
        ...


class Deserializer(Protocol):
    """``(topic, headers, data) -> object``: a function, or an object that can be called so;
    ``data`` is bytes, or None for a null.

    An object may also have ``configure(settings, is_key)``, called once where the consumer made it
    from a class or an import path, and ``close()``, called when the consumer closes. It runs in the
    event loop: it must not block, and can't be async.
    """

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """What the application gets.

        Any error is the cause of a DeserializationError that names the record, but for
        KeyboardInterrupt and SystemExit, which come out as they are. Records before it are handed
        out first, and the next call finds the record again.
        """
        ...


class TypedSerializer:
    """Base of the serializers here: takes data of certain types only, and stores None as a null."""

    takes: ClassVar[tuple[type, ...]] = ()

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> bytes | None:
        """The bytes of ``data``.

        Raises:
            TypeError: data of another type, such as a bool where a number is taken.
            ValueError: data that has no such form, such as a number that is too large.
        """
        if data is None:
            return None
        if not isinstance(data, self.takes) or (isinstance(data, bool) and bool not in self.takes):
            raise TypeError(
                f"{' or '.join(kind.__name__ for kind in self.takes) or 'None'} is expected"
            )
        return self.encode(data)

    def encode(self, data: Any) -> bytes:
        """The bytes of data that has the right type and is not None."""
        raise NotImplementedError


class BytesSerializer(TypedSerializer):
    """Bytes as they are; bytearray and memoryview are copied. What a producer without serializers
    does.
    """

    takes = (bytes, bytearray, memoryview)

    def encode(self, data: bytes | bytearray | memoryview) -> bytes:
        """A copy, unless it can't change."""
        return bytes(data)


class StringSerializer(TypedSerializer):
    """Text in UTF-8 or another encoding."""

    takes = (str,)

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise ConfigError(f"encoding={encoding!r}: Python knows no such encoding") from None
        self._encoding = encoding

    def encode(self, data: str) -> bytes:
        """The text's bytes."""
        return data.encode(self._encoding)


class JsonSerializer:
    """Anything that ``json.dumps`` takes, as compact UTF-8; None is a null and not the JSON word
    ``null``.

    Args:
        default: for objects that JSON doesn't know, as in ``json.dumps``.
        sort_keys: write objects' names in order, so that equal data has equal bytes: needed for
            keys.
    """

    def __init__(
        self, default: Callable[[Any], Any] | None = None, *, sort_keys: bool = True
    ) -> None:
        self._encode = json.JSONEncoder(
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            default=default,
            sort_keys=sort_keys,
        ).encode

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> bytes | None:
        """The JSON text of ``data``. TypeError or ValueError for what has no JSON form, NaN and
        infinities too.
        """
        return None if data is None else self._encode(data).encode()


class _NumberSerializer(TypedSerializer):
    form: ClassVar[struct.Struct]

    def encode(self, data: Any) -> bytes:
        try:
            return self.form.pack(data)
        except (struct.error, OverflowError):
            raise ValueError(f"the number does not fit into {self.form.size} bytes") from None


class ShortSerializer(_NumberSerializer):
    """Whole numbers in 2 bytes, big end first, as Java's."""

    takes = (int,)
    form = struct.Struct(">h")


class IntegerSerializer(_NumberSerializer):
    """Whole numbers in 4 bytes, big end first, as Java's."""

    takes = (int,)
    form = struct.Struct(">i")


class LongSerializer(_NumberSerializer):
    """Whole numbers in 8 bytes, big end first, as Java's."""

    takes = (int,)
    form = struct.Struct(">q")


class FloatSerializer(_NumberSerializer):
    """Numbers in the 4 bytes of IEEE single precision, as Java's."""

    takes = (float, int)
    form = struct.Struct(">f")


class DoubleSerializer(_NumberSerializer):
    """Numbers in the 8 bytes of IEEE double precision, as Java's."""

    takes = (float, int)
    form = struct.Struct(">d")


class BooleanSerializer(TypedSerializer):
    """True and False as one byte, 1 or 0, as Java's."""

    takes = (bool,)

    def encode(self, data: bool) -> bytes:
        """One byte."""
        return b"\x01" if data else b"\x00"


class UUIDSerializer(TypedSerializer):
    """UUIDs as text, as Java's."""

    takes = (uuid.UUID,)

    def encode(self, data: uuid.UUID) -> bytes:
        """36 characters."""
        return str(data).encode()


class VoidSerializer(TypedSerializer):
    """Takes None only, as Java's."""


class BytesDeserializer:
    """Bytes as they are. What a consumer without deserializers does."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> bytes | None:
        """The same bytes."""
        return data


class StringDeserializer:
    """Text from UTF-8 or another encoding; a null is None."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            "".encode(encoding)
        except LookupError:
            raise ConfigError(f"encoding={encoding!r}: Python knows no such encoding") from None
        self._encoding = encoding

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> str | None:
        """The text."""
        return None if data is None else data.decode(self._encoding)


class JsonDeserializer:
    """What ``json.loads`` makes of the bytes; a null is None."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """Objects, lists, text, numbers."""
        return None if data is None else json.loads(data)


class _NumberDeserializer:
    form: ClassVar[struct.Struct]

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> Any:
        """The number; a null is None."""
        if data is None:
            return None
        if len(data) != self.form.size:
            raise ValueError(f"{len(data)} bytes where {self.form.size} are expected")
        return self.form.unpack(data)[0]


class ShortDeserializer(_NumberDeserializer):
    """Whole numbers of 2 bytes, big end first, as Java's."""

    form = ShortSerializer.form


class IntegerDeserializer(_NumberDeserializer):
    """Whole numbers of 4 bytes, big end first, as Java's."""

    form = IntegerSerializer.form


class LongDeserializer(_NumberDeserializer):
    """Whole numbers of 8 bytes, big end first, as Java's."""

    form = LongSerializer.form


class FloatDeserializer(_NumberDeserializer):
    """Numbers of IEEE single precision, as Java's."""

    form = FloatSerializer.form


class DoubleDeserializer(_NumberDeserializer):
    """Numbers of IEEE double precision, as Java's."""

    form = DoubleSerializer.form


class BooleanDeserializer:
    """One byte, 1 or 0, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> bool | None:
        """True or False; a null is None."""
        if data not in (None, b"\x00", b"\x01"):
            raise ValueError("one byte, 0 or 1, is expected")
        return None if data is None else data == b"\x01"


class UUIDDeserializer:
    """UUIDs from text, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> uuid.UUID | None:
        """The UUID; a null is None."""
        return None if data is None else uuid.UUID(data.decode("ascii"))


class VoidDeserializer:
    """Takes nulls only, as Java's."""

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> None:
        """None."""
        if data is not None:
            raise ValueError("a null is expected")


_JAVA_PACKAGE = "org.apache.kafka.common.serialization."
#: Java's classes, for configurations written for Java, and ours that store the same bytes.
JAVA_SERIALIZERS: Mapping[str, type] = {
    _JAVA_PACKAGE + "ByteArraySerializer": BytesSerializer,
    _JAVA_PACKAGE + "ByteBufferSerializer": BytesSerializer,
    _JAVA_PACKAGE + "BytesSerializer": BytesSerializer,
    _JAVA_PACKAGE + "StringSerializer": StringSerializer,
    _JAVA_PACKAGE + "ShortSerializer": ShortSerializer,
    _JAVA_PACKAGE + "IntegerSerializer": IntegerSerializer,
    _JAVA_PACKAGE + "LongSerializer": LongSerializer,
    _JAVA_PACKAGE + "FloatSerializer": FloatSerializer,
    _JAVA_PACKAGE + "DoubleSerializer": DoubleSerializer,
    _JAVA_PACKAGE + "BooleanSerializer": BooleanSerializer,
    _JAVA_PACKAGE + "UUIDSerializer": UUIDSerializer,
    _JAVA_PACKAGE + "VoidSerializer": VoidSerializer,
}
#: The same for deserializers.
JAVA_DESERIALIZERS: Mapping[str, type] = {
    _JAVA_PACKAGE + "ByteArrayDeserializer": BytesDeserializer,
    _JAVA_PACKAGE + "ByteBufferDeserializer": BytesDeserializer,
    _JAVA_PACKAGE + "BytesDeserializer": BytesDeserializer,
    _JAVA_PACKAGE + "StringDeserializer": StringDeserializer,
    _JAVA_PACKAGE + "ShortDeserializer": ShortDeserializer,
    _JAVA_PACKAGE + "IntegerDeserializer": IntegerDeserializer,
    _JAVA_PACKAGE + "LongDeserializer": LongDeserializer,
    _JAVA_PACKAGE + "FloatDeserializer": FloatDeserializer,
    _JAVA_PACKAGE + "DoubleDeserializer": DoubleDeserializer,
    _JAVA_PACKAGE + "BooleanDeserializer": BooleanDeserializer,
    _JAVA_PACKAGE + "UUIDDeserializer": UUIDDeserializer,
    _JAVA_PACKAGE + "VoidDeserializer": VoidDeserializer,
}


def serialize(
    serializer: Serializer | None, setting: str, topic: str, headers: Headers, data: Any
) -> bytes | None:
    """The bytes of a key or value; without a serializer, data must be bytes.

    Args:
        setting: ``"key_serializer"`` or ``"value_serializer"``, for the error.

    Raises:
        SerializationError: it can't be done; names the class given, the one expected, and the
            setting. The data itself is not in the text.
    """
    if serializer is None:
        return _stored(
            setting,
            data,
            (
                f"the {_what(setting)} is of type {_name(data)}, bytes is expected: give bytes, "
                f"or set {setting}"
            ),
        )
    try:
        stored = serializer(topic, headers, data)
    except ENDS_PROGRAM:
        raise
    except BaseException as error:
        what = f"a {_what(setting)} of type {_name(data)} for topic {topic!r}"
        raise SerializationError(
            f"{setting}: {_serializer_name(serializer)} can't turn {what} into bytes: "
            f"{_reason(error)}"
        ) from error
    if inspect.iscoroutine(stored):
        stored.close()
    return _stored(
        setting,
        stored,
        (
            f"{setting}: {_serializer_name(serializer)} returned {_name(stored)}, bytes or None "
            "is expected"
        ),
    )


def _stored(setting: str, data: Any, complaint: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        # A copy: the caller may change its buffer after send.
        return bytes(data)
    raise SerializationError(complaint)


def _what(setting: str) -> str:
    return setting.removesuffix("_serializer")


def _name(data: object) -> str:
    return type(data).__name__


def _serializer_name(serializer: Serializer) -> str:
    return str(getattr(serializer, "__qualname__", _name(serializer)))


def _reason(error: BaseException) -> str:
    # A UnicodeError's own text shows the data.
    return (
        f"{_name(error)}: {error.reason}"
        if isinstance(error, UnicodeEncodeError)
        else f"{_name(error)}: {error}"
    )


def check_headers(headers: Headers) -> tuple[Header, ...]:
    """A read-only copy of a record's headers: order and duplicates are kept.

    Raises:
        SerializationError: a header is not a pair of str, and bytes or None.
    """
    if not headers:
        return ()
    try:
        given = list(headers)
    except TypeError:
        raise SerializationError(
            f"headers of type {_name(headers)}: must be a list of (name, value) pairs"
        ) from None
    if isinstance(headers, str | bytes | bytearray | Mapping):
        raise SerializationError(
            f"headers of type {_name(headers)}: must be a list of (name, value) pairs"
        )
    return tuple(_checked_header(header) for header in given)


def _check_text(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(
            f"header {name!r}: its name is no text that UTF-8 can write ({error.reason})"
        ) from None


def _checked_header(header: Any) -> Header:
    try:
        name, value = header
    except (TypeError, ValueError):
        raise SerializationError(
            f"a header of type {_name(header)}: must be a (name, value) pair"
        ) from None
    if not isinstance(name, str):
        raise SerializationError(f"a header's name is of type {_name(name)}: must be str")
    if not name.isascii():
        _check_text(name)
    if not (value is None or isinstance(value, bytes | bytearray | memoryview)):
        raise SerializationError(
            f"header {name!r} has a value of type {_name(value)}: must be bytes or None"
        )
    return name, None if value is None else bytes(value)
