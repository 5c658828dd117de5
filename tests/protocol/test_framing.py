from __future__ import annotations

import io
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import (
    decode_response,
    encode_request,
    encode_response,
    request_header,
)
from aioprod.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioprod.protocol.messages.registry import REQUESTS
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aioprod.protocol.request_headers import RequestHeader, decode_request_header

CLIENT_IDS = st.none() | st.text(max_size=20)


@given(st.integers(0, 100), st.integers(0, 20), st.integers(-(1 << 31), (1 << 31) - 1), CLIENT_IDS)
def test_request_headers_are_those_of_kio(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    for flexible, kio_header in ((False, KioRequestHeaderV1), (True, KioRequestHeaderV2)):
        buffer = io.BytesIO()
        header = kio_header(
            request_api_key=i16(api_key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
        entity_writer(type(header))(buffer, header)
        assert (
            request_header(api_key, version, flexible, correlation_id, client_id)
            == buffer.getvalue()
        )


@given(st.integers(0, 13), st.integers(0, (1 << 31) - 1), CLIENT_IDS)
def test_a_request_is_size_header_and_body(
    version: int, correlation_id: int, client_id: str | None
) -> None:
    request = MetadataRequest([MetadataRequestTopic(name="orders")])
    data = encode_request(request, version, correlation_id, client_id)
    frame = data[4:]
    assert struct.unpack(">i", data[:4]) == (len(frame),)
    header = decode_request_header(frame)
    assert header == RequestHeader(
        ApiKey.METADATA, version, correlation_id, client_id, header.body_offset
    )
    assert frame[header.body_offset :] == request.encode(version)
    assert decode_request_header(memoryview(frame)) == header


@pytest.mark.parametrize("api_key", REQUESTS)
def test_default_messages_of_every_version_come_back_equal(api_key: int) -> None:
    request_type = REQUESTS[api_key]
    for version in range(request_type.MIN_VERSION, request_type.MAX_VERSION + 1):
        frame = encode_request(request_type(), version, 1, "me")[4:]
        assert (
            request_type.decode(frame[decode_request_header(frame).body_offset :], version)
            == request_type()
        )
        response = request_type.RESPONSE()
        assert decode_response(
            request_type, version, encode_response(response, version, 9)[4:]
        ) == (9, response)


def test_response_header_versions() -> None:
    """Version 1 (with tagged fields) if the response is flexible, else 0."""
    for version, kio_header in ((8, KioResponseHeaderV0), (9, KioResponseHeaderV1)):
        buffer = io.BytesIO()
        entity_writer(kio_header)(buffer, kio_header(correlation_id=i32(77)))
        response = MetadataResponse(cluster_id="c")
        data = encode_response(response, version, 77)
        assert data[4:] == buffer.getvalue() + response.encode(version)
        assert struct.unpack(">i", data[:4]) == (len(data) - 4,)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_response_always_has_header_version_0(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 0, 13)])
    data = encode_response(response, version, 5)
    assert data[4:] == struct.pack(">i", 5) + response.encode(version)
    assert decode_response(ApiVersionsRequest, version, data[4:]) == (5, response)


def test_tagged_fields_in_headers_are_skipped() -> None:
    frame = struct.pack(">hhih", ApiKey.METADATA, 12, 1, -1) + b"\x01\x00\x02ab" + b"body"
    assert decode_request_header(frame).body_offset == len(frame) - 4
    response = MetadataResponse()
    assert decode_response(
        MetadataRequest, 12, struct.pack(">i", 3) + b"\x01\x07\x01x" + response.encode(12)
    ) == (3, response)


def test_headers_of_unknown_apis_and_versions_are_read() -> None:
    """A broker must be able to answer a request whose version it does not have."""
    frame = request_header(ApiKey.API_VERSIONS, 99, True, 7, "x")
    assert decode_request_header(frame) == RequestHeader(
        ApiKey.API_VERSIONS, 99, 7, "x", len(frame)
    )
    frame = request_header(9999, 0, False, 7, "x")
    assert decode_request_header(frame) == RequestHeader(9999, 0, 7, "x", len(frame))


def test_sasl_handshake_is_never_flexible() -> None:
    frame = encode_request(SaslHandshakeRequest("PLAIN"), 1, 0, None)[4:]
    assert decode_request_header(frame).body_offset == 10


def test_left_over_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="1 bytes are left over"):
        decode_response(MetadataRequest, 12, encode_response(MetadataResponse(), 12, 1)[4:] + b"\0")


@pytest.mark.parametrize("rest", ["0100120000000200000000", ""])
def test_a_refusal_of_apiversions_need_not_be_readable_behind_its_error(rest: str) -> None:
    """librdkafka's mock cluster mixes two versions in it."""
    frame = bytes.fromhex("000000070023" + rest)
    assert decode_response(ApiVersionsRequest, 4, frame) == (
        7,
        ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION),
    )


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        encode_request(MetadataRequest(), 14, 0, None)
    with pytest.raises(UnsupportedVersionError):
        encode_response(MetadataResponse(), -1, 0)
    with pytest.raises(UnsupportedVersionError):
        decode_response(MetadataRequest, 14, b"")


@given(st.binary(max_size=60))
def test_garbage_raises_protocol_error_only(frame: bytes) -> None:
    for version in (0, 13):
        try:
            decode_response(MetadataRequest, version, frame)
        except ProtocolError:
            pass
    try:
        assert decode_request_header(frame).body_offset <= len(frame)
    except ProtocolError:
        pass


def test_topic_ids_survive_the_frame() -> None:
    request = MetadataRequest([MetadataRequestTopic(topic_id=uuid.UUID(int=5), name=None)])
    frame = encode_request(request, 13, 1, None)[4:]
    assert MetadataRequest.decode(frame[decode_request_header(frame).body_offset :], 13) == request
