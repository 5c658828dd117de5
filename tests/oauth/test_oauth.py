"""Tokens from an identity provider: requests, failures, and clients that log in with them."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import aioprod
from aioprod import Consumer, Producer
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, ConfigError, KafkaTimeoutError
from aioprod.oauth import Assertion, ClientCredentials, JwtBearer, TokenRequestError
from aioprod.oauth.endpoint import lifetime_of
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.oauth.identity_provider import ISSUER, IdentityProvider
from tests.plain_server import serving
from tests.testing.leaks import everything_logged, whole_text

PACKAGE = str(Path(aioprod.__file__).parent)
URL = "sasl.oauthbearer.token.endpoint.url"


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider().running() as running:
        yield running


def tokens(provider: IdentityProvider, **options: Any) -> ClientCredentials:
    return ClientCredentials(provider.url, provider.client_id, provider.client_secret, **options)


def settings(provider: IdentityProvider) -> dict[str, str]:
    """Return the settings of a properties file."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        URL: provider.url,
        "sasl.oauthbearer.client.credentials.client.id": provider.client_id,
        "sasl.oauthbearer.client.credentials.client.secret": provider.client_secret,
        "sasl.oauthbearer.scope": "kafka",
    }


class TestRequests:
    async def test_client_credentials(self, provider: IdentityProvider) -> None:
        ask = tokens(provider, scope="kafka other", parameters={"audience": "a"})
        token = await ask()
        assert provider.user_of(token.value) == provider.client_id
        assert provider.requests == [
            {"grant_type": "client_credentials", "scope": "kafka other", "audience": "a"}
        ]
        assert await ask() == token
        assert len(provider.requests) == 1

    async def test_encoding_of_id_and_secret(self, provider: IdentityProvider) -> None:
        with pytest.raises(TokenRequestError, match="401 invalid_client Unknown client"):
            await tokens(provider, header_urlencode=True)()
        decoded = base64.b64decode(provider.authorizations[0].removeprefix("Basic ")).decode()
        assert decoded == "orders-service:s3cret%2B%3A%25%2F%C3%BC"

    async def test_a_lifetime_that_only_the_token_shows(self, provider: IdentityProvider) -> None:
        provider.shows_lifetime = False
        ask = tokens(provider)
        assert await ask() == await ask()

    @pytest.mark.parametrize("status", [408, 429, 500, 503])
    async def test_failures_that_may_pass_are_retried(
        self, provider: IdentityProvider, status: int
    ) -> None:
        provider.answers = [(status, {}), (status, "<html>")]
        assert provider.user_of((await tokens(provider)()).value)
        assert len(provider.requests) == 3

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            ((400, {"error": "invalid_scope"}), "400 invalid_scope"),
            ((403, "<html>no</html>"), "403 Forbidden"),
            ((302, ""), "302: redirect without a location"),
            ((200, "no JSON"), "200, but the response contains no access_token"),
            ((200, {"access_token": ""}), "200, but the response contains no access_token"),
            ((200, ["a"]), "200, but the response contains no access_token"),
            ((200, "[" * 100_000), "200, but the response contains no access_token"),
            ((400, {"error": "a\x1b[31m", "error_description": "b\nc"}), "400 a\\x1b[31m b\\nc"),
        ],
    )
    async def test_refusals_are_not_retried(
        self, provider: IdentityProvider, answer: tuple[int, Any], text: str
    ) -> None:
        provider.answers = [answer]
        with pytest.raises(TokenRequestError) as caught:
            await tokens(provider)()
        assert str(caught.value) == f"token endpoint {provider.url}: {text}"
        assert len(provider.requests) == 1

    @pytest.mark.parametrize("lifetime", ["Infinity", "NaN", "1e400", "9" * 400, f'"{"9" * 5000}"'])
    async def test_a_lifetime_that_is_not_a_time(
        self, provider: IdentityProvider, lifetime: str
    ) -> None:
        answer = (200, f'{{"access_token": "a", "expires_in": {lifetime}}}')
        provider.answers = [answer, answer]
        ask = tokens(provider)
        assert [(await ask()).value, (await ask()).value] == ["a", "a"]
        assert len(provider.requests) == 2  # it is used once

    async def test_a_provider_that_does_not_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            ask = ClientCredentials(
                f"http://127.0.0.1:{port}/", "i", "s", request_timeout_ms=50, timeout_ms=200
            )
            with pytest.raises((TokenRequestError, KafkaTimeoutError), match="timeout_ms="):
                await ask()

    async def test_a_provider_that_is_not_there(self) -> None:
        refused = r"http://127\.0\.0\.1:9/: unreachable: Cannot connect"
        with pytest.raises((TokenRequestError, KafkaTimeoutError), match=refused):
            await ClientCredentials("http://127.0.0.1:9/", "i", "s", timeout_ms=300)()

    async def test_tls_with_another_authority(self) -> None:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with IdentityProvider().running(context) as secured:
            assert await tokens(secured, ssl_context=trusting)()
            # The limit is for several attempts: the first takes 300 ms on a busy machine, as it
            # reads the certificates that the system trusts.
            with pytest.raises(
                (TokenRequestError, KafkaTimeoutError), match="certificate verify failed"
            ):
                await tokens(secured, timeout_ms=3_000)()

    async def test_a_proxy(self, provider: IdentityProvider) -> None:
        # The endpoint itself stands for the proxy: it gets the whole address as target.
        ask = ClientCredentials(
            "http://login.example.com/token", "i", "s", proxy=provider.url.removesuffix("/token")
        )
        with pytest.raises(TokenRequestError, match="401"):
            await ask()
        assert len(provider.requests) == 1

    @pytest.mark.parametrize("by_environment", [False, True])
    async def test_a_proxy_that_refuses_its_password(
        self, monkeypatch: pytest.MonkeyPatch, by_environment: bool
    ) -> None:
        asked = 0

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

        async with serving(refuse) as port:
            proxy = f"http://me:hush@127.0.0.1:{port}"
            if by_environment:
                monkeypatch.setenv("HTTPS_PROXY", proxy)
            options = {} if by_environment else {"proxy": proxy}
            ask = ClientCredentials("https://login.example.com/", "i", "s", **options)  # type: ignore[arg-type]
            with (
                everything_logged() as logged,
                pytest.raises(
                    TokenRequestError, match="the proxy responded 407 Proxy Auth"
                ) as caught,
            ):
                await ask()
        assert asked == 1
        assert "hush" not in f"{caught.value!r} {ask!r} {logged.getvalue()}"

    async def test_a_proxy_of_the_environment_that_is_not_a_url(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hush@proxy:1080")
        with pytest.raises(TokenRequestError, match="HTTPS_PROXY is not the URL") as caught:
            await ClientCredentials("https://login.example.com/", "i", "s")()
        assert "hush" not in repr(caught.value)

    def test_an_endpoint_without_tls_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        ClientCredentials("https://login.example.com/", "i", "s")
        ClientCredentials("http://127.0.0.1:1/", "i", "s")
        assert caplog.text == ""
        ClientCredentials("http://login.example.com/", "i", "s")
        assert "sent to http://login.example.com/ unencrypted" in caplog.text

    async def test_no_secret_is_reported(self, provider: IdentityProvider) -> None:
        with everything_logged() as logged:
            provider.answers = [(500, {})] * 3 + [(401, {"error": "invalid_client"})]
            ask = tokens(provider)
            with pytest.raises(TokenRequestError) as caught:
                await ask()
        shown = f"{caught.value!r} {ask!r} {vars(ask)['_endpoint']!r} {logged.getvalue()}"
        frames = caught.value.__traceback__
        while frames is not None:
            if not frames.tb_frame.f_code.co_filename.startswith(PACKAGE):
                frames = frames.tb_next
                continue
            local = {n: v for n, v in frames.tb_frame.f_locals.items() if n not in ("self", "ask")}
            shown += repr(local)
            frames = frames.tb_next
        assert provider.client_secret not in shown
        assert provider.authorizations[0] not in shown


class TestAssertions:
    @pytest.mark.parametrize(
        ("algorithm", "passphrase"), [("RS256", None), ("ES256", None), ("RS256", "opens it")]
    )
    async def test_signed_here(
        self, provider: IdentityProvider, tmp_path: Path, algorithm: Any, passphrase: str | None
    ) -> None:
        path = tmp_path / "key.pem"
        provider.assertion_key = write_key(path, algorithm, passphrase)
        assertion = Assertion(
            private_key_file=path,
            private_key_passphrase=passphrase,
            algorithm=algorithm,
            issuer=provider.client_id,
            subject="me",
            audience=ISSUER,
            with_id=True,
            claims={"tenant": 7},
            headers={"kid": "mine"},
        )
        token = await JwtBearer(provider.url, assertion, scope="kafka")()
        assert provider.user_of(token.value) == provider.client_id
        sent = provider.requests[0]["assertion"]
        claims = jwt.decode(sent, options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == 300 and claims["iat"] - claims["nbf"] == 60
        assert claims["tenant"] == 7 and claims["sub"] == "me" and claims["jti"]
        assert jwt.get_unverified_header(sent)["kid"] == "mine"
        assert provider.requests[0]["scope"] == "kafka"

    async def test_from_a_file_that_is_read_for_each_request(
        self, provider: IdentityProvider, tmp_path: Path
    ) -> None:
        key, path = tmp_path / "key.pem", tmp_path / "assertion"
        provider.assertion_key = write_key(key, "RS256", None)
        ask = JwtBearer(provider.url, path)
        with pytest.raises(TokenRequestError, match=r"assertion='.*': No such file"):
            await ask()
        path.write_text("not a token\n")
        with pytest.raises(TokenRequestError, match="contains no JSON Web Token"):
            await ask()
        signed = Assertion(private_key_file=key, issuer=provider.client_id, audience=ISSUER)
        path.write_text(signed.signed(time.time()) + "\n")
        assert provider.user_of((await ask()).value)

    @pytest.mark.parametrize(
        ("algorithm", "passphrase", "given", "text"),
        [
            ("ES256", None, {}, "not one for RS256"),
            ("RS256", "opens it", {}, "but private_key_passphrase is not set"),
            ("RS256", "opens it", {"private_key_passphrase": "wrong"}, "passphrase is wrong"),
            ("RS256", None, {"private_key_passphrase": "some"}, "the key is not encrypted"),
        ],
    )
    async def test_keys_that_do_not_fit(
        self,
        provider: IdentityProvider,
        tmp_path: Path,
        algorithm: str,
        passphrase: str | None,
        given: dict[str, Any],
        text: str,
    ) -> None:
        path = tmp_path / "key.pem"
        write_key(path, algorithm, passphrase)
        with pytest.raises(TokenRequestError, match=text):
            await JwtBearer(provider.url, Assertion(private_key_file=path, **given))()
        assert provider.requests == []


class TestClients:
    """Clients that are configured by text log in to a broker that checks the tokens."""

    async def test_a_producer_and_a_consumer(self, provider: IdentityProvider) -> None:
        security = BrokerSecurity(token_validator=provider.user_of)
        async with EmbeddedCluster(security=security) as broker:
            broker.create_topic("orders")
            given = {"bootstrap.servers": broker.bootstrap_servers, **settings(provider)}
            async with Producer.from_config(given) as producer:
                await producer.send_and_wait("orders", b"1")
            async with Consumer.from_config(
                {**given, "auto.offset.reset": "earliest"}, "orders"
            ) as consumer:
                assert (await consumer.getone()).value == b"1"
        assert {request["scope"] for request in provider.requests} == {"kafka"}
        assert len(provider.requests) == 2  # one for each client, not for each connection

    async def test_a_token_that_the_broker_refuses_is_not_sent_again(
        self, provider: IdentityProvider
    ) -> None:
        sent: list[str] = []

        def validate(token: str, extensions: object) -> str | None:
            sent.append(token)  # as if the first one had been withdrawn
            return None if token == sent[0] else provider.user_of(token)

        ask = tokens(provider)
        async with EmbeddedCluster(security=BrokerSecurity(token_validator=validate)) as broker:
            login: dict[str, Any] = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": ask,
            }
            with pytest.raises(AuthenticationError, match="invalid_token"):
                async with Producer(broker.bootstrap_servers, **login):
                    pass
            async with Producer(broker.bootstrap_servers, **login) as producer:
                await producer.send_and_wait("orders", b"1")
        assert len(set(sent)) == 2
        assert len(provider.requests) == 2

    async def test_javas_login_module(self, provider: IdentityProvider) -> None:
        seen: list[Any] = []

        def validate(token: str, extensions: Any) -> str | None:
            seen.append(dict(extensions))
            return provider.user_of(token)

        async with EmbeddedCluster(security=BrokerSecurity(token_validator=validate)) as broker:
            given = {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                URL: provider.url,
                "sasl.jaas.config": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                    f'clientId="{provider.client_id}" clientSecret="{provider.client_secret}" '
                    'scope="kafka" extension_logicalCluster="lkc-1";'
                ),
            }
            async with Producer.from_config(given) as producer:
                await producer.send_and_wait("orders", b"1")
        assert seen[0] == {"logicalCluster": "lkc-1"}
        assert provider.requests[0]["scope"] == "kafka"

    async def test_javas_login_module_in_addition_to_the_settings(
        self, provider: IdentityProvider
    ) -> None:
        # Java wants a module in any case; since 4.1 the id and the secret are settings.
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        for options, extensions in (("", {}), (' extension_a="b"', {"a": "b"})):
            given = {**settings(provider), "sasl.jaas.config": f"{module}{options} ;"}
            given["bootstrap.servers"] = "127.0.0.1:1"
            made = Producer.from_config(given).config.sasl_oauth_token_provider
            assert isinstance(made, ClientCredentials)
            token = await made()
            assert provider.user_of(token.value) == provider.client_id
            assert token.extensions == extensions

    async def test_an_assertion_from_a_file(
        self, provider: IdentityProvider, tmp_path: Path
    ) -> None:
        key, path = tmp_path / "key.pem", tmp_path / "assertion"
        provider.assertion_key = write_key(key, "RS256", None)
        signed = Assertion(private_key_file=key, issuer=provider.client_id, audience=ISSUER)
        path.write_text(signed.signed(time.time()))
        given = {
            name: value for name, value in settings(provider).items() if ".credentials." not in name
        }
        security = BrokerSecurity(token_validator=provider.user_of)
        async with EmbeddedCluster(security=security) as broker:
            given["bootstrap.servers"] = broker.bootstrap_servers
            given["sasl.oauthbearer.assertion.file"] = str(path)
            async with Producer.from_config(given) as producer:
                await producer.send_and_wait("orders", b"1")

    @pytest.mark.parametrize("passphrase", [None, "opens it"])
    async def test_assertions_that_are_signed_by_a_key(
        self, provider: IdentityProvider, tmp_path: Path, passphrase: str | None
    ) -> None:
        key = tmp_path / "key.pem"
        provider.assertion_key = write_key(key, "ES256", passphrase)
        signed = {
            "private.key.file": str(key),
            **({"private.key.passphrase": passphrase} if passphrase else {}),
            "algorithm": "ES256",
            "claim.iss": provider.client_id,
            "claim.sub": "orders",
            "claim.aud": ISSUER,
            "claim.exp.seconds": "120",
            "claim.nbf.seconds": "5",
            "claim.jti.include": "true",
        }
        given = {
            name: value for name, value in settings(provider).items() if ".credentials." not in name
        } | {f"sasl.oauthbearer.assertion.{name}": value for name, value in signed.items()}
        security = BrokerSecurity(token_validator=provider.user_of)
        async with EmbeddedCluster(security=security) as broker:
            given["bootstrap.servers"] = broker.bootstrap_servers
            async with Producer.from_config(given) as producer:
                await producer.send_and_wait("orders", b"1")
                assert "opens it" not in repr(producer.config)
        sent = jwt.decode(provider.requests[0]["assertion"], options={"verify_signature": False})
        assert (sent["iss"], sent["sub"], sent["aud"]) == (provider.client_id, "orders", ISSUER)
        assert (sent["exp"] - sent["iat"], sent["iat"] - sent["nbf"]) == (120, 5)
        assert sent["jti"]

    async def test_another_authority_for_the_identity_provider(self, tmp_path: Path) -> None:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        trusted = tmp_path / "authority.pem"
        authority.cert_pem.write_to_path(str(trusted))
        async with IdentityProvider().running(context) as secured:
            for location, kind in ((str(trusted), "PEM"), (str(trusted), "JKS"), ("absent", "PEM")):
                given = {"bootstrap.servers": "127.0.0.1:1", **settings(secured)}
                given["sasl.jaas.config"] = (
                    "x.OAuthBearerLoginModule required "
                    f'ssl.truststore.location="{location}" ssl.truststore.type={kind};'
                )
                if (location, kind) == (str(trusted), "PEM"):
                    made = Producer.from_config(given).config.sasl_oauth_token_provider
                    assert made is not None
                    assert secured.user_of((await made()).value)
                    continue
                with pytest.raises(ConfigError, match=r"ssl\.truststore\.(type|location='absent')"):
                    Producer.from_config(given)

    async def test_the_error_says_what_the_identity_provider_said(
        self, provider: IdentityProvider
    ) -> None:
        provider.answers = [(401, {"error": "invalid_client"})] * 9
        security = BrokerSecurity(token_validator=provider.user_of)
        async with EmbeddedCluster(security=security) as broker:
            given = {"bootstrap.servers": broker.bootstrap_servers, **settings(provider)}
            with pytest.raises(AuthenticationError, match="401 invalid_client"):
                await Producer.from_config(given).start()


