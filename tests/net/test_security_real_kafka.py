"""Security with a real Kafka broker: each listener accepts clients with its protocol, and the
errors of others name the reason.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, TopicPartition

from aioprod import Producer
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.net import authentication, reauthentication
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.oauth_token import OAuthToken
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka
from tests.net.certificates import Certificates, private_key

pytestmark = pytest.mark.kafka

USER, PASSWORD = "alice", "pass word,=€"
SCRAM_PASSWORD = "another password"
SESSION_MS = 2_500
LIMIT_S = 60


@pytest.fixture(scope="module")
def secured(authority: trustme.CA) -> Iterator[RealKafka]:
    """One broker with a listener for each kind of security."""
    certificate = authority.issue_cert("127.0.0.1")
    tls: dict[str, Any] = {
        "certificate_chain": "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems),
        "private_key": private_key(certificate).decode(),
    }
    limit = "connections.max.reauth.ms"
    listeners = [
        Listener("SSL", **tls),
        Listener(
            "SSL", name="MUTUAL", **tls, trusted_certificates=authority.cert_pem.bytes().decode()
        ),
        Listener("SASL_SSL", **tls, mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        Listener(
            "SASL_PLAINTEXT", mechanisms=["PLAIN", "OAUTHBEARER"], plain_users={USER: PASSWORD}
        ),
        Listener(
            "SASL_PLAINTEXT",
            name="RENEWED",
            mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"],
            settings={f"scram-sha-512.{limit}": str(SESSION_MS), f"oauthbearer.{limit}": "60000"},
        ),
    ]
    with RealKafka(listeners=listeners, scram_users={USER: SCRAM_PASSWORD}) as kafka:
        yield kafka


def token_for(seconds: float) -> OAuthToken:
    """Return an unsigned token, which Kafka accepts by default."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + seconds}
    return OAuthToken(
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
            for part in parts
        )
        + "."
    )


async def provide() -> OAuthToken:
    return token_for(3)


def scram(mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": SCRAM_PASSWORD}


PLAIN: dict[str, Any] = {
    "sasl_mechanism": "PLAIN",
    "sasl_username": USER,
    "sasl_password": PASSWORD,
}
OAUTH: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provide}


def config(protocol: str, **settings: Any) -> ClientConfig:
    return ClientConfig(**{"security_protocol": protocol, "request_timeout_ms": 10_000, **settings})


async def fails(
    kafka: RealKafka,
    listener: str,
    kind: type[KafkaError],
    settings: ClientConfig,
    host: str = "127.0.0.1",
) -> str:
    """Connect and request metadata; return the text of the error."""
    port = kafka.bootstrap_servers_of(listener).rpartition(":")[2]
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(kind) as raised:
            connection = await connect(host, int(port), settings)
            try:
                await connection.request(MetadataRequest(topics=[]))
            finally:
                await connection.close()
    return str(raised.value)


async def read_back(kafka: RealKafka, topic: str, count: int) -> list[bytes]:
    """Return the values of a topic's only partition, read by another client."""
    place = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        values: list[bytes] = []
        while len(values) < end:
            for records in (await consumer.getmany(timeout_ms=1_000, max_records=10_000)).values():
                values += [record.value for record in records]
    assert end == count
    return values


async def goes_in_and_comes_out(
    kafka: RealKafka, listener: str, protocol: Any, **settings: Any
) -> None:
    topic = f"{listener}-{settings.get('sasl_mechanism', 'tls')}".lower()
    async with asyncio.timeout(LIMIT_S):
        async with Producer(
            kafka.bootstrap_servers_of(listener), security_protocol=protocol, **settings
        ) as producer:
            await producer.send_and_wait(topic, b"value")
        assert await read_back(kafka, topic, 1) == [b"value"]


class TestFits:
    async def test_tls(self, secured: RealKafka, certificates: Certificates) -> None:
        await goes_in_and_comes_out(
            secured, "SSL", "SSL", ssl_truststore_location=certificates.truststore
        )

    async def test_mutual_tls(self, secured: RealKafka, certificates: Certificates) -> None:
        settings = {
            "ssl_truststore_location": certificates.truststore,
            "ssl_keystore_location": certificates.keystore("key"),
            "ssl_key_password": "key",
        }
        await goes_in_and_comes_out(secured, "MUTUAL", "SSL", **settings)

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    async def test_scram_over_tls(
        self, secured: RealKafka, certificates: Certificates, mechanism: str
    ) -> None:
        await goes_in_and_comes_out(
            secured,
            "SASL_SSL",
            "SASL_SSL",
            ssl_truststore_location=certificates.truststore,
            **scram(mechanism),
        )

    async def test_plain(self, secured: RealKafka) -> None:
        await goes_in_and_comes_out(secured, "SASL_PLAINTEXT", "SASL_PLAINTEXT", **PLAIN)

    async def test_oauthbearer(self, secured: RealKafka) -> None:
        await goes_in_and_comes_out(secured, "SASL_PLAINTEXT", "SASL_PLAINTEXT", **OAUTH)


