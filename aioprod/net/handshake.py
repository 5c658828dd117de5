"""The first requests on a new connection: ApiVersions, then the login (SASL)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from aioprod._version import __version__
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.net.authentication import authenticate, new_mechanism
from aioprod.net.backoff import Backoff
from aioprod.net.connection import Connection
from aioprod.net.failures import address_of, unforeseen
from aioprod.net.reauthentication import Reauthentication
from aioprod.net.tls import tls_context
from aioprod.protocol.messages.api_versions import ApiVersionsRequest


async def connect(
    host: str,
    port: int,
    config: ClientConfig,
    rng: random.Random | None = None,
    *,
    expected: tuple[str, int] | None = None,
    failures: int = 0,
    on_closed: Callable[[Connection], None] = lambda _: None,
    on_silence: Callable[[], object] = lambda: None,
) -> Connection:
    """Open a connection that is ready for requests, and whose session is renewed (KIP-368).

    Args:
        rng: chooses the moments at which the client authenticates again.
        expected: the cluster id and node id of the broker, if known; a broker from Kafka 4.4 on
            refuses a connection that is meant for another (KIP-1242).
        failures: how many attempts before this one have failed; each doubles the time that the
            next one has (KIP-601).
        on_closed, on_silence: see :class:`Connection`; may be called before this returns.

    Raises:
        BrokerConnectionError, RequestTimedOutError: if the broker can't be reached or does not
            answer, or any other error occurs, which then is the cause.
        AuthenticationError: if credentials or certificates are not valid; retrying does not help.
        BrokerError: if the broker answers ApiVersions with an error, such as REBOOTSTRAP_REQUIRED
            if it is not the one that is expected.
        ConfigError: if a file with certificates can't be read.
    """
    rng = rng or random.Random()
    try:
        return await _connect(host, port, config, rng, expected, failures, on_closed, on_silence)
    except Exception as error:
        # Callers retry after a KafkaError. Any other error, such as the UnicodeError of an invalid
        # host name, would end their tasks.
        failure = unforeseen(address_of(host, port), error)
        if failure is error:
            raise
        raise failure from error


async def _connect(
    host: str,
    port: int,
    config: ClientConfig,
    rng: random.Random,
    expected: tuple[str, int] | None,
    failures: int,
    on_closed: Callable[[Connection], None],
    on_silence: Callable[[], object],
) -> Connection:
    setup = Backoff(
        config.socket_connection_setup_timeout_ms,
        config.socket_connection_setup_timeout_max_ms,
        rng,
    )
    setup_timeout_ms = (
        setup.seconds(failures + 1) * 1000
        if failures
        else config.socket_connection_setup_timeout_ms
    )
    reauthentication = Reauthentication(config, rng, host) if config.uses_sasl else None
    connection = await Connection.open(
        host,
        port,
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        setup_timeout_ms=setup_timeout_ms,
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
        tls=tls_context(config),
        reauthentication=reauthentication,
        on_closed=on_closed,
        on_silence=on_silence,
    )
    try:
        await _ask_versions(connection, expected, setup_timeout_ms)
        if reauthentication is not None:
            mechanism = await new_mechanism(config, host)
            lifetime_ms = await authenticate(connection, mechanism, config.request_timeout_ms)
            reauthentication.schedule(connection, lifetime_ms)
    except BaseException:
        await connection.close()
        raise
    if connection.error is not None:
        # The stream ended together with the last reply: do not return a dead connection.
        raise connection.error
    connection.trust()
    return connection


async def _ask_versions(
    connection: Connection, expected: tuple[str, int] | None, timeout_ms: float
) -> None:
    # Brokers refuse other characters (KIP-511), such as the plus sign of a local version.
    software_version = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__)
    request = ApiVersionsRequest(
        client_software_name="aioprod", client_software_version=software_version
    )
    if expected is not None:
        request.cluster_id, request.node_id = expected
    version = ApiVersionsRequest.MAX_VERSION
    reply = await connection.request(request, version=version, timeout_ms=timeout_ms)
    if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # Such an answer has version 0, and since Kafka 2.4 has the supported versions (KIP-511).
        known = [
            api.max_version for api in reply.api_keys if api.api_key == ApiVersionsRequest.API_KEY
        ]
        version = min(known[0], version - 1) if known else 0
        reply = await connection.request(request, version=version, timeout_ms=timeout_ms)
    if reply.error_code:
        raise BrokerError(ErrorCode.of(reply.error_code), f"{connection.address}: ApiVersions")
    connection.versions = {
        api.api_key: (api.min_version, api.max_version) for api in reply.api_keys
    }
    connection.finalized_features = {
        feature.name: feature.max_version_level for feature in reply.finalized_features
    }
