"""TLS: which certificates are trusted, and the errors of failed handshakes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.net.certificates import KEY_PASSWORD, Certificates
from tests.plain_server import serving


def config(**settings: Any) -> ClientConfig:
    return ClientConfig(
        **{"request_timeout_ms": 3_000, "socket_connection_setup_timeout_ms": 3_000, **settings}
    )


@asynccontextmanager
async def connected(
    broker: EmbeddedCluster, host: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[Connection]:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    connection = await connect(host, port, config(**settings))
    try:
        yield connection
    finally:
        await connection.close()


async def fails(
    broker: EmbeddedCluster, kind: type[KafkaError], host: str = "127.0.0.1", **settings: Any
) -> str:
    """Connect and request metadata; return the text of the error."""
    with pytest.raises(kind) as raised:
        async with connected(broker, host, **settings) as connection:
            await connection.request(MetadataRequest(topics=[]))
    assert raised.type is kind
    return str(raised.value)


def refuse_one(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Take one connection, and wait until the client is gone."""
    listener.settimeout(5)
    with listener:
        peer, _ = listener.accept()
    encrypted = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
    encrypted.settimeout(5)
    with pytest.raises(ssl.SSLError):
        encrypted.do_handshake()
    # Closing with unread bytes would reset the connection, and the client might not see the alert.
    with socket.socket(fileno=encrypted.detach()) as bare:
        bare.settimeout(5)
        while bare.recv(1000):
            pass


@pytest.fixture
async def broker(certificates: Certificates) -> AsyncIterator[EmbeddedCluster]:
    """A broker with TLS at 127.0.0.1."""
    async with EmbeddedCluster(security=BrokerSecurity(certificates.server_context())) as running:
        yield running


@pytest.fixture
async def mutual_broker(certificates: Certificates) -> AsyncIterator[EmbeddedCluster]:
    """A broker that requires client certificates."""
    async with EmbeddedCluster(
        security=BrokerSecurity(certificates.server_context(mutual=True))
    ) as running:
        yield running


async def test_a_truststore_or_the_callers_own_context(
    broker: EmbeddedCluster, certificates: Certificates
) -> None:
    own = ssl.create_default_context(cafile=certificates.truststore)
    for settings in (
        {"ssl_truststore_location": certificates.truststore},
        {"ssl_truststore_location": Path(certificates.truststore)},
        {"ssl_context": own},
    ):
        async with connected(broker, security_protocol="SSL", **settings) as connection:
            replies = await asyncio.gather(
                *(connection.request(MetadataRequest(topics=[])) for _ in range(20))
            )
            assert all(reply.brokers for reply in replies)


async def test_a_broker_certificate_in_the_truststore_is_trusted_by_itself(
    certificates: Certificates, tmp_path: Path
) -> None:
    leaf = certificates.authority.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    pinned = tmp_path / "pinned.pem"
    leaf.cert_chain_pems[0].write_to_path(str(pinned))
    async with (
        EmbeddedCluster(security=BrokerSecurity(context)) as broker,
        connected(broker, security_protocol="SSL", ssl_truststore_location=pinned) as connection,
    ):
        assert connection.versions


async def test_an_unknown_authority_is_refused(broker: EmbeddedCluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    text = await fails(
        broker, AuthenticationError, security_protocol="SSL", ssl_truststore_location=other
    )
    assert (
        broker.bootstrap_servers in text
        and "certificate is not valid" in text
        and "(ssl_truststore_location)" in text
    )
    assert "certificate is not valid" in await fails(
        broker, AuthenticationError, security_protocol="SSL"
    )


async def test_a_certificate_of_another_host_is_refused_unless_the_check_is_off(
    certificates: Certificates,
) -> None:
    settings: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": certificates.truststore,
    }
    async with EmbeddedCluster(
        security=BrokerSecurity(certificates.server_context("kafka.example.org"))
    ) as broker:
        for host, said in [
            ("127.0.0.1", "IP address mismatch"),
            ("localhost", "not valid for 'localhost'"),
        ]:
            text = await fails(broker, AuthenticationError, host, **settings)
            assert said in text and "(ssl_endpoint_identification_algorithm)" in text
        async with connected(
            broker, **settings, ssl_endpoint_identification_algorithm=""
        ) as connection:
            assert connection.versions


async def test_a_client_without_tls_at_a_port_with_it(broker: EmbeddedCluster) -> None:
    text = await fails(broker, BrokerConnectionError)
    assert "security_protocol" in text


