"""Listeners of real brokers of both versions work with TLS and SASL, and refuse clients without the
certificate or the password.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from aioprod import AuthenticationError, Producer
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_kafka import RealKafka

PLAIN_PASSWORD = 'a "quoted" back\\slash, ünd €;'
SCRAM_PASSWORD = "with space=and$equals"

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Secured:
    version: str
    kafka: RealKafka
    authority: trustme.CA

    def context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if with_certificate:
            self.authority.issue_cert("client@example.org").configure_cert(context)
        return context

    def producer(self, listener: str, **settings: object) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers_of(listener),
            request_timeout_ms=10_000,
            **settings,
        )


class UnsignedToken(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        now = int(time.time())
        parts = {"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 60}
        return (
            ".".join(
                base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
                for part in parts
            )
            + "."
        )


def pem_of(certificate: trustme.LeafCert) -> tuple[str, str]:
    """Return the certificate chain and the private key in Kafka's format."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    return chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


# The newest and the oldest always, those between on demand.
VERSIONS = [
    KAFKA_VERSIONS[0],
    *(pytest.param(each, marks=pytest.mark.interop) for each in KAFKA_VERSIONS[1:-1]),
    KAFKA_VERSIONS[-1],
]


@pytest.fixture(scope="module", params=VERSIONS)
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    authority = trustme.CA()
    chain, key = pem_of(authority.issue_cert("127.0.0.1"))
    trusted = authority.cert_pem.bytes().decode()
    listeners = [
        Listener("SSL", certificate_chain=chain, private_key=key),
        Listener(
            "SSL",
            name="MUTUAL",
            certificate_chain=chain,
            private_key=key,
            trusted_certificates=trusted,
        ),
        Listener(
            "SASL_SSL",
            certificate_chain=chain,
            private_key=key,
            mechanisms=["SCRAM-SHA-256", "SCRAM-SHA-512"],
        ),
        Listener(
            "SASL_PLAINTEXT",
            mechanisms=["PLAIN", "OAUTHBEARER"],
            plain_users={"bob": PLAIN_PASSWORD},
        ),
    ]
    with RealKafka(
        version=request.param, listeners=listeners, scram_users={"alice": SCRAM_PASSWORD}
    ) as kafka:
        yield Secured(request.param, kafka, authority)


async def goes_in_and_comes_out(secured: Secured, listener: str, **settings: object) -> None:
    async with secured.producer(listener, **settings) as producer:
        sent = await producer.send_and_wait(f"through-{listener}", b"value")
    async with AIOKafkaConsumer(
        f"through-{listener}",
        bootstrap_servers=secured.kafka.bootstrap_servers_of(listener),
        auto_offset_reset="earliest",
        **settings,
    ) as consumer:
        record = await consumer.getone()
    assert (record.offset, record.value) == (0, b"value")
    assert sent.offset >= 0


async def is_refused(
    secured: Secured,
    listener: str,
    sasl_plain_username: str | None = None,
    sasl_plain_password: str | None = None,
    **settings: Any,
) -> None:
    """Return whether our client is refused: aiokafka then leaves its socket open."""
    servers = secured.kafka.bootstrap_servers_of(listener)
    producer = Producer(
        servers, sasl_username=sasl_plain_username, sasl_password=sasl_plain_password, **settings
    )
    with pytest.raises(AuthenticationError):
        await producer.start()
    await producer.close()


def test_the_broker_is_of_the_version_asked_for(secured: Secured) -> None:
    major_and_minor = secured.version.rpartition(".")[0]
    assert f"at metadata.version {major_and_minor}-IV" in secured.kafka.log_tail(100)


async def test_tls(secured: Secured) -> None:
    await goes_in_and_comes_out(
        secured, "SSL", security_protocol="SSL", ssl_context=secured.context()
    )


async def test_mutual_tls_asks_for_a_certificate(secured: Secured) -> None:
    await goes_in_and_comes_out(
        secured,
        "MUTUAL",
        security_protocol="SSL",
        ssl_context=secured.context(with_certificate=True),
    )
    await is_refused(secured, "MUTUAL", security_protocol="SSL", ssl_context=secured.context())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_over_tls(secured: Secured, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_context": secured.context(),
        "sasl_mechanism": mechanism,
    }
    settings["sasl_plain_username"] = "alice"
    await goes_in_and_comes_out(secured, "SASL_SSL", **settings, sasl_plain_password=SCRAM_PASSWORD)
    await is_refused(secured, "SASL_SSL", **settings, sasl_plain_password="wrong")


async def test_plain(secured: Secured) -> None:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "bob",
    }
    await goes_in_and_comes_out(
        secured, "SASL_PLAINTEXT", **settings, sasl_plain_password=PLAIN_PASSWORD
    )
    await is_refused(secured, "SASL_PLAINTEXT", **settings, sasl_plain_password="wrong")


async def test_oauthbearer(secured: Secured) -> None:
    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": UnsignedToken(),
    }
    await goes_in_and_comes_out(secured, "SASL_PLAINTEXT", **settings)
