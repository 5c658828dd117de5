"""Tokens that a real broker checks, with the keys of the identity provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aioprod import Consumer, Producer
from aioprod.errors import AuthenticationError
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.kafka_process import QUICK_START
from aioprod.testing.real_cluster import RealCluster
from tests.oauth.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.oauth.test_oauth import settings, write_key

CHECKED_BY = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[None]:
    """Start it in a thread: while it starts, it asks the identity provider in this event loop."""
    await asyncio.to_thread(cluster.start)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.stop)


@pytest.mark.kafka
@pytest.mark.timeout(180)
async def test_kafka_checks_the_tokens_of_clients_that_are_configured_by_text(
    tmp_path: Path,
) -> None:
    async with IdentityProvider().running() as provider:
        listener = Listener(
            "SASL_PLAINTEXT",
            mechanisms=["OAUTHBEARER"],
            settings={
                "oauthbearer.sasl.server.callback.handler.class": CHECKED_BY,
                "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
                "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
                "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            },
        )
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.jwks_url}"
        cluster = RealCluster(
            1, listeners=lambda _: [listener], java_options=[*QUICK_START, allowed]
        )
        async with running(cluster):
            given = {
                "bootstrap.servers": cluster.bootstrap_servers_of("SASL_PLAINTEXT"),
                **settings(provider),
            }
            async with Producer.from_config(given) as producer:
                await producer.send_and_wait("orders", b"1")
            earliest = {**given, "auto.offset.reset": "earliest"}
            async with Consumer.from_config(earliest, "orders") as consumer:
                assert (await consumer.getone(timeout_ms=20_000)).value == b"1"

            key = tmp_path / "key.pem"
            provider.assertion_key = write_key(key, "RS256", None)
            by_key = {name: given[name] for name in given if ".credentials." not in name}
            assertion = "sasl.oauthbearer.assertion."
            by_key[f"{assertion}private.key.file"] = str(key)
            by_key[f"{assertion}claim.iss"] = provider.client_id
            by_key[f"{assertion}claim.aud"] = ISSUER
            async with Producer.from_config(by_key) as producer:
                await producer.send_and_wait("orders", b"2")
            assert "assertion" in provider.requests[-1]

            provider.answers = [(200, {"access_token": provider.token(aud="others")})] * 9
            with pytest.raises(AuthenticationError, match="OAUTHBEARER"):
                await Producer.from_config(given).start()
