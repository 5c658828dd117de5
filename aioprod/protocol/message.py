"""Base classes of the protocol's messages, which ``aioprod._tools.generate`` writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Self, TypeVar

from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.protocol.primitives import BytesLike, Reader, Writer

NEVER_FLEXIBLE = 32767

T = TypeVar("T")
ResponseT_co = TypeVar("ResponseT_co", bound="Message", covariant=True)


class Struct(ABC):
    """A group of fields whose encoding depends on the version of its message."""

    __slots__ = ()

    @abstractmethod
    def write(self, writer: Writer, version: int) -> None:
        """Append the fields of this version.

        Raises:
            ProtocolError: if a value does not fit its type, or this version does not have its
                field.
        """

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read the fields of this version. Other fields get their defaults; unknown tagged fields
        are skipped.

        Raises:
            ProtocolError: if the bytes are not valid.
        """


class Message(Struct):
    """A request or a response, without its header.

    Attributes:
        API_KEY: Kafka's number of the API.
        MIN_VERSION: the oldest version of Kafka 4.1.
        MAX_VERSION: the newest stable version of Kafka 4.1.
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
        """Raise UnsupportedVersionError unless the message has this version."""
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"
            )

    def encode(self, version: int) -> bytes:
        """Return the message's bytes, without header.

        Raises:
            ProtocolError: as ``write`` does.
            UnsupportedVersionError: if the message does not have this version.
        """
        self.check_version(version)
        writer = Writer()
        self.write(writer, version)
        return bytes(writer.buffer)

    @classmethod
    def decode(cls, data: BytesLike, version: int) -> Self:
        """Return the message whose bytes are ``data``.

        Raises:
            ProtocolError: if the bytes are not valid, or more than the message.
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
    """A message that a client sends. The type of its response is part of its type.

    Attributes:
        RESPONSE: the class of the response.
    """

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


def absent(field: str, version: int) -> ProtocolError:
    """Return the error for a field that is set, but missing in the version."""
    return ProtocolError(f"{field} is set, but version {version} does not have it")


def not_null(value: T | None, field: str, version: int) -> T:
    """Return ``value``; raise ProtocolError for None."""
    if value is None:
        raise ProtocolError(f"{field} must not be None in version {version}")
    return value
