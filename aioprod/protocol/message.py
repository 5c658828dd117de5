"""What all protocol messages have in common. The messages themselves are generated, see
``aioprod._tools.generate``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Self, TypeVar

from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.protocol.primitives import BytesLike, Reader, Writer

NEVER_FLEXIBLE = 32767

T = TypeVar("T")
ResponseT_co = TypeVar("ResponseT_co", bound="Message", covariant=True)


class Struct(ABC):
    """A group of fields whose form depends on the version of the message that it is part of."""

    __slots__ = ()

    @abstractmethod
    def write(self, writer: Writer, version: int) -> None:
        """Append the fields of this version.

        Raises:
            ProtocolError: a field does not fit its type, or is set to something that this version
                can't carry.
        """

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Take the fields of this version; the others get their defaults, unknown tagged fields are
        skipped.

        Raises:
            ProtocolError: the bytes are no such struct.
        """


class Message(Struct):
    """A request or a response, without its header.

    Attributes:
        API_KEY: Kafka's number of the API.
        MIN_VERSION: the oldest version that Kafka 4.1 has.
        MAX_VERSION: the newest stable version that Kafka 4.1 has.
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
        """Raises UnsupportedVersionError for a version outside ``MIN_VERSION`` to
        ``MAX_VERSION``.
        """
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"
            )

    def encode(self, version: int) -> bytes:
        """The message's bytes, without header.

        Raises:
            ProtocolError: as for ``write``.
            UnsupportedVersionError: there is no such version.
        """
        self.check_version(version)
        writer = Writer()
        self.write(writer, version)
        return bytes(writer.buffer)

    @classmethod
    def decode(cls, data: BytesLike, version: int) -> Self:
        """The message that ``data`` holds, all of it.

        Raises:
            ProtocolError: the bytes are no such message, or there are bytes left over.
            UnsupportedVersionError: there is no such version.
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
    """A message that a client sends; the type of its answer is part of its own type.

    Attributes:
        RESPONSE: the class of the answer.
    """

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


def absent(field: str, version: int) -> ProtocolError:
    """The error for a field that is set although the version does not have it."""
    return ProtocolError(f"{field} is set, but version {version} does not have it")


def not_null(value: T | None, field: str, version: int) -> T:
    """``value``, unless it is None in a version that does not allow that."""
    if value is None:
        raise ProtocolError(f"{field} must not be None in version {version}")
    return value