class TestSettings:
    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"token_endpoint_url": None}, "sasl_oauthbearer_token_endpoint_url, or sasl_oauth_"),
            ({"client_credentials_client_secret": None}, "needs sasl_oauthbearer_client_credenti"),
            ({"token_endpoint_url": "login.example.com"}, "must begin with https:// and name a"),
            ({"token_endpoint_url": "https://a:b@c/"}, "must not contain a user name or password"),
            ({"assertion_file": "a"}, "assertion_file and sasl_oauthbearer_client_credentials_cli"),
            ({"assertion_private_key_file": "a"}, "private_key_file and sasl_oauthbearer_client_c"),
            ({"assertion_claim_iss": "a"}, "claim_iss is set, but sasl_oauthbearer_assertion_priv"),
            ({"assertion_algorithm": "HS256"}, "must be one of RS256, ES256"),
            ({"assertion_claim_exp_seconds": -1}, "must be from 0 to 86400"),
        ],
    )
    def test_what_is_missing_or_wrong_is_named(
        self, changes: dict[str, str | None], text: str
    ) -> None:
        with pytest.raises(ConfigError, match=text):
            ClientConfig(**client(**changes))

    def test_settings_for_another_mechanism(self) -> None:
        with pytest.raises(ConfigError, match="'PLAIN' does not use it"):
            ClientConfig(
                **client() | {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
            )
        with pytest.raises(ConfigError, match="without SASL"):
            ClientConfig(**client() | {"security_protocol": "SSL", "sasl_mechanism": None})

    def test_a_provider_in_addition_to_the_settings(self) -> None:
        async def ask() -> Any: ...

        with pytest.raises(ConfigError, match="are both set"):
            ClientConfig(**client(), sasl_oauth_token_provider=ask)

    def test_no_repr_has_the_secret(self) -> None:
        config = ClientConfig(**client())
        assert isinstance(config.sasl_oauth_token_provider, ClientCredentials)
        assert "hush" not in repr(config) + repr(config.sasl_oauth_token_provider)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ("", "needs sasl_oauth_token_provider, or"),
            ('scope="a"', "needs sasl_oauthbearer_token_endpoint_url, or"),
            ('clientId="a"', "clientSecret is missing"),
            ('clientSecret="a"', "clientId is missing"),
            ('clientId="a" clientSecret="b" ssl.protocol="c"', "ssl.protocol of OAuthBearerLoginM"),
        ],
    )
    def test_login_modules_that_are_wrong(self, options: str, text: str) -> None:
        given: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
        with pytest.raises(ConfigError, match=text):
            ClientConfig(**given, sasl_jaas_config=f"x.OAuthBearerLoginModule required {options};")

    @pytest.mark.parametrize(
        "arguments",
        [
            {"client_id": ""},
            {"client_secret": ""},
            {"client_secret": b"hush"},
            {"client_secret": "hush\ud800"},
            {"timeout_ms": 0},
            {"timeout_ms": float("inf")},
            {"request_timeout_ms": True},
            {"token_endpoint_url": "ftp://a/"},
            {"token_endpoint_url": "https://a:99999/"},
            {"token_endpoint_url": "https://[::1/"},
            {"scope": ["a"]},
            {"parameters": "a"},
            {"parameters": {"audience": 5}},
            {"parameters": {"password": "hush\ud800"}},
            {"extensions": None},
            {"extensions": {1: "a"}},
            {"ssl_context": "authority.pem"},
            {"proxy": ""},
            {"proxy": "me:hush@proxy:3128"},
            {"proxy": "socks5://me:hush@proxy"},
        ],
    )
    def test_arguments_that_are_wrong(self, arguments: dict[str, Any]) -> None:
        given = {"token_endpoint_url": "https://a/", "client_id": "i", "client_secret": "s"}
        with pytest.raises(ConfigError, match=min(arguments)) as caught:
            ClientCredentials(**{**given, **arguments})
        assert "hush" not in whole_text(caught.value, {__file__})

    def test_an_argument_that_does_not_exist(self) -> None:
        with pytest.raises(TypeError, match="ClientCredentials has no argument 'retries'"):
            ClientCredentials("https://a/", "i", "s", retries=3)  # type: ignore[call-arg]

    @pytest.mark.parametrize(
        "arguments",
        [
            {"algorithm": "HS256"},
            {"audience": ["a"]},
            {"claims": None},
            {"claims": {"a": object()}},
            {"headers": ["kid"]},
            {"issuer": 5},
            {"lifetime_s": -1},
            {"private_key_file": None},
            {"private_key_passphrase": b"hush"},
        ],
    )
    def test_assertions_that_are_wrong(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=min(arguments)) as caught:
            Assertion(**{"private_key_file": "key.pem", **arguments})
        assert "hush" not in whole_text(caught.value, {__file__})


@pytest.mark.parametrize(
    ("claims", "lifetime"),
    [({"iat": 100, "exp": 160}, 60.0), ({"iat": 100}, None), ({"exp": True}, None), ([], None)],
)
def test_the_lifetime_in_a_token(claims: Any, lifetime: float | None) -> None:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    assert lifetime_of(f"e30.{body}.c") == lifetime
    assert lifetime_of(body) is None


def client(**changes: Any) -> dict[str, Any]:
    """Arguments of a client, with other values of the settings ``sasl_oauthbearer_...``."""
    given: dict[str, Any] = {
        "token_endpoint_url": "https://login.example.com/token",
        "client_credentials_client_id": "me",
        "client_credentials_client_secret": "hush",
        **changes,
    }
    named = {f"sasl_oauthbearer_{name}": value for name, value in given.items()}
    return {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **named}


def write_key(path: Path, algorithm: str, passphrase: str | None) -> str:
    """Write a new private key; return its public key as PEM."""
    key: Any = (
        rsa.generate_private_key(65537, 2048)
        if algorithm == "RS256"
        else ec.generate_private_key(ec.SECP256R1())
    )
    sealed = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
    public: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public.decode()
