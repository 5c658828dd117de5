"""The first requests on a new connection: ApiVersions, then the login (SASL)."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from aioprod._version import __version__
from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerConnectionError, BrokerError, KafkaError
from aioprod.net.authentication import authenticate, new_mechanism
from aioprod.net.backoff import Backoff
from aioprod.net.connection import Connection
from aioprod.net.failures import address_of, unforeseen
from aioprod.net.reauthentication import Reauthentication
from aioprod.net.tls import tls_context
from aioprod.net.versions import FEATURES_FROM, ROUTED_FROM, AcceptedVersions, older
from aioprod.protocol.messages.api_versions import ApiVersionsRequest


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
    """Open a connection that is ready for requests, and whose session is renewed (KIP-368).

    Args:
        rng: chooses the moments at which the client authenticates again.
        expected: the cluster id and node id of the broker, if known; a broker from Kafka 4.4 on
            refuses a connection that is meant for another (KIP-1242).
        accepted: remembers brokers that end the connection at newer versions of ApiVersions.
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
    opening = _Opening(host, port, config, rng, failures, on_closed, on_silence)
    try:
        return await _connect(opening, expected, accepted or AcceptedVersions())
    except Exception as error:
        # Callers retry after a KafkaError. Any other error, such as the UnicodeError of an invalid
        # host name, would end their tasks.
        failure = unforeseen(address_of(host, port), error)
        if failure is error:
            raise
        raise failure from error


class _Opening(NamedTuple):
    """The arguments of :func:`connect` that opening a connection needs."""

    host: str
    port: int
    config: ClientConfig
    rng: random.Random
    failures: int
    on_closed: Callable[[Connection], None]
    on_silence: Callable[[], object]

    @property
    def setup_timeout_ms(self) -> float:
        """The limit on opening the connection, and again on ApiVersions (KIP-601)."""
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

    async def open(self, timeout_ms: float, login: Reauthentication | None) -> Connection:
        """Open the connection."""
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


class _Question(NamedTuple):
    """What ApiVersions asks: the version to begin with, and the broker that is expected."""

    version: int
    expected: tuple[str, int] | None
    # Whether a newer version is asked for its features after an answer to this one: perhaps only
    # the network ended the connections before.
    features_too: bool = False


class _AskAgain(Exception):
    """Another question, on a new connection, is the next step, since ``error`` ended this one."""

    def __init__(self, question: _Question, error: KafkaError) -> None:
        self.question, self.error = question, error


async def _connect(
    opening: _Opening, expected: tuple[str, int] | None, accepted: AcceptedVersions
) -> Connection:
    loop = asyncio.get_running_loop()
    host, port, config = opening.host, opening.port, opening.config
    setup_timeout_ms = opening.setup_timeout_ms
    # All connections of the attempt together have the time that a single one has.
    deadline = loop.time() + 2 * setup_timeout_ms / 1000
    question = _Question(accepted.first(host, port, loop.time()), expected)
    while True:
        reauthentication = Reauthentication(config, opening.rng, host) if config.uses_sasl else None
        timeout_ms = min(setup_timeout_ms, (deadline - loop.time()) * 1000)
        connection = await opening.open(timeout_ms, reauthentication)
        try:
            version = await _agree(connection, question, timeout_ms)
            accepted.note(host, port, version, _announced(connection), loop.time())
            if reauthentication is not None:
                mechanism = await new_mechanism(config, host)
                lifetime_ms = await authenticate(connection, mechanism, config.request_timeout_ms)
                reauthentication.schedule(connection, lifetime_ms)
        except _AskAgain as step:
            await connection.close()
            if loop.time() >= deadline:
                raise step.error from step.error.__cause__
            question = step.question
            continue
        except BaseException:
            await connection.close()
            raise
        if connection.error is not None:
            # The stream ended together with the last reply: do not return a dead connection.
            raise connection.error
        connection.trust()
        return connection


def _announced(connection: Connection) -> tuple[int, int]:
    """Return the versions of ApiVersions that the broker supports."""
    return connection.versions.get(ApiVersionsRequest.API_KEY, (0, 0))


async def _agree(connection: Connection, question: _Question, timeout_ms: float) -> int:
    """Ask a broker for its versions, and return the version of ApiVersions that it answered.

    Raises:
        _AskAgain: if an older version may help, or its features can't be had.
        KafkaError: if no other question helps.
    """
    version = question.version
    try:
        await _ask_versions(connection, question, timeout_ms)
    except KafkaError as error:
        step = older(version, error)
        if step is None:
            raise
        raise _AskAgain(_Question(step, question.expected, features_too=True), error) from error
    if not question.features_too or not version < FEATURES_FROM <= _announced(connection)[1]:
        return version
    try:
        await _ask_versions(connection, _Question(FEATURES_FROM, None), timeout_ms)
    except KafkaError as error:
        raise _AskAgain(question._replace(features_too=False), error) from error
    return FEATURES_FROM


async def _ask_versions(connection: Connection, question: _Question, timeout_ms: float) -> None:
    version, expected = question.version, question.expected
    # Brokers refuse other characters (KIP-511), such as the plus sign of a local version.
    software_version = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__)
    request = ApiVersionsRequest(
        client_software_name="aioprod", client_software_version=software_version
    )
    if expected is not None and version >= ROUTED_FROM:
        request.cluster_id, request.node_id = expected
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
    if not reply.api_keys:  # no request could be sent on such a connection
        raise BrokerConnectionError(f"{connection.address}: ApiVersions: no API is supported")
    connection.versions = {
        api.api_key: (api.min_version, api.max_version) for api in reply.api_keys
    }
    connection.finalized_features = {
        feature.name: feature.max_version_level for feature in reply.finalized_features
    }