async def test_a_tls_alert_is_distinguished_from_garbage() -> None:
    async def answer_in_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
        await writer.drain()
        await reader.read()

    async with serving(answer_in_tls) as port:
        with pytest.raises(
            BrokerConnectionError,
            match="this port uses TLS: set security_protocol to 'SSL' or 'SASL_SSL'",
        ):
            await connect("127.0.0.1", port, config())


async def test_a_client_with_tls_at_a_port_without_it(certificates: Certificates) -> None:
    async with EmbeddedCluster() as broker:
        text = await fails(
            broker,
            BrokerConnectionError,
            security_protocol="SSL",
            ssl_truststore_location=certificates.truststore,
        )
        assert "does this port use TLS (security_protocol)" in text


async def test_a_port_that_answers_tls_with_something_else(certificates: Certificates) -> None:
    async def talk_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(talk_http) as port:
        with pytest.raises(BrokerConnectionError, match="does this port use TLS"):
            await connect("127.0.0.1", port, config(security_protocol="SSL"))


async def test_a_port_that_takes_the_handshake_and_says_nothing() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as port:
        settings = config(security_protocol="SSL", socket_connection_setup_timeout_ms=100)
        with pytest.raises(
            BrokerConnectionError,
            match="no connection within socket_connection_setup_timeout_ms=100",
        ):
            await connect("127.0.0.1", port, settings)


class TestMutual:
    @pytest.mark.parametrize("password", [None, KEY_PASSWORD])
    async def test_a_client_with_a_certificate(
        self, mutual_broker: EmbeddedCluster, certificates: Certificates, password: str | None
    ) -> None:
        settings: dict[str, Any] = {
            "ssl_truststore_location": certificates.truststore,
            "ssl_keystore_location": certificates.keystore(password),
        }
        async with connected(
            mutual_broker, security_protocol="SSL", ssl_key_password=password, **settings
        ) as connection:
            assert (await connection.request(MetadataRequest(topics=[]))).brokers

    async def test_a_client_without_one_is_reported(
        self, mutual_broker: EmbeddedCluster, certificates: Certificates
    ) -> None:
        # With TLS 1.3 the refusal arrives after the handshake, in place of the first reply; the
        # connection may end before.
        with pytest.raises(KafkaError) as raised:
            async with connected(
                mutual_broker,
                security_protocol="SSL",
                ssl_truststore_location=certificates.truststore,
            ) as connection:
                await connection.request(MetadataRequest(topics=[]))
        assert isinstance(raised.value, AuthenticationError | BrokerConnectionError)
        assert "ssl_keystore_location" in str(raised.value)

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @pytest.mark.parametrize("with_certificate", [False, True])
    async def test_the_alert_of_a_server_is_reported(
        self,
        certificates: Certificates,
        tmp_path: Path,
        version: ssl.TLSVersion,
        with_certificate: bool,
    ) -> None:
        """Unlike asyncio's servers, those of Java and of blocking Python send an alert when they
        refuse a certificate.
        """
        context = certificates.server_context(mutual=True)
        context.maximum_version = version
        stranger = Certificates(trustme.CA(), tmp_path / "stranger")
        stranger.directory.mkdir()
        settings: dict[str, Any] = {"ssl_truststore_location": certificates.truststore}
        if with_certificate:
            settings["ssl_keystore_location"] = stranger.keystore()
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(asyncio.to_thread(refuse_one, listener, context))
        with pytest.raises(KafkaError) as raised:
            await connect(
                "127.0.0.1", listener.getsockname()[1], config(security_protocol="SSL", **settings)
            )
        await serving
        if version == ssl.TLSVersion.TLSv1_2 and not with_certificate:
            # The alert of TLS 1.2 does not say more.
            assert "TLS failed: SSLV3_ALERT_HANDSHAKE_FAILURE" in str(raised.value)
        else:
            assert isinstance(raised.value, AuthenticationError)
            assert "the broker refused this client's certificate" in str(raised.value)

    async def test_a_client_of_another_authority_is_refused(
        self, mutual_broker: EmbeddedCluster, certificates: Certificates, tmp_path: Path
    ) -> None:
        stranger = Certificates(trustme.CA(), tmp_path / "stranger")
        stranger.directory.mkdir()
        settings: dict[str, Any] = {
            "ssl_truststore_location": certificates.truststore,
            "ssl_keystore_location": stranger.keystore(),
        }
        with pytest.raises(KafkaError, match="ssl_keystore_location"):
            async with connected(mutual_broker, security_protocol="SSL", **settings) as connection:
                await connection.request(MetadataRequest(topics=[]))
