"""The interfaces of serializers and deserializers, and the call of a serializer.

Every client imports this; the serializers themselves are in :mod:`aioprod.serialization`.
"""

# Without `from __future__ import annotations`, as in `aioprod.types`.

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from aioprod.errors import SerializationError
from aioprod.foreign_text import fault_of
from aioprod.preparation import NotPrepared
from aioprod.public_module import set_module
from aioprod.types import Header, Headers, V_co, V_contra
from aioprod.user_code import ENDS_PROGRAM

# The bound is what pyright takes the arguments of a lambda for.
K = TypeVar("K", bound=Any)
V = TypeVar("V", bound=Any)


@set_module("aioprod.serialization")
class WithHeaders(NamedTuple):
    """A result that a serializer may return instead of bytes: the record gets these headers,
    too.
    """

    data: bytes
    headers: tuple[Header, ...]


@set_module("aioprod.serialization")
class Serializer(Protocol[V_contra]):
    """A function, or an object that can be called: ``(topic, headers, data) -> bytes or None``.
    A ``Serializer[Order]`` accepts orders.

    An object may have two more methods. ``configure(settings, is_key)`` is called if the producer
    creates the object from a class or an import path. ``close()`` is called when the producer
    closes. All run in the event loop: they must not block, and can't be async. A serializer that
    has to wait raises :class:`aioprod.preparation.NotPrepared`.
    """

    def __call__(
        self, topic: str, headers: Headers, data: V_contra, /
    ) -> bytes | WithHeaders | None:
        """Return the bytes to store for ``data``; None stores a null.

        An error becomes the cause of a SerializationError for the record. ``send`` raises
        KeyboardInterrupt and SystemExit unchanged.
        """
        ...


@set_module("aioprod.serialization")
class Deserializer(Protocol[V_co]):
    """A function, or an object that can be called: ``(topic, headers, data) -> object``, where
    ``data`` is bytes, or None for a null. A ``Deserializer[Order]`` returns orders.

    An object may have two more methods. ``configure(settings, is_key)`` is called if the consumer
    creates the object from a class or an import path. ``close()`` is called when the consumer
    closes. All run in the event loop: they must not block, and can't be async. A deserializer that
    has to wait raises :class:`aioprod.preparation.NotPrepared`.
    """

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> V_co:
        """Return the object for the application.

        An error becomes the cause of a DeserializationError for the record; KeyboardInterrupt and
        SystemExit are raised unchanged. The application gets earlier records first, and the next
        call reads the record again.
        """
        ...


AnySerializer: TypeAlias = Serializer | Callable[[Any], bytes | None]
"""A :class:`Serializer`, or a function of the key or value alone. None is then a null, and not
given to the function.
"""

AnyDeserializer: TypeAlias = Deserializer | Callable[[bytes], Any]
"""A :class:`Deserializer`, or a function of the stored bytes alone. A null is then None, and not
given to the function.
"""

# Type checkers infer V from a lambda that is passed as a function, but not from one that is passed
# as a protocol.
Writes: TypeAlias = (
    Callable[[str, Headers, V], bytes | WithHeaders | None] | Callable[[V], bytes | None]
)
"""An AnySerializer of V, as the type of a parameter."""
Reads: TypeAlias = Callable[[str, Headers, bytes | None], V] | Callable[[bytes], V]
"""An AnyDeserializer that returns V, as the type of a parameter."""


def serialize(
    serializer: AnySerializer | None, setting: str, topic: str, headers: Headers, data: Any
) -> bytes | WithHeaders | None:
    """Serialize a key or value; without a serializer, it must be bytes.

    Args:
        serializer: the serializer that the configuration has, which accepts topic, headers and
            data; or None.
        setting: ``"key_serializer"`` or ``"value_serializer"``, for the error.
        topic, headers, data: topic, headers and data of the record.

    Raises:
        SerializationError: if it fails. The text has the type of the data, but not the data.
        NotPrepared: if the serializer raised it; ``prepare`` it, and try again.
    """
    if serializer is None:
        if data is None or type(data) is bytes:
            return data
        return _copied(
            data,
            f"the {_what(setting)} must be bytes, not {_name(data)}: pass bytes, or set {setting}, "
            f"such as {'StringSerializer' if isinstance(data, str) else 'JsonSerializer'}()",
        )
    try:
        stored = serializer(topic, headers, data)  # type: ignore[call-arg]
    except ENDS_PROGRAM:
        raise
    except NotPrepared as needed:
        needed.describe = partial(_serialization_error, serializer, setting, topic, data)
        raise
    except BaseException as error:
        raise _serialization_error(serializer, setting, topic, data, error) from error
    if stored is None or type(stored) is bytes or type(stored) is WithHeaders:
        return stored
    if inspect.iscoroutine(stored):
        stored.close()
    return _copied(
        stored,
        f"{setting}: {_serializer_name(serializer)} must return bytes or None, not {_name(stored)}",
    )


def _serialization_error(
    serializer: AnySerializer, setting: str, topic: str, data: Any, error: BaseException
) -> SerializationError:
    what = f"a {_what(setting)} of type {_name(data)} for topic {topic!r}"
    failure = SerializationError(
        f"{setting}: {_serializer_name(serializer)} failed for {what}: {_reason(error)}"
    )
    failure.__cause__ = error
    return failure


def _copied(data: Any, complaint: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        # A copy: the caller may change its buffer after send.
        return bytes(data)
    raise SerializationError(complaint)


def _what(setting: str) -> str:
    return setting.removesuffix("_serializer")


def _name(data: object) -> str:
    return type(data).__name__


def _serializer_name(serializer: AnySerializer) -> str:
    return str(getattr(serializer, "__qualname__", _name(serializer)))


def _reason(error: BaseException) -> str:
    return f"{_name(error)}: {fault_of(error)}"
