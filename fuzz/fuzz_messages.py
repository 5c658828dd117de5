"""Requests, responses and the members' data in groups: an error, or a message that has the same
bytes whenever it is written again.
"""

from __future__ import annotations

import re
import types
import typing
import uuid
from typing import Any

from fuzz.running import instrumented, run

with instrumented(__name__):
    from aioprod.errors import ProtocolError
    from aioprod.protocol.consumer_protocol import (
        Assignment,
        Subscription,
        decode_assignment,
        decode_subscription,
        encode_assignment,
        encode_subscription,
    )
    from aioprod.protocol.framing import decode_response, encode_request, encode_response
    from aioprod.protocol.message import Request, Struct
    from aioprod.protocol.messages.registry import REQUESTS
    from aioprod.protocol.produce_decoder import StoredBatches, decode_produce_response
    from aioprod.protocol.request_headers import decode_request_header
    from aioprod.types import TopicPartition

_KEYS = sorted(REQUESTS)
_PRODUCE = 0
_RESPONSE, _REQUEST, _HEADER, _SUBSCRIPTION, _ASSIGNMENT = range(5)
_VALUES: dict[Any, Any] = {
    int: 1,
    float: 0.5,
    bool: True,
    str: "topic",
    bytes: b"data",
    uuid.UUID: uuid.UUID(int=5),
}
_ABSENT = re.compile(r"(\w+)\.(\w+) (?:is set, but version|must not be None)")


def TestOneInput(data: bytes) -> None:
    """Choose what the bytes are by the first one, the API and its version by the next two."""
    if len(data) < 3:
        return
    form, api, number, body = data[0] % 5, data[1] % len(_KEYS), data[2], data[3:]
    try:
        if form in (_RESPONSE, _REQUEST):
            request = REQUESTS[_KEYS[api]]
            version = request.MIN_VERSION + number % (request.MAX_VERSION - request.MIN_VERSION + 1)
            (_response if form == _RESPONSE else _request)(request, version, body)
        elif form == _HEADER:
            decode_request_header(body)
        elif form == _SUBSCRIPTION:
            written = encode_subscription(decode_subscription(body))
            assert encode_subscription(decode_subscription(written)) == written
        else:
            written = encode_assignment(decode_assignment(body))
            assert encode_assignment(decode_assignment(written)) == written
    except ProtocolError:
        pass


def _request(request: type[Request[Any]], version: int, body: bytes) -> None:
    written = request.decode(body, version).encode(version)
    assert request.decode(written, version).encode(version) == written


def _response(request: type[Request[Any]], version: int, body: bytes) -> None:
    correlation_id, response = decode_response(request, version, body)
    if request.API_KEY == _PRODUCE:
        _check_places(response, decode_produce_response(request, version, body)[1])
    frame = encode_response(response, version, correlation_id)[4:]
    again = decode_response(request, version, frame)
    assert encode_response(again[1], version, again[0])[4:] == frame


def _check_places(response: Any, quick: Any) -> None:
    """Compare the two readers of Produce responses."""
    if isinstance(quick, StoredBatches):
        found = {
            (topic.name or topic.topic_id.bytes, partition.index): (
                partition.base_offset,
                partition.log_append_time_ms,
            )
            for topic in response.responses
            for partition in topic.partition_responses
        }
        assert quick.places == found and quick.throttle_time_ms == response.throttle_time_ms
    else:
        assert quick == response


def seeds() -> list[bytes]:
    """Return a request and a response of each API and version, and data of members."""
    found = [
        bytes((_SUBSCRIPTION, 0, 0))
        + encode_subscription(Subscription(("a", "b"), b"x", (TopicPartition("a", 1),), 3, "r")),
        bytes((_ASSIGNMENT, 0, 0)) + encode_assignment(Assignment((TopicPartition("a", 1),), b"x")),
    ]
    for place, key in enumerate(_KEYS):
        request = REQUESTS[key]
        for number, version in enumerate(range(request.MIN_VERSION, request.MAX_VERSION + 1)):
            prefix = bytes((place, number))
            body = encode_request(_example(request, version), version, 7, "client")[4:]
            found.append(bytes((_HEADER,)) + prefix + body)
            body = _example(request, version).encode(version)
            found.append(bytes((_REQUEST,)) + prefix + body)
            body = encode_response(_example(request.RESPONSE, version), version, 7)[4:]
            found.append(bytes((_RESPONSE,)) + prefix + body)
    return found


def _example(message: type[Struct], version: int) -> Any:
    """Return a message with a value in each field of a version."""
    without: set[tuple[str, str]] = set()
    while True:
        made = _made(message, without)
        try:
            made.encode(version)
        except ProtocolError as error:
            field = _ABSENT.match(str(error))
            if field is None:
                raise
            without.add((field[1], field[2]))
        else:
            return made


def _made(kind: Any, without: set[tuple[str, str]]) -> Any:
    if kind in _VALUES:
        return _VALUES[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple):
        return origin([_made(arguments[0], without)])
    if origin in (types.UnionType, typing.Union):
        return _made(next(each for each in arguments if each is not types.NoneType), without)
    hints = typing.get_type_hints(kind.__init__)
    return kind(
        **{
            name: _made(hints[name], without)
            for name in kind.__slots__
            if (kind.__name__, name) not in without
        }
    )


if __name__ == "__main__":
    run(TestOneInput, seeds())
