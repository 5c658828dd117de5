"""Names and values of the semantic conventions for messaging, and the context in headers."""

from __future__ import annotations

from contextlib import suppress

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Span, Status, StatusCode

from aioprod.errors import BrokerError
from aioprod.foreign_text import text_of
from aioprod.types import Header, Headers

Attributes = dict[str, str | int | bool]

# As the conventions recommend.
DURATION_BOUNDARIES = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)


def operation(name: str, kind: str) -> Attributes:
    """Return the attributes of an operation: its name, such as ``poll``, and the conventions' type,
    such as ``receive``.
    """
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def error_type(error: BaseException) -> str:
    """Return ``error.type``: the name of the broker's error code, such as ``MESSAGE_TOO_LARGE``, if
    there is one, else the exception's class.
    """
    return error.code.name if isinstance(error, BrokerError) else type(error).__qualname__


def server_attributes(address: str) -> dict[str, str | int]:
    """Return the attributes of a broker at ``host:port``."""
    host, _, port = address.rpartition(":")
    return {
        "server.address": host.removeprefix("[").removesuffix("]"),
        "server.port": int(port),
    }


def body_attributes(key: object, value: object) -> Attributes:
    """Return what spans show of key and value: the key if it is text, and the size of bytes."""
    attributes: Attributes = {}
    if isinstance(key, str):
        attributes["messaging.kafka.message.key"] = key
    if value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    elif isinstance(value, bytes | bytearray | memoryview):
        attributes["messaging.message.body.size"] = len(value)
    return attributes


def duration_histogram(meter: Meter) -> Histogram:
    """Make ``messaging.client.operation.duration``."""
    return meter.create_histogram(
        "messaging.client.operation.duration",
        unit="s",
        description="Duration of messaging operation initiated by a producer or consumer client.",
        explicit_bucket_boundaries_advisory=DURATION_BOUNDARIES,
    )


def end_span(span: Span, error: BaseException | None) -> None:
    """End a span, with an error if there is one."""
    if error is not None:
        span.set_attribute("error.type", error_type(error))
        with suppress(Exception):  # its text may fail
            span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, text_of(error)))
    span.end()


class _HeaderSetter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        # A forwarded record may have the headers of an earlier span.
        carrier[:] = [header for header in carrier if header[0] != key]
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        values = [value for name, value in carrier if name == key and value is not None]
        # The last one is of the last sender.
        return [values[-1].decode(errors="replace")] if values else None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


HEADER_SETTER = _HeaderSetter()
HEADER_GETTER = _HeaderGetter()
