"""Size prefix and headers around the messages.

A frame is the bytes behind the 4-byte size. Flexible requests have header version 2, others 1;
their responses have 1 and 0. The exception is the ApiVersions response: its header always has
version 0, as a client reads it before it knows which versions the broker supports (KIP-511).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar, cast

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import NEVER_FLEXIBLE, Message, Request
from aioprod.protocol.primitives import BytesLike, Reader, RecordViewReader, Writer

ResponseT = TypeVar("ResponseT", bound=Message)

_INT32 = struct.Struct(">i")
_MAX_FRAME_SIZE = 0x7FFFFFFF
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
# An ApiVersions response of version 0 without any versions.
_EMPTY_REFUSAL = _UNSUPPORTED_VERSION + bytes(4)
_FLEXIBLE_FROM = {int(key): key.flexible_from for key in ApiKey}


@dataclass(slots=True, frozen=True)
class RequestHeader:
    """The header of a request; the body begins at ``body_offset`` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def request_header(
    api_key: int, version: int, flexible: bool, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a request's header without the size: version 2 if ``flexible``, else 1."""
    writer = Writer()
    writer.int16(api_key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)  # not compact, in header version 2 either
    if flexible:
        writer.no_tagged_fields()
    return bytes(writer.buffer)


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return size, header and body of a request.

    Raises:
        ProtocolError: if the message can't be written in this version, or has more than 2 GiB.
        UnsupportedVersionError: if the message does not have this version.
    """
    body = message.encode(version)
    header = request_header(
        message.API_KEY, version, version >= message.FLEXIBLE_FROM, correlation_id, client_id
    )
    return b"".join((_size_prefix(len(header) + len(body)), header, body))


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """Return size, header and body of a response; raise as ``encode_request`` does."""
    body = message.encode(version)
    tagged_fields = b"\0" if _has_tagged_header(type(message), version) else b""
    return b"".join(
        (
            _size_prefix(4 + len(tagged_fields) + len(body)),
            _INT32.pack(correlation_id),
            tagged_fields,
            body,
        )
    )


def decode_request_header(frame: BytesLike) -> RequestHeader:
    """Return the header of a request, also of an unknown version.

    The header of an unknown API is read without tagged fields.

    Raises:
        ProtocolError: if the frame does not begin with a header.
    """
    reader = Reader(frame)
    api_key = reader.int16()
    version = reader.int16()
    correlation_id = reader.int32()
    client_id = reader.nullable_string()
    if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
        reader.skip_tagged_fields()
    return RequestHeader(api_key, version, correlation_id, client_id, reader.offset)


def decode_response(
    request_type: type[Request[ResponseT]], version: int, frame: BytesLike
) -> tuple[int, ResponseT]:
    """Return correlation id and message of the response to a request of this version.

    Raises:
        ProtocolError: if the frame is not such a response, or has more bytes.
        UnsupportedVersionError: if the message does not have this version.
    """
    response = cast("type[ResponseT]", request_type.RESPONSE)
    if response.API_KEY == ApiKey.API_VERSIONS and bytes(frame[4:6]) == _UNSUPPORTED_VERSION:
        version = 0  # a broker that does not support a version can't answer in it (KIP-511)
        try:
            return _decode(response, version, frame)
        except ProtocolError:
            # librdkafka's mock cluster writes parts of the response in the requested version. The
            # error code is enough for the client's next request.
            return Reader(frame).int32(), response.decode(_EMPTY_REFUSAL, 0)
    response.check_version(version)
    return _decode(response, version, frame)


def decode_with_views(
    request_type: type[Request[ResponseT]], version: int, frame: BytesLike
) -> tuple[int, ResponseT]:
    """Return what ``decode_response`` does, with record batches as views of a large frame, which
    they keep in memory.
    """
    response = cast("type[ResponseT]", request_type.RESPONSE)
    response.check_version(version)
    return _decode(response, version, frame, RecordViewReader)


def _decode(
    response: type[ResponseT], version: int, frame: BytesLike, reader_type: type[Reader] = Reader
) -> tuple[int, ResponseT]:
    reader = reader_type(frame)
    correlation_id = reader.int32()
    if _has_tagged_header(response, version):
        reader.skip_tagged_fields()
    message = response.read(reader, version)
    if reader.remaining:
        raise ProtocolError(
            f"{reader.remaining} bytes are left over after {response.__name__} version {version}"
        )
    return correlation_id, message


def _has_tagged_header(response: type[Message], version: int) -> bool:
    return version >= response.FLEXIBLE_FROM and response.API_KEY != ApiKey.API_VERSIONS


def _size_prefix(size: int) -> bytes:
    if size > _MAX_FRAME_SIZE:
        raise ProtocolError(
            f"a frame of {size} bytes is larger than the limit of {_MAX_FRAME_SIZE}"
        )
    return _INT32.pack(size)
