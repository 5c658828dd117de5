"""Tokens for Google's Managed Kafka: google-auth asks services on this machine."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth.compute_engine._metadata
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aioprod import Producer
from aioprod.errors import ConfigError
from aioprod.oauth import GoogleTokens, TokenRequestError
from aioprod.oauth.endpoint import lifetime_of
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.oauth.clouds import ACCOUNT, Clouds


@pytest.fixture
async def clouds() -> AsyncIterator[Clouds]:
    async with Clouds().running() as running:
        yield running


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what the test gives is found."""
    for name in ("APPLICATION_CREDENTIALS", "MANAGED_KAFKA_AUTH_PRINCIPAL", "CLOUD_PROJECT"):
        monkeypatch.delenv(f"GOOGLE_{name}", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def parts_of(token: str) -> tuple[Any, Any, str]:
    header, claims, access = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
        for part in token.split(".")
    )
    assert "=" not in token
    return json.loads(header), json.loads(claims), access


def user_of(token: str, extensions: Any = None) -> str | None:
    header, claims, access = parts_of(token)
    if header != {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} or not access.startswith("access-"):
        return None
    return str(claims["sub"])


def write_account(path: Path, clouds: Clouds) -> None:
    """A service account's key file."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {
        "type": "service_account",
        "private_key": pem,
        "private_key_id": "1",
        "client_email": ACCOUNT,
        "token_uri": f"{clouds.url}/token",
        "project_id": "project",
    }
    path.write_text(json.dumps(account))


async def test_a_producer_logs_in_with_a_service_account(
    monkeypatch: pytest.MonkeyPatch, clouds: Clouds, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    write_account(path, clouds)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    async with EmbeddedCluster(security=BrokerSecurity(token_validator=user_of)) as broker:
        given = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.token.provider": "aioprod.oauth.google.token",
        }
        async with Producer.from_config(given) as producer:
            await producer.send_and_wait("orders", b"1")
    assert len(clouds.forms) == 1
    assertion = clouds.forms[0]["assertion"].split(".")[1]
    scopes = json.loads(base64.urlsafe_b64decode(assertion + "=" * (-len(assertion) % 4)))
    assert scopes["scope"] == "https://www.googleapis.com/auth/cloud-platform"


async def test_the_form_is_that_of_googles_own_providers(
    monkeypatch: pytest.MonkeyPatch, clouds: Clouds, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    write_account(path, clouds)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    ask = GoogleTokens(extensions={"name": "value"})
    token = await ask()
    header, claims, access = parts_of(token.value)
    assert list(header.items()) == [("typ", "JWT"), ("alg", "GOOG_OAUTH2_TOKEN")]
    assert claims.keys() == {"exp", "iss", "iat", "scope", "sub"}
    assert (claims["iss"], claims["scope"], claims["sub"]) == ("Google", "kafka", ACCOUNT)
    assert abs(claims["iat"] - time.time()) < 60
    assert 3500 < (lifetime_of(token.value) or 0) <= 3600
    assert access == "access-1"
    assert await ask() == token and len(clouds.requests) == 1


async def test_the_identity_of_a_machine(monkeypatch: pytest.MonkeyPatch, clouds: Clouds) -> None:
    monkeypatch.delenv("NO_GCE_CHECK")
    metadata = google.auth.compute_engine._metadata
    monkeypatch.setattr(metadata, "_GCE_METADATA_HOST", clouds.address, raising=False)
    monkeypatch.setenv("GCE_METADATA_HOST", clouds.address)
    monkeypatch.setenv("GCE_METADATA_IP", clouds.address)
    credentials = google.auth.compute_engine.Credentials()  # type: ignore[no-untyped-call]
    _, claims, access = parts_of((await GoogleTokens(credentials=credentials)()).value)
    assert claims["sub"] == ACCOUNT and access.startswith("access-")


class Fake:
    """Credentials of a user: they do not show whose they are."""

    token, expiry = "access-1", datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)

    def refresh(self, request: object) -> None:
        pass


async def test_the_principal_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TokenRequestError, match="set principal or GOOGLE_MANAGED_KAFKA_AUTH_PRI"):
        await GoogleTokens(credentials=Fake())()
    monkeypatch.setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", "a@example.com")
    assert user_of((await GoogleTokens(credentials=Fake())()).value) == "a@example.com"
    asked = GoogleTokens("b@example.com", credentials=Fake())
    assert user_of((await asked()).value) == "b@example.com"


class TestErrors:
    async def test_no_credentials(self) -> None:
        with pytest.raises(TokenRequestError, match="GoogleTokens: DefaultCredentialsError: Your"):
            await GoogleTokens()()

    async def test_a_refusal(
        self, monkeypatch: pytest.MonkeyPatch, clouds: Clouds, tmp_path: Path
    ) -> None:
        path = tmp_path / "account.json"
        write_account(path, clouds)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        clouds.status = 400
        with pytest.raises(TokenRequestError, match=r"RefreshError: .*invalid_grant"):
            await GoogleTokens()()

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"principal": ""}, "principal=''"),
            ({"credentials": "hush"}, "must be credentials of google-auth, not a str"),
            ({"timeout_ms": float("inf")}, "timeout_ms=inf"),
        ],
    )
    def test_arguments(self, given: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            GoogleTokens(**given)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GoogleTokens, "_library", ("google_absent.auth", "google"))
        with pytest.raises(ConfigError, match=r'pip install "aioprod\[google\]"'):
            GoogleTokens()
