"""The declarations of the TLS and SASL settings, which all clients have."""

from __future__ import annotations

import os
from typing import Any

from aioprod.config.checks import check_secret_text, one_of, or_none
from aioprod.config.msk_iam import CURE, MECHANISM
from aioprod.config.setting import (
    Setting,
    Source,
    choice,
    literal,
    number,
    secret,
    section,
    switch,
    text,
)
from aioprod.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)
ASSERTION_ALGORITHMS = ("RS256", "ES256")
SASL_MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")

_known_mechanism = or_none(one_of(SASL_MECHANISMS, str.upper))
_PEM_BEGIN = "-----BEGIN "


def _check_mechanism(name: str, value: Any) -> Any:
    if isinstance(value, str) and value.strip().upper() == MECHANISM:
        raise ConfigError(f"{name}={value!r}: {CURE}")
    return _known_mechanism(name, value)


def _check_path(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{name}: must be a path, not {type(value).__name__}")
    return value


def _check_file(name: str, value: Any) -> Any:
    _check_path(name, value)
    if value is not None and _PEM_BEGIN in str(value):  # not shown: it may be a private key
        raise ConfigError(
            f"{name}: must be the path of a PEM file, not its content; write the content to a "
            "file, or set ssl_context"
        )
    return value


def _check_keytab(name: str, value: Any) -> Any:
    _check_path(name, value)
    path = str(value or "").removeprefix("FILE:")
    if value is None or (":" in path and not path.startswith("/")):  # of another type
        return value
    try:
        with open(path, "rb"):
            return value
    except OSError as error:
        raise ConfigError(f"{name}={str(value)!r}: {error.strerror}") from None
    except ValueError:  # NUL
        raise ConfigError(f"{name}: invalid file name") from None


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
        "str | os.PathLike[str] | None",
        None,
        "PEM file with the certificates to trust. Without it, the certificates that the system "
        "trusts.",
        _check_file,
        since="2.7 for PEM, KIP-651",
    ),
    Setting(
        "ssl_keystore_location",
        "str | os.PathLike[str] | None",
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
        literal("https", ""),
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
    )._replace(check=_check_mechanism),
    Setting(
        "sasl_username",
        "str | None",
        None,
        "User name for PLAIN and SCRAM; or the id of a delegation token.",
        check_secret_text,
        kafka_name=None,
    ),
    secret(
        "sasl_password",
        "Password for PLAIN and SCRAM; or the HMAC of a delegation token, in base64.",
        kafka_name=None,
    ),
    switch(
        "sasl_delegation_token",
        False,
        "Whether user name and password for SCRAM are those of a delegation token (KIP-48).",
        kafka_name=None,
    ),
    secret(
        "sasl_jaas_config",
        "User name and password for PLAIN and SCRAM as Java configures them: "
        '`...PlainLoginModule required username="..." password="...";`. Sets `sasl_username` and '
        "`sasl_password`. For OAUTHBEARER `...OAuthBearerLoginModule` with `clientId`, "
        "`clientSecret`, `scope` and `extension_NAME`; for GSSAPI `...Krb5LoginModule`; for a "
        'delegation token `...ScramLoginModule` with `tokenauth="true"`.',
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
        "sasl_kerberos_service_name",
        "First part of the brokers' Kerberos principals, for GSSAPI. Without it, `serviceName` of "
        "`sasl_jaas_config`, or else `kafka`.",
        since="0.9, KIP-12",
    ),
    text(
        "sasl_kerberos_principal",
        "Kerberos principal of the client, such as `orders@EXAMPLE.COM`. Without it, that of the "
        "ticket, or the first one in the keytab.",
        kafka_name=None,
    ),
    Setting(
        "sasl_kerberos_keytab",
        "str | os.PathLike[str] | None",
        None,
        "File with the client's keys, with which it requests tickets. Without it, a ticket that "
        "`kinit` has requested is used.",
        _check_keytab,
        kafka_name=None,
    ),
    Setting(
        "sasl_kerberos_ticket_cache",
        "str | os.PathLike[str] | None",
        None,
        "Cache of tickets that `kinit` has written. Without it, that of the environment "
        "(`KRB5CCNAME`).",
        _check_path,
        kafka_name=None,
    ),
    text(
        "sasl_kerberos_domain_name",
        "Host name in the principal of all brokers, if they are reached by other names, such as "
        "that of a load balancer.",
        kafka_name=None,
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
    text(
        "sasl_oauthbearer_assertion_private_key_file",
        "PEM file with the private key that signs assertions to exchange for tokens, instead of id "
        "and secret. It is read for each request.",
        since="4.1, KIP-1139",
    ),
    secret(
        "sasl_oauthbearer_assertion_private_key_passphrase",
        "Passphrase of an encrypted private key for assertions.",
        since="4.1, KIP-1139",
    ),
    choice(
        "sasl_oauthbearer_assertion_algorithm",
        "RS256",
        ASSERTION_ALGORITHMS,
        "Signature algorithm of assertions.",
        since="4.1, KIP-1139",
    ),
    text(
        "sasl_oauthbearer_assertion_claim_iss",
        "Issuer that assertions claim.",
        since="4.1, KIP-1139",
    ),
    text(
        "sasl_oauthbearer_assertion_claim_sub",
        "Subject that assertions claim.",
        since="4.1, KIP-1139",
    ),
    text(
        "sasl_oauthbearer_assertion_claim_aud",
        "Audience that assertions claim.",
        since="4.1, KIP-1139",
    ),
    number(
        "sasl_oauthbearer_assertion_claim_exp_seconds",
        300,
        0,
        "Validity of an assertion.",
        high=86_400,
        unit="s",
        since="4.1, KIP-1139",
    ),
    number(
        "sasl_oauthbearer_assertion_claim_nbf_seconds",
        60,
        0,
        "Time by which an assertion is valid before it was made, as clocks differ.",
        high=3_600,
        unit="s",
        since="4.1, KIP-1139",
    ),
    switch(
        "sasl_oauthbearer_assertion_claim_jti_include",
        False,
        "Whether each assertion has a unique id.",
        since="4.1, KIP-1139",
    ),
)
