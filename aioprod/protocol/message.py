"""Base classes of the protocol's messages, which ``aioprod._tools.generate`` generates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.protocol.primitives import BytesLike, Reader, Writer

NEVER_FLEXIBLE = 32767

#: Stands for a mutable default value, such as a list, of which each object gets a new one.
UNSET: Final[Any] = object()

T = TypeVar("T")
ResponseT_co = TypeVar("ResponseT_co", bound="Message", covariant=True)


class Struct(ABC):
    """A group of fields whose encoding depends on the version of its message.

    The classes are not dataclasses: Python takes ten times as long to create these, and a client
    imports a hundred of them.

    Attributes:
        SECRETS: the fields that the repr leaves out.
    """

    __slots__: tuple[str, ...] = ()

    SECRETS: ClassVar[tuple[str, ...]] = ()
    _values: ClassVar[Any]  # an attrgetter of all fields

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__slots__:
            cls._values = attrgetter(*cls.__slots__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values(self) == self._values(other)

    def __repr__(self) -> str:
        shown = (name for name in self.__slots__ if name not in self.SECRETS)
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({fields})"

    @abstractmethod
    def write(self, writer: Writer, version: int) -> None:
        """Encode the fields of this version.

        Raises:
            ProtocolError: if a value does not fit its type, or a field is set that this version
                does not have.
        """

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Decode the fields of this version. Other fields get their defaults; unknown tagged fields
        are skipped.

        Raises:
            ProtocolError: if the bytes are not valid.
        """


class Message(Struct):
    """A request or a response, without its header.

    Attributes:
        API_KEY: the API key.
        MIN_VERSION: the lowest version.
        MAX_VERSION: the highest version.
        FLEXIBLE_FROM: the first version with compact lengths and tagged fields (KIP-482), or
            ``NEVER_FLEXIBLE``.
    """

    __slots__ = ()

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise UnsupportedVersionError if the message does not have this version."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"
            )

    def encode(self, version: int) -> bytes:
        """Return the encoded message, without header.

        Raises:
            ProtocolError: see ``write``.
            UnsupportedVersionError: if the message does not have this version.
        """
        self.check_version(version)
        writer = Writer()
        self.write(writer, version)
        return bytes(writer.buffer)

    @classmethod
    def decode(cls, data: BytesLike, version: int) -> Self:
        """Decode a message.

        Raises:
            ProtocolError: if the bytes are invalid, or there are more than those of the message.
            UnsupportedVersionError: if the message does not have this version.
        """
        cls.check_version(version)
        reader = Reader(data)
        message = cls.read(reader, version)
        if reader.remaining:
            raise ProtocolError(
                f"{reader.remaining} bytes are left over after {cls.__name__} version {version}"
            )
        return message


class Request(Message, Generic[ResponseT_co]):
    """A message that a client sends. Its type parameter is the type of the response.

    Attributes:
        RESPONSE: the class of the response.
    """

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


def absent(field: str, version: int) -> ProtocolError:
    """Return the error for a field that is set, although the version does not have it."""
    return ProtocolError(f"{field} is set, but version {version} does not have it")


def not_null(value: T | None, field: str, version: int) -> T:
    """Return ``value``. Raise ProtocolError for None."""
    if value is None:
        raise ProtocolError(f"{field} must not be None in version {version}")
    return value
