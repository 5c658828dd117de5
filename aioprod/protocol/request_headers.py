"""Decodes the headers of requests, as brokers do."""

from typing import NamedTuple

from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import NEVER_FLEXIBLE
from aioprod.protocol.primitives import BytesLike, Reader

_FLEXIBLE_FROM = {int(key): key.flexible_from for key in ApiKey}


class RequestHeader(NamedTuple):
    """The header of a request. The body begins at ``body_offset`` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def decode_request_header(frame: BytesLike) -> RequestHeader:
    """Return the header of a request, which may have an unknown version.

    The header of an unknown API is decoded without tagged fields.

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
