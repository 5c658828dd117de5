"""A password or token that is sent unencrypted is logged as a warning, once for each cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from aioprod import Admin, Consumer, OAuthToken, Producer
from aioprod.config.settings.security import PASSWORD_MECHANISMS
from aioprod.testing import BrokerSecurity, EmbeddedCluster
from tests.net.certificates import Certificates

SECRET = "hunter2"


async def fetch() -> OAuthToken:
    return OAuthToken(SECRET)


def validate(token: str, extensions: Mapping[str, str]) -> str | None:
    return "alice" if token == SECRET else None


def settings(mechanism: str, certificates: Certificates | None) -> dict[str, Any]:
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if certificates is not None:
        given["security_protocol"] = "SASL_SSL"
        given["ssl_truststore_location"] = certificates.truststore
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": fetch}
    return given | {"sasl_username": "alice", "sasl_password": SECRET}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
async def test_what_shows_a_secret_is_warned_of_once_for_each_cluster(
    caplog: pytest.LogCaptureFixture, certificates: Certificates, mechanism: str, encrypted: bool
) -> None:
    context = certificates.server_context() if encrypted else None
    security = BrokerSecurity(context, users={"alice": SECRET}, token_validator=validate)
    given = settings(mechanism, certificates if encrypted else None)
    expected: list[str] = []
    for _ in range(2):
        async with EmbeddedCluster(security=security) as cluster:
            servers = cluster.bootstrap_servers
            for _ in range(2):
                async with (
                    Producer(servers, **given) as producer,
                    Consumer("t", bootstrap_servers=servers, **given),
                    Admin(servers, **given),
                ):
                    await producer.send_and_wait("t", b"x")
            secret = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(mechanism)
            if secret is not None and not encrypted:
                expected.append(
                    f"the {secret} is sent to {servers} unencrypted (sasl_mechanism={mechanism!r}, "
                    "security_protocol='SASL_PLAINTEXT'): use security_protocol='SASL_SSL'"
                )
        assert warnings(caplog) == expected
    assert SECRET not in caplog.text
