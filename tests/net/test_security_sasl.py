"""Logging in: each mechanism works, refusals are raised at once with the broker's reason, and the
client does not retry at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from aioprod.config.client import ClientConfig
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerConnectionError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.net.reauthentication import Reauthentication
from aioprod.oauth_token import OAuthToken
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.testing import BrokerSecurity, EmbeddedCluster, delay, fail
from tests.net.certificates import Certificates
from tests.plain_server import serving
from tests.waiting import until

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USER = "alice, of =2C"
PASSWORD = "pässword €"


def validate(token: str, extensions: Mapping[str, str]) -> str | None:
    return (
        f"owner of {token}"
        if token.startswith("good") and extensions.get("cluster", "lkc") == "lkc"
        else None
    )


@pytest.fixture
def security() -> BrokerSecurity:
    """The users who may log in."""
    return BrokerSecurity(users={USER: PASSWORD}, token_validator=validate)


@pytest.fixture
async def broker(security: BrokerSecurity) -> AsyncIterator[EmbeddedCluster]:
    """A broker that requires a login."""
    async with EmbeddedCluster(security=security) as running:
        yield running


def config(mechanism: str = "SCRAM-SHA-256", **settings: Any) -> ClientConfig:
    given: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "request_timeout_ms": 3_000,
    }
    if mechanism in MECHANISMS:
        given |= {"sasl_username": USER, "sasl_password": PASSWORD}
    return ClientConfig(**{**given, **settings})


async def log_in(broker: EmbeddedCluster, settings: ClientConfig) -> Connection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    async with asyncio.timeout(10):
        return await connect(host, int(port), settings)


def logins(broker: EmbeddedCluster) -> int:
    return sum(seen.api_key == ApiKey.SASL_HANDSHAKE for seen in broker.requests)


def giving(*tokens: OAuthToken) -> Callable[[], Awaitable[OAuthToken]]:
    """Return a provider of these tokens."""
    left = list(tokens)

    async def provide() -> OAuthToken:
        await asyncio.sleep(0)
        return left.pop(0)

    return provide


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_passwords(broker: EmbeddedCluster, mechanism: str) -> None:
    connection = await log_in(broker, config(mechanism))
    assert (await connection.request(MetadataRequest(topics=[]))).brokers
    reauthentication = connection.reauthentication
    assert isinstance(reauthentication, Reauthentication)
    assert not reauthentication.due, "the session does not expire"
    await connection.close()


async def test_tokens_and_their_extensions(broker: EmbeddedCluster) -> None:
    connection = await log_in(
        broker,
        config(
            "OAUTHBEARER", sasl_oauth_token_provider=giving(OAuthToken("good", {"cluster": "lkc"}))
        ),
    )
    assert (await connection.request(MetadataRequest(topics=[]))).brokers
    await connection.close()


async def test_over_tls(certificates: Certificates) -> None:
    security = BrokerSecurity(certificates.server_context(), users={USER: PASSWORD})
    async with EmbeddedCluster(security=security) as broker:
        settings = config(
            "SCRAM-SHA-512",
            security_protocol="SASL_SSL",
            ssl_truststore_location=certificates.truststore,
        )
        connection = await log_in(broker, settings)
        assert (await connection.request(MetadataRequest(topics=[]))).brokers
        await connection.close()


@pytest.mark.parametrize("wrong", [{"sasl_password": "wrong"}, {"sasl_username": "mallory"}])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_credentials_give_the_brokers_reason(
    broker: EmbeddedCluster, mechanism: str, wrong: dict[str, str]
) -> None:
    with pytest.raises(AuthenticationError) as raised:
        await log_in(broker, config(mechanism, **wrong))
    assert str(raised.value).startswith(
        f"{broker.bootstrap_servers}: {mechanism}: Authentication failed"
    )


async def test_a_refused_token_gives_the_brokers_reason(broker: EmbeddedCluster) -> None:
    for token in (OAuthToken("bad"), OAuthToken("good", {"cluster": "other"})):
        with pytest.raises(AuthenticationError, match=r'OAUTHBEARER: {"status":"invalid_token"}'):
            await log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=giving(token)))


async def test_a_mechanism_that_the_broker_does_not_have() -> None:
    async with EmbeddedCluster(
        security=BrokerSecurity(users={USER: PASSWORD}, mechanisms=("PLAIN",))
    ) as broker:
        with pytest.raises(
            AuthenticationError,
            match="does not offer sasl_mechanism='SCRAM-SHA-256' on this port, but PLAIN",
        ):
            await log_in(broker, config())


async def test_a_listener_without_sasl() -> None:
    async with EmbeddedCluster() as broker:
        with pytest.raises(AuthenticationError, match="this port does not use SASL"):
            await log_in(broker, config())


async def test_a_client_without_sasl_at_a_listener_with_it(broker: EmbeddedCluster) -> None:
    connection = await log_in(broker, ClientConfig())
    with pytest.raises(
        BrokerConnectionError, match=r"after 1 replies; does it use another security_protocol?"
    ):
        await connection.request(MetadataRequest(topics=[]))


async def test_any_other_error_of_the_broker_ends_the_login(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.SASL_HANDSHAKE, fail(ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(AuthenticationError, match="SaslHandshake: UNKNOWN_SERVER_ERROR"):
        await log_in(broker, config())
    broker.on(ApiKey.SASL_AUTHENTICATE, fail(ErrorCode.ILLEGAL_SASL_STATE))
    with pytest.raises(AuthenticationError, match="the current SASL state"):
        await log_in(broker, config())


async def test_a_broker_from_before_saslauthenticate() -> None:
    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        # ApiVersions version 0 with one entry: SaslHandshake 0 to 0.
        body = frame[4:8] + b"\0\0" + b"\0\0\0\1" + b"\0\x11\0\0\0\0"
        if frame[2:4] != b"\0\0":
            body = frame[4:8] + b"\0\x23" + b"\0\0\0\0"  # UNSUPPORTED_VERSION, without versions
        writer.write(len(body).to_bytes(4, "big") + body)
        await writer.drain()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer_once(reader, writer)
        await answer_once(reader, writer)
        await reader.read()

    async with serving(answer) as port:
        with pytest.raises(UnsupportedVersionError, match="SaslAuthenticateRequest"):
            await connect("127.0.0.1", port, config())


async def test_a_broker_that_does_not_answer_the_login(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.SASL_AUTHENTICATE, delay(30))
    with pytest.raises(
        RequestTimedOutError,
        match="no reply to SaslAuthenticateRequest within request_timeout_ms=150",
    ):
        await log_in(broker, config(request_timeout_ms=150))


async def test_login_may_be_cancelled_anywhere(broker: EmbeddedCluster) -> None:
    for api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        rule = broker.on(api, delay(30))
        task = asyncio.create_task(log_in(broker, config()))
        await until(partial(getattr, rule, "used"), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # No task remains: a fixture checks that.


class TestTokenProvider:
    async def test_the_loop_runs_on_while_it_works(self, broker: EmbeddedCluster) -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def provide() -> OAuthToken:
            asked.set()
            await go_on.wait()
            return OAuthToken("good")

        connecting = asyncio.create_task(
            log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=provide))
        )
        async with asyncio.timeout(5):
            await asked.wait()
            go_on.set()
            connection = await connecting
        await connection.close()

    async def test_it_has_a_limit(self, broker: EmbeddedCluster) -> None:
        async def provide() -> OAuthToken:
            await asyncio.sleep(30)
            return OAuthToken("good")

        with pytest.raises(
            AuthenticationError, match="returned no token within request_timeout_ms=100"
        ):
            await log_in(
                broker,
                config("OAUTHBEARER", sasl_oauth_token_provider=provide, request_timeout_ms=100),
            )

    async def test_its_errors_are_named_and_kept_as_the_cause(
        self, broker: EmbeddedCluster
    ) -> None:
        async def provide() -> OAuthToken:
            raise ZeroDivisionError("with some secret")

        with pytest.raises(
            AuthenticationError, match=r"^sasl_oauth_token_provider failed with ZeroDivisionError$"
        ) as raised:
            await log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=provide))
        assert isinstance(raised.value.__cause__, ZeroDivisionError)

    @pytest.mark.parametrize(
        ("provider", "fault"),
        [
            (lambda: OAuthToken("good"), "must be an async function"),
            (giving("good"), "must return an OAuthToken, not str"),  # type: ignore[arg-type]
        ],
    )
    async def test_a_provider_of_a_wrong_type(
        self, broker: EmbeddedCluster, provider: Any, fault: str
    ) -> None:
        with pytest.raises(AuthenticationError, match=fault):
            await log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=provider))

    async def test_a_token_that_can_not_be_sent(self, broker: EmbeddedCluster) -> None:
        with pytest.raises(
            AuthenticationError, match="token is empty or contains characters"
        ) as raised:
            await log_in(
                broker,
                config(
                    "OAUTHBEARER", sasl_oauth_token_provider=giving(OAuthToken("good\x01token"))
                ),
            )
        assert "good" not in str(raised.value)

    async def test_each_connection_asks_for_a_token_of_its_own(
        self, broker: EmbeddedCluster
    ) -> None:
        provider = giving(OAuthToken("good1"), OAuthToken("good2"))
        for _ in range(2):
            await (
                await log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=provider))
            ).close()
        with pytest.raises(AuthenticationError, match="IndexError"):
            await log_in(broker, config("OAUTHBEARER", sasl_oauth_token_provider=provider))


class TestNotHammered:
    PAUSE_S = 0.4

    @pytest.fixture
    async def brokers(self, broker: EmbeddedCluster) -> AsyncIterator[Brokers]:
        """A client of that broker with a wrong password."""
        settings = config(
            sasl_password="wrong",
            bootstrap_servers=broker.bootstrap_servers,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=int(self.PAUSE_S * 1000),
        )
        running = Brokers(settings, random.Random(7))
        yield running
        await running.close()

    async def test_any_gives_the_brokers_reason_at_once_and_asks_again_only_after_the_pause(
        self, broker: EmbeddedCluster, brokers: Brokers
    ) -> None:
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(AuthenticationError, match=r"SCRAM-SHA-256: Authentication failed"):
                await brokers.any()
        assert logins(broker) == 1 + int((time.monotonic() - began) / self.PAUSE_S)
        await asyncio.sleep(self.PAUSE_S)
        tried = logins(broker)
        with pytest.raises(AuthenticationError):
            await brokers.any()
        assert logins(broker) == tried + 1

    async def test_a_node_likewise(self, broker: EmbeddedCluster, brokers: Brokers) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        brokers.update_nodes({1: BrokerAddress(1, host, int(port))})
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(AuthenticationError, match=r"SCRAM-SHA-256: Authentication failed"):
                await brokers.connection(1)
            brokers.start_connecting(1)
        assert logins(broker) == 1 + int((time.monotonic() - began) / self.PAUSE_S)
        assert isinstance(brokers.last_error(1), AuthenticationError)
        # The bootstrap servers refuse the client, too, during the node's pause.
        with pytest.raises(AuthenticationError):
            await brokers.any()

    async def test_right_credentials_are_taken_after_the_pause(
        self, security: BrokerSecurity, brokers: Brokers
    ) -> None:
        with pytest.raises(AuthenticationError):
            await brokers.any()
        security.users = {USER: "wrong"}
        async with asyncio.timeout(10):
            while True:
                try:
                    connection = await brokers.any()
                    break
                except AuthenticationError:
                    await asyncio.sleep(0.01)
        assert (await connection.request(MetadataRequest(topics=[]))).brokers

    async def test_one_broker_that_refuses_does_not_keep_the_client_from_another(
        self, broker: EmbeddedCluster
    ) -> None:
        async with EmbeddedCluster(security=BrokerSecurity(users={USER: "another"})) as other:
            settings = config(bootstrap_servers=[other.bootstrap_servers, broker.bootstrap_servers])
            for seed in range(4):
                brokers = Brokers(settings, random.Random(seed))
                assert (await brokers.any()).address == broker.bootstrap_servers
                await brokers.close()

    async def test_a_refusal_is_raised_rather_than_an_unreachable_address(
        self, broker: EmbeddedCluster
    ) -> None:
        for seed in range(4):
            settings = config(
                sasl_password="wrong", bootstrap_servers=["127.0.0.1:1", broker.bootstrap_servers]
            )
            brokers = Brokers(settings, random.Random(seed))
            with pytest.raises(AuthenticationError):
                await brokers.any()
            await brokers.close()
