"""The declarations of the TLS and SASL settings, which all clients have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aioprod.config.checks import check_secret_text
from aioprod.config.setting import Setting, Source, choice, secret, section, switch, text
from aioprod.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER")

_PEM_BEGIN = "-----BEGIN "


def _check_file(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, str | Path):
        raise ConfigError(f"{name}: must be a path, not {type(value).__name__}")
    if value is not None and _PEM_BEGIN in str(value):  # not shown: it may be a private key
        raise ConfigError(
            f"{name}: must be the path of a PEM file, not its content; write the content to a "
            "file, or set ssl_context"
        )
    return value


def _check_identification(name: str, value: Any) -> Any:
    if value not in ("https", ""):
        raise ConfigError(
            f"{name}={value!r}: must be 'https', or '' to skip the check of the broker's host name"
        )
    return value


SECURITY = section(
    choice(
        "security_protocol",
        "PLAINTEXT",
        SECURITY_PROTOCOLS,
        "Protocol of the connections to brokers.",
        change_case=str.upper,
    ),
    Setting(
        "ssl_context",
        "ssl.SSLContext | None",
        None,
        "TLS context to use instead of the other `ssl_` settings.",
        kafka_name=None,
        hidden=True,
    ),
    Setting(
        "ssl_truststore_location",
        "str | Path | None",
        None,
        "PEM file with the certificates to trust. Without it, the certificates that the system "
        "trusts.",
        _check_file,
        since="2.7 for PEM, KIP-651",
    ),
    Setting(
        "ssl_keystore_location",
        "str | Path | None",
        None,
        "PEM file with the private key and certificate chain of the client, for mutual TLS.",
        _check_file,
        since="2.7 for PEM, KIP-651",
    ),
    secret(
        "ssl_key_password",
        "Password of the private key in `ssl_keystore_location`, if the key is encrypted.",
    ),
    Setting(
        "ssl_endpoint_identification_algorithm",
        "str",
        "https",
        'Whether the certificate of a broker must name its host; `""` skips this check.',
        _check_identification,
        '`https` or `""`',
    ),
    choice(
        "sasl_mechanism",
        None,
        SASL_MECHANISMS,
        "SASL mechanism, required if `security_protocol` is `SASL_PLAINTEXT` or `SASL_SSL`. "
        "The default of Java is `GSSAPI`.",
        change_case=str.upper,
    ),
    Setting(
        "sasl_username",
        "str | None",
        None,
        "User name for PLAIN and SCRAM.",
        check_secret_text,
        kafka_name=None,
    ),
    secret("sasl_password", "Password for PLAIN and SCRAM.", kafka_name=None),
    secret(
        "sasl_jaas_config",
        "User name and password for PLAIN and SCRAM as Java configures them: "
        '`...PlainLoginModule required username="..." password="...";`. Sets `sasl_username` and '
        "`sasl_password`. For OAUTHBEARER `...OAuthBearerLoginModule` with `clientId`, "
        "`clientSecret`, `scope` and `extension_NAME`.",
        since="0.10.2, KIP-85",
    ),
    Setting(
        "sasl_oauth_token_provider",
        "TokenProvider | None",
        None,
        "Async function that returns an `OAuthToken`, for OAUTHBEARER; `from_config` also takes "
        "its import path.",
        kafka_name=None,
        hidden=True,
        source=Source.FUNCTION,
    ),
    text(
        "sasl_oauthbearer_token_endpoint_url",
        "Address at which the client requests tokens for OAUTHBEARER, instead of "
        "`sasl_oauth_token_provider`.",
        since="3.1, KIP-768",
    ),
    text(
        "sasl_oauthbearer_client_credentials_client_id",
        "Id of the client at the identity provider.",
        since="4.1, KIP-1139",
    ),
    secret(
        "sasl_oauthbearer_client_credentials_client_secret",
        "Secret of the client at the identity provider.",
        since="4.1, KIP-1139",
    ),
    text(
        "sasl_oauthbearer_scope",
        "The access that is requested with a token, as names with spaces between.",
        since="4.1, KIP-1139",
    ),
    switch(
        "sasl_oauthbearer_header_urlencode",
        False,
        "Whether id and secret are encoded as RFC 6749 demands.",
        since="3.9, KIP-1025",
    ),
    text(
        "sasl_oauthbearer_assertion_file",
        "File with a signed assertion (JSON Web Token) to exchange for a token, instead of id and "
        "secret. It is read for each request.",
        since="4.1, KIP-1139",
    ),
)
