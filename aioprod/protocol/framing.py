"""Size prefix and headers of messages.

A frame consists of the bytes after the 4-byte size. Requests of flexible versions have header
version 2, others 1; their responses have 1 and 0. The exception is the ApiVersions response, whose
header always has version 0, as clients read it before they know which versions the broker supports
(KIP-511).
"""

import struct
from typing import TypeVar, cast

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.primitives import BytesLike, Reader, RecordViewReader, Writer

ResponseT = TypeVar("ResponseT", bound=Message)

_INT32 = struct.Struct(">i")
_MAX_FRAME_SIZE = 0x7FFFFFFF
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
# Size of an ApiVersions response of version 0 without API keys.
_EMPTY_REFUSAL = _UNSUPPORTED_VERSION + bytes(4)


def request_header(
    api_key: int, version: int, flexible: bool, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a request's header without the size: version 2 if ``flexible``, else 1."""
    writer = Writer()
    writer.int16(api_key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)  # not compact, even in header version 2
    if flexible:
        writer.no_tagged_fields()
    return bytes(writer.buffer)


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return size, header and body of a request.

    Raises:
        ProtocolError: if the message can't be encoded in this version, or exceeds 2 GiB.
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


def decode_response(
    request_type: type[Request[ResponseT]], version: int, frame: BytesLike
) -> tuple[int, ResponseT]:
    """Return the correlation id and the message of the response to a request of this version.

    Raises:
        ProtocolError: if the frame is not such a response, or contains further bytes.
        UnsupportedVersionError: if the message does not have this version.
    """
    response = cast("type[ResponseT]", request_type.RESPONSE)
    if response.API_KEY == ApiVersionsRequest.API_KEY and bytes(frame[4:6]) == _UNSUPPORTED_VERSION:
        version = 0  # a broker can't respond in a version that it does not support (KIP-511)
        try:
            return _decode(response, version, frame)
        except ProtocolError:
            # librdkafka's mock cluster encodes parts of the response in the requested version. The
            # error code is sufficient for the client's next request.
            return Reader(frame).int32(), response.decode(_EMPTY_REFUSAL, 0)
    response.check_version(version)
    return _decode(response, version, frame)


def decode_with_views(
    request_type: type[Request[ResponseT]], version: int, frame: BytesLike
) -> tuple[int, ResponseT]:
    """Do what ``decode_response`` does, but return record batches of a large frame as views, which
    keep the frame in memory.
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
    return version >= response.FLEXIBLE_FROM and response.API_KEY != ApiVersionsRequest.API_KEY


def _size_prefix(size: int) -> bytes:
    if size > _MAX_FRAME_SIZE:
        raise ProtocolError(
            f"a frame of {size} bytes is larger than the limit of {_MAX_FRAME_SIZE}"
        )
    return _INT32.pack(size)
