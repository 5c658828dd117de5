"""Tokens of Entra ID: azure-identity asks services on this machine, or the test's credentials."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from aioprod import Producer
from aioprod.errors import ConfigError
from aioprod.oauth import AzureTokens, TokenRequestError
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.oauth.clouds import Clouds

NAMESPACE = "orders.servicebus.windows.net"
SCOPE = f"https://{NAMESPACE}/.default"


@pytest.fixture
async def clouds() -> AsyncIterator[Clouds]:
    async with Clouds().running() as running:
        yield running


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, clouds: Clouds) -> Clouds:
    """A virtual machine with a managed identity."""
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", clouds.url)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    for name in ("MSI_ENDPOINT", "IDENTITY_ENDPOINT", "AZURE_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    return clouds


class Asynchronous:
    """A credential of the caller."""

    def __init__(self, lifetime_s: int = 3600) -> None:
        self.asked: list[str] = []
        self.lifetime_s = lifetime_s
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def get_token(self, *scopes: str) -> AccessToken:
        self.asked.extend(scopes)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return AccessToken(f"access-{len(self.asked)}", int(time.time()) + self.lifetime_s)


class Blocking:
    """A credential that blocks its thread."""

    thread: threading.Thread | None = None

    def get_token(self, *scopes: str) -> AccessToken:
        self.thread = threading.current_thread()
        assert scopes == (SCOPE,)
        return AccessToken("access-1", int(time.time()) + 3600)


async def test_a_producer_logs_in_with_the_managed_identity_of_a_machine(machine: Clouds) -> None:
    def user_of(token: str, extensions: Any) -> str | None:
        return "machine" if token.startswith("access-") else None

    async with EmbeddedCluster(security=BrokerSecurity(token_validator=user_of)) as broker:
        async with Producer(
            broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AzureTokens(NAMESPACE, client_id="identity-1"),
        ) as producer:
            await producer.send_and_wait("orders", b"1")
    asked = [
        parse_qs(urlsplit(path).query)
        for _, path, headers in machine.requests
        if "resource" in path
    ]
    assert asked[-1]["resource"] == [f"https://{NAMESPACE}"]
    assert asked[-1]["client_id"] == ["identity-1"]


async def test_a_credential_of_the_caller_and_the_lifetime_of_its_tokens() -> None:
    credential = Asynchronous()
    ask = AzureTokens(NAMESPACE, credential=credential, extensions={"name": "value"})
    token = await ask()
    assert (token.value, token.extensions) == ("access-1", {"name": "value"})
    assert await ask() == token and credential.asked == [SCOPE]
    short = Asynchronous(lifetime_s=1)
    ask = AzureTokens(scope="api://app/.default", credential=short)
    assert (await ask()).value == "access-1"
    assert (await ask()).value == "access-2"
    assert short.asked == ["api://app/.default"] * 2


async def test_a_blocking_credential_has_a_thread() -> None:
    credential = Blocking()
    assert (await AzureTokens(NAMESPACE, credential=credential)()).value == "access-1"
    assert credential.thread is not threading.current_thread()


class TestErrors:
    async def test_what_azure_says(self) -> None:
        credential = Asynchronous()
        credential.failure = ClientAuthenticationError("AADSTS70011: invalid scope")
        with pytest.raises(TokenRequestError, match="ClientAuthenticationError: AADSTS70011"):
            await AzureTokens(NAMESPACE, credential=credential)()

    async def test_text_of_foreign_errors_is_not_shown(self) -> None:
        credential = Asynchronous()
        credential.failure = TimeoutError("hush")
        with pytest.raises(TokenRequestError, match=r"AzureTokens: TimeoutError$") as caught:
            await AzureTokens(NAMESPACE, credential=credential)()
        assert caught.value.__cause__ is None and caught.value.__context__ is None

    async def test_no_identity(self, machine: Clouds) -> None:
        machine.status = 400
        with pytest.raises(TokenRequestError, match="AzureTokens: "):
            await AzureTokens(NAMESPACE)()

    async def test_a_credential_that_takes_too_long(self) -> None:
        credential = Asynchronous()
        credential.gate = asyncio.Event()
        with pytest.raises(TokenRequestError, match="no token within timeout_ms=10"):
            await AzureTokens(NAMESPACE, credential=credential, timeout_ms=10)()

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({}, "set either namespace or scope"),
            ({"namespace": NAMESPACE, "scope": SCOPE}, "set either namespace or scope"),
            ({"namespace": f"{NAMESPACE}:9093"}, "must be a host name"),
            ({"namespace": f"https://{NAMESPACE}/"}, "must be a host name"),
            ({"scope": ""}, "scope=''"),
            ({"scope": SCOPE, "credential": "hush"}, "must have a method get_token"),
            ({"scope": SCOPE, "credential": Blocking(), "client_id": "a"}, "set one of them"),
        ],
    )
    def test_arguments(self, given: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError, match=text) as caught:
            AzureTokens(**given)
        assert "hush" not in str(caught.value)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(AzureTokens, "_library", ("azure_absent.identity", "azure"))
        with pytest.raises(ConfigError, match=r'pip install "aioprod\[azure\]"'):
            AzureTokens(NAMESPACE)