class TestDoesNotFit:
    async def test_wrong_passwords_give_the_brokers_reason_at_once(
        self, secured: RealKafka, certificates: Certificates
    ) -> None:
        began = time.monotonic()
        text = await fails(
            secured,
            "SASL_PLAINTEXT",
            AuthenticationError,
            config("SASL_PLAINTEXT", **{**PLAIN, "sasl_password": "wrong"}),
        )
        assert "PLAIN: Authentication failed: Invalid username or password" in text
        settings = config(
            "SASL_SSL",
            ssl_truststore_location=certificates.truststore,
            **{**scram(), "sasl_password": "wrong"},
        )
        text = await fails(secured, "SASL_SSL", AuthenticationError, settings)
        assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in text
        producer = Producer(
            secured.bootstrap_servers_of("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            **{**PLAIN, "sasl_password": "wrong"},
        )
        with pytest.raises(AuthenticationError, match="Invalid username or password"):
            await producer.start()
        assert time.monotonic() - began < 10

    async def test_a_token_that_has_expired(self, secured: RealKafka) -> None:
        async def late() -> OAuthToken:
            return token_for(-10)

        settings = config(
            "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=late
        )
        assert '"status":"invalid_token"' in await fails(
            secured, "SASL_PLAINTEXT", AuthenticationError, settings
        )

    async def test_a_mechanism_that_is_not_offered(self, secured: RealKafka) -> None:
        text = await fails(
            secured, "SASL_PLAINTEXT", AuthenticationError, config("SASL_PLAINTEXT", **scram())
        )
        assert (
            "does not offer sasl_mechanism='SCRAM-SHA-512' on this port, but PLAIN, OAUTHBEARER"
            in text
        )

    async def test_certificates(
        self, secured: RealKafka, certificates: Certificates, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        assert "(ssl_truststore_location)" in await fails(
            secured, "SSL", AuthenticationError, config("SSL", ssl_truststore_location=other)
        )
        right = config("SSL", ssl_truststore_location=certificates.truststore)
        text = await fails(secured, "SSL", AuthenticationError, right, host="localhost")
        assert (
            "not valid for 'localhost'" in text
            and "(ssl_endpoint_identification_algorithm)" in text
        )
        # Kafka's alert arrives after the handshake, in place of the first reply; the connection may
        # end before.
        assert "ssl_keystore_location" in await fails(secured, "MUTUAL", KafkaError, right)

    async def test_another_protocol_than_the_listeners(
        self, secured: RealKafka, certificates: Certificates
    ) -> None:
        tls = {"ssl_truststore_location": certificates.truststore}
        said = "does this port use TLS (security_protocol)"
        assert said in await fails(
            secured, "PLAINTEXT", BrokerConnectionError, config("SSL", **tls)
        )
        said = "security_protocol"
        assert said in await fails(secured, "SSL", BrokerConnectionError, config("PLAINTEXT"))
        assert said in await fails(
            secured, "SASL_PLAINTEXT", BrokerConnectionError, config("PLAINTEXT")
        )
        assert said in await fails(
            secured, "PLAINTEXT", AuthenticationError, config("SASL_PLAINTEXT", **PLAIN)
        )


@asynccontextmanager
async def counted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, int]]:
    """Return how many connections were opened, and how many logins renewed a session."""
    counts = {"connections": 0, "renewals": 0}
    open_, authenticate = Connection.open, authentication.authenticate

    async def counted_open(*args: Any, **kwargs: Any) -> Connection:
        counts["connections"] += 1
        return await open_(*args, **kwargs)

    async def counted_renewal(*args: Any) -> int:
        lifetime_ms = await authenticate(*args)
        counts["renewals"] += 1
        return lifetime_ms

    monkeypatch.setattr(Connection, "open", counted_open)
    monkeypatch.setattr(reauthentication, "authenticate", counted_renewal)
    yield counts


@pytest.mark.parametrize(
    ("mechanism", "idempotent"), [("SCRAM-SHA-512", True), ("OAUTHBEARER", False)]
)
async def test_under_load_a_renewed_session_loses_doubles_and_reorders_nothing(
    secured: RealKafka, monkeypatch: pytest.MonkeyPatch, mechanism: str, idempotent: bool
) -> None:
    topic = f"renewed-{mechanism}-{idempotent}".lower()
    login = scram() if mechanism == "SCRAM-SHA-512" else OAUTH
    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "linger_ms": 0,
        "batch_size": 2_000,
        **login,
    }
    sent = 0
    async with asyncio.timeout(LIMIT_S), counted(monkeypatch) as counts:
        async with Producer(
            secured.bootstrap_servers_of("RENEWED"), enable_idempotence=idempotent, **settings
        ) as producer:
            while counts["renewals"] < 2:
                for _ in range(100):
                    await producer.send(topic, b"%08d" % sent)
                    sent += 1
                await asyncio.sleep(0.005)
        values = await read_back(secured, topic, sent)
    assert values == [b"%08d" % number for number in range(sent)]
    # One to the bootstrap address and one to the node: none was lost, so no retry has hidden an
    # error.
    assert counts["connections"] == 2
