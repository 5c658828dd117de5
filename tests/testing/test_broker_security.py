"""TLS and SASL of the embedded broker: it follows Kafka's order of steps, and other clients can log
in.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import Producer as LibrdkafkaProducer

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioprod.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioprod.testing import BrokerSecurity, EmbeddedCluster, ThreadedCluster
from tests.testing.raw_client import RawClient

PASSWORD = "pencil"
LIMIT_S = 20.0


@pytest.fixture
def security() -> BrokerSecurity:
    """The users that may log in."""
    return BrokerSecurity(
        users={"alice": PASSWORD},
        token_validator=lambda token, _: "alice" if token == "good" else None,
    )


@pytest.fixture
async def broker(security: BrokerSecurity) -> AsyncIterator[EmbeddedCluster]:
    """A broker that requires a login."""
    async with EmbeddedCluster(security=security) as running:
        yield running


async def choose(client: RawClient, mechanism: str = "PLAIN") -> SaslHandshakeResponse:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)


async def log_in(
    client: RawClient, user: str = "alice", password: str = PASSWORD
) -> SaslAuthenticateResponse:
    assert (await choose(client)).error_code == 0
    return await client.call(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 2)


class TestOrderOfThings:
    async def test_versions_may_be_asked_for_before_the_login_and_everything_after_it(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            keys = {
                api.api_key
                for api in (await client.call(ApiVersionsRequest("raw", "1"), 3)).api_keys
            }
            assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= keys
            reply = await log_in(client)
            assert (reply.error_code, reply.auth_bytes, reply.session_lifetime_ms) == (0, b"", 0)
            assert (await client.call(MetadataRequest(topics=[]), 9)).brokers

    @pytest.mark.parametrize(
        "request_", [MetadataRequest(topics=[]), SaslAuthenticateRequest(b"\0alice\0pencil")]
    )
    async def test_other_requests_before_the_login_close_the_connection(
        self, broker: EmbeddedCluster, request_: Any
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            client.send(request_, 1)
            assert await client.is_closed()

    @pytest.mark.parametrize(
        "request_",
        [MetadataRequest(topics=[]), SaslHandshakeRequest("PLAIN"), ApiVersionsRequest("raw", "1")],
    )
    async def test_other_requests_during_a_login_close_the_connection(
        self, broker: EmbeddedCluster, request_: Any
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            await choose(client)
            client.send(request_, 1)
            assert await client.is_closed()

    async def test_a_refused_login_is_answered_and_ends_the_connection(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            reply = await log_in(client, password="wrong")
            assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert reply.error_message == "Authentication failed: Invalid username or password"
            assert await client.is_closed()

    async def test_an_unknown_mechanism_is_answered_with_those_that_there_are(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            reply = await choose(client, "GSSAPI")
            assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert reply.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
            assert await client.is_closed()

    async def test_a_broker_without_sasl_says_so(self) -> None:
        async with EmbeddedCluster() as broker, RawClient(broker.bootstrap_servers) as client:
            assert (await choose(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (
                await client.call(SaslAuthenticateRequest(b""), 2)
            ).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await client.call(MetadataRequest(topics=[]), 9)).brokers

    async def test_all_nodes_ask_for_a_login(self, security: BrokerSecurity) -> None:
        async with EmbeddedCluster(nodes=3, security=security) as broker:
            for address in broker.bootstrap_servers.split(","):
                async with RawClient(address) as client:
                    client.send(MetadataRequest(topics=[]), 9)
                    assert await client.is_closed()


class TestSessions:
    @pytest.fixture
    def security(self) -> BrokerSecurity:
        """Sessions with a very short lifetime."""
        return BrokerSecurity(users={"alice": PASSWORD, "bob": PASSWORD}, session_lifetime_ms=100)

    async def test_a_session_that_has_expired_closes_the_connection_at_the_next_request(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            assert (await log_in(client)).session_lifetime_ms == 100
            await asyncio.sleep(0.12)
            client.send(MetadataRequest(topics=[]), 9)
            assert await client.is_closed()

    async def test_a_new_login_begins_a_new_session_also_after_the_end(
        self, broker: EmbeddedCluster
    ) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client)
            await asyncio.sleep(0.12)
            assert (await log_in(client)).session_lifetime_ms == 100
            assert (await client.call(MetadataRequest(topics=[]), 9)).brokers

    async def test_user_and_mechanism_stay(self, broker: EmbeddedCluster) -> None:
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client)
            reply = await log_in(client, "bob")
            assert (
                reply.error_message
                == "Cannot change principals during re-authentication from User:alice to User:bob"
            )
            assert await client.is_closed()
        async with RawClient(broker.bootstrap_servers) as client:
            await log_in(client)
            assert (
                await choose(client, "SCRAM-SHA-256")
            ).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_mechanisms_are_checked() -> None:
    with pytest.raises(ConfigError, match="must be among PLAIN"):
        BrokerSecurity(mechanisms=("GSSAPI",))
    assert BrokerSecurity(users={"a": "b"}, mechanisms=("PLAIN",)).offered == ("PLAIN",)
    assert BrokerSecurity().offered == ()


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


@pytest.fixture
def authority() -> trustme.CA:
    """A certificate authority for the tests."""
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """The server context of a broker at 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


