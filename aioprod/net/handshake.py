"""The first requests on a new connection: ApiVersions, then the SASL login."""

import asyncio
import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from aioprod._version import __version__
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError, KafkaError, RequestTimedOutError
from aioprod.net.backoff import Backoff
from aioprod.net.connection import Connection
from aioprod.net.failures import address_of, unforeseen
from aioprod.net.tls import tls_context
from aioprod.net.versions import (
    FEATURES_FROM,
    ROUTED_FROM,
    AcceptedVersions,
    older,
    response_timeout_ms,
)
from aioprod.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from aioprod.net.reauthentication import Reauthentication


async def connect(
    host: str,
    port: int,
    config: ClientConfig,
    rng: random.Random | None = None,
    *,
    expected: tuple[str, int] | None = None,
    accepted: AcceptedVersions | None = None,
    failures: int = 0,
    on_closed: Callable[[Connection], None] = lambda _: None,
    on_silence: Callable[[], object] = lambda: None,
) -> Connection:
    """Open a connection, log in, and renew the session as long as it is open (KIP-368).

    Args:
        rng: source of jitter for the time at which the client authenticates again.
        expected: the cluster id and node id of the broker, if known. Brokers of Kafka 4.4 or newer
            refuse a connection that is meant for another broker (KIP-1242).
        accepted: stores the brokers that close the connection at newer versions of ApiVersions.
        failures: number of attempts that have failed before this one; each doubles the time limit
            of the next (KIP-601).
        on_closed, on_silence: see :class:`Connection`; may be called before this function returns.

    Raises:
        BrokerConnectionError, RequestTimedOutError: if the broker can't be reached or does not
            respond, or for any other error, which is then the ``__cause__``.
        AuthenticationError: if credentials or certificates are invalid; retrying does not help.
        BrokerError: if the broker responds to ApiVersions with an error, such as
            REBOOTSTRAP_REQUIRED if it is not the expected one.
        ConfigError: if a file with certificates can't be read.
    """
    rng = rng or random.Random()
    opening = _Opening(host, port, config, rng, failures, on_closed, on_silence)
    try:
        return await _connect(opening, expected, accepted or AcceptedVersions())
    except Exception as error:
        # Callers retry after a KafkaError. Any other error, such as UnicodeError for an invalid
        # host name, would end their tasks.
        failure = unforeseen(address_of(host, port), error)
        if failure is error:
            raise
        raise failure from error


class _Opening:
    """The arguments of :func:`connect` for opening a connection."""

    def __init__(
        self,
        host: str,
        port: int,
        config: ClientConfig,
        rng: random.Random,
        failures: int,
        on_closed: Callable[[Connection], None],
        on_silence: Callable[[], object],
    ) -> None:
        self.host = host
        self.port = port
        self.config = config
        self.rng = rng
        self.failures = failures
        self.on_closed = on_closed
        self.on_silence = on_silence

    @property
    def setup_timeout_ms(self) -> float:
        """The limit on opening the connection, and also on ApiVersions (KIP-601)."""
        config = self.config
        setup = Backoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            self.rng,
        )
        return (
            setup.seconds(self.failures + 1) * 1000
            if self.failures
            else config.socket_connection_setup_timeout_ms
        )

    def reauthentication(self) -> "Reauthentication | None":
        """Return an object that logs in; None without SASL, whose modules are then not imported."""
        if not self.config.uses_sasl:
            return None
        from aioprod.net.reauthentication import Reauthentication

        return Reauthentication(self.config, self.rng, self.host)

    async def open(self, timeout_ms: float, login: "Reauthentication | None") -> Connection:
        """Open a connection."""
        config = self.config
        return await Connection.open(
            self.host,
            self.port,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            setup_timeout_ms=timeout_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            tls=tls_context(config),
            reauthentication=login,
            on_closed=self.on_closed,
            on_silence=self.on_silence,
        )


class _VersionQuery(NamedTuple):
    """An ApiVersions request: the version to begin with, and the expected broker."""

    version: int
    expected: tuple[str, int] | None
    # Whether to request a newer version, for its features, after a response to this one: perhaps
    # only the network closed the previous connections.
    features_too: bool = False
    # How long the client waited for responses in newer versions.
    waited_ms: float = 0.0


class _QueryAgain(Exception):
    """The connection ended with ``error``; send another request on a new connection."""

    def __init__(self, query: _VersionQuery, error: KafkaError) -> None:
        self.query, self.error = query, error


