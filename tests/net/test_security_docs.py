"""The examples of docs/security.md work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import aioprod
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.net.certificates import Certificates
from tests.oauth.identity_provider import IdentityProvider

TEXT = (Path(aioprod.__file__).parents[1] / "docs" / "security.md").read_text()


def validate(token: str, extensions: Mapping[str, str]) -> str | None:
    return "alice" if (token, dict(extensions)) == ("good", {"logicalCluster": "lkc-1"}) else None


async def ask_identity_provider() -> str:
    return "good"


def example(function: str, broker: str, truststore: str, endpoint: str = "") -> Any:
    """Return a function of the page, with other addresses and another file."""
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (source,) = [block for block in blocks if f"async def {function}(" in block]
    source = source.replace("kafka.example.org:9093", broker).replace("authority.pem", truststore)
    source = source.replace("https://login.example.com/oauth2/token", endpoint)
    namespace: dict[str, Any] = {"ask_identity_provider": ask_identity_provider}
    exec(compile(source, f"security.md ({function})", "exec"), namespace)
    return namespace[function]


@pytest.mark.parametrize(
    ("function", "security"),
    [
        ("over_tls", BrokerSecurity()),
        ("with_a_password", BrokerSecurity(users={"alice": "pencil"})),
        ("with_a_token", BrokerSecurity(token_validator=validate)),
    ],
)
async def test_the_examples_send(
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    security: BrokerSecurity,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "pencil")
    security.ssl_context = certificates.server_context()
    async with EmbeddedCluster(security=security) as broker:
        await example(function, broker.bootstrap_servers, certificates.truststore)()
        assert [record.value for record in broker.records("orders")] == [b"42"]


async def test_the_example_with_an_identity_provider_sends(certificates: Certificates) -> None:
    async with IdentityProvider(client_secret="secret of the service").running() as provider:
        security = BrokerSecurity(
            ssl_context=certificates.server_context(), token_validator=provider.user_of
        )
        async with EmbeddedCluster(security=security) as broker:
            await example(
                "with_client_credentials",
                broker.bootstrap_servers,
                certificates.truststore,
                provider.url,
            )()
            assert [record.value for record in broker.records("orders")] == [b"42"]
    assert provider.requests[0]["audience"] == "kafka"


async def test_the_example_of_a_test_passes() -> None:
    await example("test_alice_may_send", "", "")()
