"""Errors for failed connections, which name the likely cause and the setting to change."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from aioprod.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from aioprod.net.bounds import MAX_REPLY_BYTES
from aioprod.protocol.frame_reader import MIN_FRAME_BYTES, FrameSizeError
from aioprod.protocol.message import Request

# TLS alerts with which a broker refuses this client's certificate, or its absence. With TLS 1.3,
# they arrive after the handshake, instead of the first reply.
_CERTIFICATE_ALERTS = (
    "ALERT_CERTIFICATE",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_ACCESS_DENIED",
)
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "UNEXPECTED_EOF_WHILE_READING",
)
_LONGEST_HOST = 255  # the limit of DNS
_HIGHEST_PORT = 65_535
# The first bytes of a TLS alert, decoded as the size of a reply. A TLS port sends it to a client
# without TLS.
_TLS_ALERT_SIZES = range(0x15030000, 0x15030500)


def connection_failure(
    address: str, error: OSError, *, tls: bool, replies: int | None = None
) -> KafkaError:
    """Return the error for a connection that failed after this number of replies; None means that
    it could not be opened.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"{address}: the broker's certificate is not valid: {_certificate_fault(error)}"
        )
    if isinstance(error, ssl.SSLError):
        return _tls_failure(address, error)
    if tls and replies is None and (error.errno is None or isinstance(error, ConnectionResetError)):
        return BrokerConnectionError(
            f"{address}: closed during the TLS handshake; does this port use TLS "
            "(security_protocol), or require a client certificate (ssl_keystore_location)?"
        )
    hint = _early_end(replies, tls=tls) if isinstance(error, ConnectionResetError) else ""
    return BrokerConnectionError(f"{address}: {_reason(error)}{hint}")


def address_of(host: str, port: int) -> str:
    """Return an address for errors and logs. Brokers may send any text as a host."""
    plain = host.isprintable() and len(host) <= _LONGEST_HOST
    return f"{host if plain else ascii(host[:_LONGEST_HOST])}:{port}"


def check_address(host: str, port: int) -> None:
    """Check an address. An empty host would mean this machine.

    Raises:
        BrokerConnectionError: if the host is empty, or the port is out of range.
    """
    if not host or not 1 <= port <= _HIGHEST_PORT:
        wrong = f"the port must be from 1 to {_HIGHEST_PORT}" if host else "the host is empty"
        advice = "check bootstrap_servers and the brokers' advertised.listeners"
        raise BrokerConnectionError(f"{address_of(host, port)}: {wrong}; {advice}")


def no_common_version(
    address: str, request_type: type[Request[Any]], theirs: tuple[int, int] | None, limit: int
) -> UnsupportedVersionError:
    """Return the error for a request of which client and broker have no version in common.

    Args:
        theirs: the broker's lowest and highest version; None if it does not support the request.
        limit: the highest version that this client can send.
    """
    name = request_type.__name__
    if theirs is None:
        return UnsupportedVersionError(f"{address} does not support {name}")
    return UnsupportedVersionError(
        f"{address} supports {name} versions {theirs[0]} to {theirs[1]}, this client "
        f"{request_type.MIN_VERSION} to {limit}"
    )


def unforeseen(address: str, error: Exception) -> KafkaError:
    """Convert any error of a connection attempt to a KafkaError."""
    if isinstance(error, KafkaError):
        return error
    text = str(error)[:_LONGEST_HOST]
    return BrokerConnectionError(
        f"{address}: connecting failed with {type(error).__name__}: {text}"
    )


def closed_by_broker(address: str, replies: int, *, tls: bool) -> BrokerConnectionError:
    """Return the error for a stream that ended after this number of replies."""
    return BrokerConnectionError(
        f"{address}: connection closed by the broker{_early_end(replies, tls=tls)}"
    )


def _early_end(replies: int | None, *, tls: bool) -> str:
    # Brokers close connections of clients with another security protocol without an error: at once,
    # or after ApiVersions if they require SASL.
    if replies == 0 and tls:
        return " before any reply; does it require a client certificate (ssl_keystore_location)?"
    return (
        f" after {replies} replies; does it use another security_protocol?"
        if replies in (0, 1)
        else ""
    )


def stream_failure(address: str, error: Exception, *, tls: bool, replied: int) -> KafkaError:
    """Return the error for a connection that failed after this number of replies."""
    if isinstance(error, OSError):
        return connection_failure(address, error, tls=tls, replies=replied)
    if isinstance(error, FrameSizeError):
        return _wrong_reply_size(address, error, replied)
    if type(error) is ProtocolError:
        return ProtocolError(f"{address}: {error}")
    if isinstance(error, KafkaError):
        return error
    return ProtocolError(f"{address}: a reply can't be decoded: {type(error).__name__}: {error}")


def _wrong_reply_size(address: str, error: FrameSizeError, replied: int) -> KafkaError:
    if error.size in _TLS_ALERT_SIZES and not replied:
        return BrokerConnectionError(
            f"{address}: this port uses TLS: set security_protocol to 'SSL' or 'SASL_SSL'"
        )
    limit = error.max_frame_bytes
    when = "" if limit == MAX_REPLY_BYTES else " before the login is complete"
    failure = ProtocolError(
        f"{address}: reply of {error.size} bytes: must be from {MIN_FRAME_BYTES} to {limit}{when}"
    )
    failure.__cause__ = error
    return failure


def _certificate_fault(error: ssl.SSLCertVerificationError) -> str:
    fault = error.verify_message.rstrip(".")
    if "ostname mismatch" in fault or "IP address mismatch" in fault:
        return f"{fault} (ssl_endpoint_identification_algorithm)"
    return f"{fault} (ssl_truststore_location)"


def _tls_failure(address: str, error: ssl.SSLError) -> KafkaError:
    fault = error.reason or error.strerror or "no reason given"
    if any(alert in fault for alert in _CERTIFICATE_ALERTS):
        return AuthenticationError(
            f"{address}: the broker refused this client's certificate, or requires one "
            f"(ssl_keystore_location): {fault}"
        )
    if any(sign in fault for sign in _NOT_TLS):
        return BrokerConnectionError(
            f"{address}: the TLS handshake failed ({fault}); does this port use TLS "
            "(security_protocol)?"
        )
    return BrokerConnectionError(f"{address}: TLS failed: {fault}")


def _reason(error: OSError) -> str:
    """Return the system's text: asyncio's is "Connect call failed" for "Connection refused"."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error) or "connection lost"
    return os.strerror(error.errno)