async def _connect(
    opening: _Opening, expected: tuple[str, int] | None, accepted: AcceptedVersions
) -> Connection:
    loop = asyncio.get_running_loop()
    host, port = opening.host, opening.port
    setup_timeout_ms = opening.setup_timeout_ms
    # All connections of the attempt share the time limit of one.
    deadline = loop.time() + 2 * setup_timeout_ms / 1000
    query = _VersionQuery(accepted.first(host, port, loop.time()), expected)
    while True:
        reauthentication = opening.reauthentication()
        timeout_ms = min(setup_timeout_ms, (deadline - loop.time()) * 1000)
        connection = await opening.open(timeout_ms, reauthentication)
        try:
            remaining_ms = min(timeout_ms, setup_timeout_ms - query.waited_ms)
            version = await _negotiate(connection, query, remaining_ms)
            accepted.note(host, port, version, _announced(connection), loop.time())
            if reauthentication is not None:
                await reauthentication.log_in(connection)
        except _QueryAgain as step:
            await connection.close()
            if loop.time() >= deadline:
                raise step.error from step.error.__cause__
            query = step.query
            continue
        except BaseException:
            await connection.close()
            raise
        if connection.error is not None:
            # The stream ended together with the last reply: do not return a closed connection.
            raise connection.error
        connection.trust()
        return connection


def _announced(connection: Connection) -> tuple[int, int]:
    """Return the versions of ApiVersions that the broker supports."""
    return connection.versions.get(ApiVersionsRequest.API_KEY, (0, 0))


async def _negotiate(connection: Connection, query: _VersionQuery, remaining_ms: float) -> int:
    """Request the broker's versions, and return the version of ApiVersions that succeeded.

    Args:
        remaining_ms: the time limit of this request and of those in older versions together.

    Raises:
        _QueryAgain: if another version should be requested on a new connection.
        KafkaError: if no other version helps.
    """
    version, waited_ms = query.version, query.waited_ms
    timeout_ms = response_timeout_ms(version, remaining_ms)
    try:
        await _query_versions(connection, query, timeout_ms)
    except KafkaError as error:
        failure = error
        if isinstance(error, RequestTimedOutError):
            waited_ms += timeout_ms
            failure = RequestTimedOutError(
                f"{connection.address}: no response to ApiVersions within "
                f"socket_connection_setup_timeout_ms={query.waited_ms + remaining_ms:.0f}"
            )
        step = older(version, error)
        if step is None:
            raise failure from error.__cause__
        again = _VersionQuery(step, query.expected, features_too=True, waited_ms=waited_ms)
        raise _QueryAgain(again, failure) from error
    if not query.features_too or not version < FEATURES_FROM <= _announced(connection)[1]:
        return version
    try:
        await _query_versions(connection, _VersionQuery(FEATURES_FROM, None), remaining_ms)
    except KafkaError as error:
        raise _QueryAgain(query._replace(features_too=False), error) from error
    return FEATURES_FROM


async def _query_versions(connection: Connection, query: _VersionQuery, timeout_ms: float) -> None:
    version, expected = query.version, query.expected
    # Brokers refuse other characters (KIP-511), such as the plus sign of a local version.
    software_version = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__)
    request = ApiVersionsRequest(
        client_software_name="aioprod", client_software_version=software_version
    )
    if expected is not None and version >= ROUTED_FROM:
        request.cluster_id, request.node_id = expected
    reply = await connection.request(request, version=version, timeout_ms=timeout_ms)
    if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # Such a response has version 0. Since Kafka 2.4 it contains the supported versions
        # (KIP-511).
        known = [
            api.max_version for api in reply.api_keys if api.api_key == ApiVersionsRequest.API_KEY
        ]
        version = min(known[0], version - 1) if known else 0
        reply = await connection.request(request, version=version, timeout_ms=timeout_ms)
    if reply.error_code:
        raise BrokerError(ErrorCode.of(reply.error_code), f"{connection.address}: ApiVersions")
    if not reply.api_keys:  # no request could be sent on this connection
        raise BrokerConnectionError(f"{connection.address}: ApiVersions: no API is supported")
    connection.versions = {
        api.api_key: (api.min_version, api.max_version) for api in reply.api_keys
    }
    connection.finalized_features = {
        feature.name: feature.max_version_level for feature in reply.finalized_features
    }
