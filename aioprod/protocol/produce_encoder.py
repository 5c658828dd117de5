"""Encodes Produce requests. Handwritten, as the generated encoder copies every batch.

A test compares both byte by byte, for every version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from aioprod.errors import ProtocolError
from aioprod.native import accelerated
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.varints import encode_uvarint

MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
_FIRST_FLEXIBLE: Final = 9

_API_KEY: Final = ProduceRequest.API_KEY
_SIZE_AND_HEADER: Final = struct.Struct(">ihhi")
_HEADER_SIZE: Final = _SIZE_AND_HEADER.size - 4
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_AND_SIZE: Final = struct.Struct(">ii")

# Cached, as lengths of batches and names repeat.
_uvarint = lru_cache(1024)(encode_uvarint)

Topic = tuple[str | bytes, Sequence[tuple[int, bytes | memoryview]]]


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[Topic],
) -> list[bytes | memoryview]:
    """Return a Produce request with size and header, as buffers for ``writelines``. The batches are
    not copied.

    Args:
        topics: for each topic its name, or from version 13 on (KIP-516) the 16 bytes of its id, and
            pairs of partition and batch.

    Raises:
        ProtocolError: if the version is outside 3..13, or a string is too long.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise ProtocolError(f"Produce version {version} is outside {MIN_VERSION}..{MAX_VERSION}")
    start = _start(version, client_id, transactional_id, acks, timeout_ms)
    return join_request(version, correlation_id, start, topics)


@accelerated
def join_request(
    version: int, correlation_id: int, start: bytes, topics: list[Topic], /
) -> list[bytes | memoryview]:
    """Return a request, whose bytes between correlation id and topics are ``start``."""
    if version < _FIRST_FLEXIBLE:
        buffers = _encode_topics(start + _INT32.pack(len(topics)), topics)
    else:
        buffers = _encode_flexible_topics(start + _uvarint(len(topics) + 1), topics)
    size = sum(map(len, buffers)) + _HEADER_SIZE
    buffers[0] = _SIZE_AND_HEADER.pack(size, _API_KEY, version, correlation_id) + buffers[0]
    return buffers


@lru_cache(64)
def _start(
    version: int, client_id: str | None, transactional_id: str | None, acks: int, timeout_ms: int
) -> bytes:
    """Return the bytes between correlation id and topics, which are equal in all requests of a
    producer.
    """
    if version < _FIRST_FLEXIBLE:
        return b"".join(
            (
                _string(client_id),
                _string(transactional_id),
                _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
            )
        )
    return b"".join(
        (
            _string(client_id),
            b"\0",
            _compact_string(transactional_id),
            _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
        )
    )


def _encode_topics(pending: bytes, topics: list[Topic]) -> list[bytes | memoryview]:
    buffers: list[bytes | memoryview] = []
    for name, partitions in topics:
        assert isinstance(name, str), "a version without topic ids"
        pending += _string(name) + _INT32.pack(len(partitions))
        for index, batch in partitions:
            buffers += (pending + _INDEX_AND_SIZE.pack(index, len(batch)), batch)
            pending = b""
    if pending:
        buffers.append(pending)
    return buffers


def _encode_flexible_topics(pending: bytes, topics: list[Topic]) -> list[bytes | memoryview]:
    buffers: list[bytes | memoryview] = []
    for topic, partitions in topics:
        pending += (topic if isinstance(topic, bytes) else _compact_string(topic)) + _uvarint(
            len(partitions) + 1
        )
        for index, batch in partitions:
            buffers += (pending + _INT32.pack(index) + _uvarint(len(batch) + 1), batch)
            pending = b"\0"  # the partition's tagged fields
        pending += b"\0"  # the topic's
    buffers.append(pending + b"\0")  # the request's
    return buffers


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ProtocolError(f"string of {len(encoded)} bytes, Kafka's limit is {0x7FFF}")
    return _INT16.pack(len(encoded)) + encoded


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ProtocolError(f"string of {len(encoded)} bytes, Kafka's limit is {0x7FFF}")
    return _uvarint(len(encoded) + 1) + encoded