class TestAiokafka:
    async def send(self, broker: EmbeddedCluster, **settings: Any) -> None:
        async with asyncio.timeout(LIMIT_S):
            async with AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap_servers, **settings
            ) as producer:
                await producer.send_and_wait("t", b"value")
        assert [record.value for record in broker.records("t")] == [b"value"]

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    async def test_passwords(self, broker: EmbeddedCluster, mechanism: str) -> None:
        settings = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
        }
        await self.send(broker, **settings, sasl_plain_password=PASSWORD)
        wrong = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, **settings, sasl_plain_password="wrong"
        )
        with pytest.raises(AiokafkaError):
            await wrong.start()
        await wrong.stop()

    async def test_tokens(self, broker: EmbeddedCluster) -> None:
        settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        await self.send(broker, **settings, sasl_oauth_token_provider=TokenProvider("good"))

    async def test_tls(
        self, security: BrokerSecurity, tls: ssl.SSLContext, authority: trustme.CA
    ) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        async with EmbeddedCluster(security=BrokerSecurity(tls)) as broker:
            await self.send(broker, security_protocol="SSL", ssl_context=context)
        security.ssl_context = tls
        async with EmbeddedCluster(security=security) as broker:
            login = {
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "alice",
                "sasl_plain_password": PASSWORD,
            }
            await self.send(broker, security_protocol="SASL_SSL", ssl_context=context, **login)


class TestLibrdkafka:
    @pytest.fixture
    def threaded(self, security: BrokerSecurity) -> Iterator[ThreadedCluster]:
        """A broker for clients that block."""
        with EmbeddedCluster.in_thread(security=security) as running:
            yield running

    def producer(
        self, broker: ThreadedCluster, errors: list[LibrdkafkaError], **settings: Any
    ) -> LibrdkafkaProducer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        fixed = {
            "bootstrap.servers": broker.bootstrap_servers,
            "message.timeout.ms": 10_000,
            "log_level": 0,
            "error_cb": errors.append,
        }
        return LibrdkafkaProducer({**fixed, **dotted})

    def send(self, broker: ThreadedCluster, **settings: Any) -> None:
        errors: list[LibrdkafkaError] = []
        producer = self.producer(broker, errors, **settings)
        producer.produce("t", b"value")
        assert producer.flush(LIMIT_S) == 0
        assert not errors
        assert [record.value for record in broker.records("t")] == [b"value"]

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_passwords(self, threaded: ThreadedCluster, mechanism: str) -> None:
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_username": "alice",
        }
        self.send(threaded, **login, sasl_password=PASSWORD)
        errors: list[LibrdkafkaError] = []
        self.producer(threaded, errors, **login, sasl_password="wrong").poll(LIMIT_S)
        assert errors and errors[0].code() == LibrdkafkaError._AUTHENTICATION

    def test_tls(
        self, security: BrokerSecurity, tls: ssl.SSLContext, authority: trustme.CA, tmp_path: Path
    ) -> None:
        trusted = tmp_path / "trusted.pem"
        authority.cert_pem.write_to_path(str(trusted))
        security.ssl_context = tls
        with EmbeddedCluster.in_thread(security=security) as broker:
            login = {
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "alice",
                "sasl_password": PASSWORD,
            }
            self.send(broker, security_protocol="SASL_SSL", ssl_ca_location=str(trusted), **login)

    def test_it_logs_in_again_before_a_session_ends(self, security: BrokerSecurity) -> None:
        security.session_lifetime_ms = 1_000
        with EmbeddedCluster.in_thread(security=security) as broker:
            login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORD}
            errors: list[LibrdkafkaError] = []
            producer = self.producer(
                broker, errors, security_protocol="SASL_PLAINTEXT", linger_ms=1, **login
            )
            sent, deadline = 0, time.monotonic() + LIMIT_S
            while logins(broker) < 4 and time.monotonic() < deadline:
                producer.produce("t", b"%d" % sent)
                sent += 1
                producer.flush(0.02)
            assert producer.flush(LIMIT_S) == 0
            assert [record.value for record in broker.records("t")] == [
                b"%d" % number for number in range(sent)
            ]
            assert logins(broker) > sum(
                seen.api_key == ApiKey.API_VERSIONS for seen in broker.requests
            )


def logins(broker: ThreadedCluster) -> int:
    return sum(seen.api_key == ApiKey.SASL_HANDSHAKE for seen in broker.requests)


def test_secrets_show_in_no_repr(security: BrokerSecurity) -> None:
    assert PASSWORD not in repr(security)
    message: Message = SaslHandshakeRequest("PLAIN")
    assert PASSWORD not in repr(message)
