"""Security settings are checked when they are set: each error names the setting and the valid
values, but no secret.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from aioprod.config.client import ClientConfig
from aioprod.config.security import new_tls_context
from aioprod.errors import ConfigError
from aioprod.net.tls import tls_context
from aioprod.oauth_token import OAuthToken
from tests.net.certificates import KEY_PASSWORD, Certificates, private_key

SECRET = "very secret"
SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": SECRET,
}


async def token() -> OAuthToken:
    return OAuthToken(SECRET)


def test_names_are_taken_in_any_case() -> None:
    config = ClientConfig(
        security_protocol="sasl_ssl",  # type: ignore[arg-type]
        sasl_mechanism="scram-sha-256",  # type: ignore[arg-type]
        sasl_username="a",
        sasl_password="b",
    )
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert config.uses_tls and config.uses_sasl


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"security_protocol": "TLS"},
            "security_protocol='TLS': must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"security_protocol": None}, "security_protocol=None"),
        (
            {**SCRAM, "sasl_mechanism": "NTLM"},
            "sasl_mechanism='NTLM': must be one of PLAIN, SCRAM",
        ),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
        ({**SCRAM, "sasl_password": None}, "needs sasl_password"),
        ({**SCRAM, "sasl_password": ""}, "needs sasl_password"),
        ({**SCRAM, "sasl_username": None}, "needs sasl_username"),
        ({**SCRAM, "sasl_password": SECRET.encode()}, "sasl_password: must be a string, not bytes"),
        (
            {**SCRAM, "sasl_password": SECRET + "\0"},
            "sasl_password: must not contain the character NUL",
        ),
        (
            {**SCRAM, "security_protocol": "SSL"},
            "sasl_mechanism is set, but security_protocol='SSL' is without SASL",
        ),
        (
            {"sasl_password": SECRET},
            "sasl_password is set, but security_protocol='PLAINTEXT' is without SASL",
        ),
        ({**SCRAM, "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider"),
        (
            {**SCRAM, "sasl_oauth_token_provider": token},
            "sasl_oauth_token_provider is set, but sasl_mechanism='SCRAM-SHA-512'",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": SECRET,
            },
            "sasl_oauth_token_provider: must be an async function",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": "tls"},
            "ssl_context: must be an ssl.SSLContext, not str",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)},
            "ssl_context is for servers",
        ),
        (
            {"ssl_context": ssl.create_default_context()},
            "ssl_context is set, but security_protocol='PLAINTEXT' is without TLS",
        ),
        ({"ssl_truststore_location": "x.pem"}, "ssl_truststore_location is set, but"),
        (
            {"ssl_endpoint_identification_algorithm": ""},
            "ssl_endpoint_identification_algorithm is set, but",
        ),
        (
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": "none"},
            "must be 'https', or ''",
        ),
        (
            {"security_protocol": "SSL", "ssl_truststore_location": 5},
            "ssl_truststore_location: must be a path, not int",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_key_password": SECRET,
            },
            "ssl_key_password and ssl_context are both set",
        ),
    ],
)
def test_what_can_not_work_is_refused_at_once(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ClientConfig(**settings)
    assert fault in str(raised.value)
    assert SECRET not in str(raised.value)


def test_secrets_are_not_in_the_repr(certificates: Certificates) -> None:
    config = ClientConfig(
        **SCRAM,
        ssl_keystore_location=certificates.keystore(KEY_PASSWORD),
        ssl_key_password=KEY_PASSWORD,
    )
    assert SECRET not in repr(config) and KEY_PASSWORD not in repr(config)
    assert "alice" in repr(config)
    assert SECRET not in repr(OAuthToken(SECRET, {"extension": SECRET}))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "this is a JKS file, but must be PEM"),
        (b"\xce\xce\xce\xce\x00\x00\x00\x02", "this is a JKS file, but must be PEM"),
        (b"0\x82\x0a\x0b", "this is a PKCS #12 (or DER) file, but must be PEM"),
        (b"hello", "must be a PEM file with a certificate; it contains no CERTIFICATE"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "can't read a certificate in it",
        ),
    ],
)
def test_a_truststore_is_a_pem_file(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "trust"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        ClientConfig(security_protocol="SSL", ssl_truststore_location=path)
    assert fault in str(raised.value)
    assert f"ssl_truststore_location='{path}'" in str(raised.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"ssl_truststore_location='/nowhere/x.pem': No such file or directory"
    ):
        ClientConfig(security_protocol="SSL", ssl_truststore_location="/nowhere/x.pem")


class TestKeystore:
    def test_open_and_encrypted_keys(self, certificates: Certificates) -> None:
        ClientConfig(security_protocol="SSL", ssl_keystore_location=certificates.keystore())
        ClientConfig(
            security_protocol="SSL",
            ssl_keystore_location=certificates.keystore(KEY_PASSWORD),
            ssl_key_password=KEY_PASSWORD,
        )

    def test_an_encrypted_key_without_its_password(self, certificates: Certificates) -> None:
        sealed = certificates.keystore(KEY_PASSWORD)
        with pytest.raises(ConfigError, match="its private key is encrypted, set ssl_key_password"):
            ClientConfig(security_protocol="SSL", ssl_keystore_location=sealed)
        for wrong in ("wrong", ""):
            with pytest.raises(ConfigError, match="ssl_key_password is wrong for its private key"):
                ClientConfig(
                    security_protocol="SSL", ssl_keystore_location=sealed, ssl_key_password=wrong
                )

    def test_a_certificate_without_key_and_the_other_way_round(
        self, certificates: Certificates, tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigError, match="it contains no PRIVATE KEY"):
            ClientConfig(security_protocol="SSL", ssl_keystore_location=certificates.truststore)
        path = tmp_path / "key.pem"
        path.write_bytes(private_key(certificates.authority.issue_cert("x@example.org")))
        with pytest.raises(ConfigError, match="it contains no CERTIFICATE"):
            ClientConfig(security_protocol="SSL", ssl_keystore_location=path)

    def test_a_key_of_another_certificate(self, certificates: Certificates, tmp_path: Path) -> None:
        one, other = (certificates.authority.issue_cert(f"{name}@example.org") for name in "ab")
        path = tmp_path / "mixed.pem"
        path.write_bytes(private_key(one) + other.cert_chain_pems[0].bytes())
        with pytest.raises(
            ConfigError, match="its private key does not match its first certificate"
        ):
            ClientConfig(security_protocol="SSL", ssl_keystore_location=path)


class TestContext:
    def test_the_checks_are_on(self, certificates: Certificates) -> None:
        context = new_tls_context(
            ClientConfig(security_protocol="SSL", ssl_truststore_location=certificates.truststore)
        )
        assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert len(context.get_ca_certs()) == 1

    def test_without_a_truststore_the_system_is_trusted(self) -> None:
        config = ClientConfig(security_protocol="SSL", ssl_endpoint_identification_algorithm="")
        context = new_tls_context(config)
        reference = ssl.create_default_context()
        assert {str(each) for each in context.get_ca_certs()} == {
            str(each) for each in reference.get_ca_certs()
        }
        assert not context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED

    def test_the_callers_own_context_is_used_as_it_is(self) -> None:
        own = ssl.create_default_context()
        assert tls_context(ClientConfig(security_protocol="SSL", ssl_context=own)) is own
        assert tls_context(ClientConfig()) is None

    def test_connections_share_a_context_until_its_file_changes(
        self, certificates: Certificates
    ) -> None:
        config = ClientConfig(
            security_protocol="SSL", ssl_truststore_location=certificates.truststore
        )
        first = tls_context(config)
        assert tls_context(config) is first
        Path(certificates.truststore).write_bytes(
            Path(certificates.truststore).read_bytes() + b"\n"
        )
        assert tls_context(config) is not first

    def test_a_file_that_goes_away_is_named(self, certificates: Certificates) -> None:
        config = ClientConfig(
            security_protocol="SSL", ssl_truststore_location=certificates.truststore
        )
        (certificates.directory / "trusted.pem").unlink()
        with pytest.raises(ConfigError, match="No such file"):
            tls_context(config)
