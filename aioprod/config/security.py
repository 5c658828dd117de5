"""Settings of TLS and SASL, under Kafka's names, and the TLS context that they describe. Secrets
show in no repr and in no message.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from aioprod.config.redaction import HidesArguments, hide_arguments
from aioprod.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER")

#: Mechanisms that tell the broker a secret itself, and which; the others prove that they know it.
READABLE_SECRETS = {"PLAIN": "password", "OAUTHBEARER": "token"}

_JAVA_KEYSTORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
_PEM_BEGIN = "-----BEGIN "
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ENCRYPTED_KEY = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """What a token provider gives for SASL/OAUTHBEARER (KIP-255).

    Attributes:
        value: the token itself, such as a JSON Web Token in its compact form.
        extensions: names and values that go to the broker beside it (KIP-342).
    """

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenProvider = Callable[[], Awaitable[OAuthToken]]
"""An async function without arguments; called for each new connection and before a session ends.

What it raises is the cause of an AuthenticationError, also CancelledError if the client did not
cancel it. The client does so when it closes, or does not need the connection any more.
KeyboardInterrupt and SystemExit are then raised by the event loop, too.
"""


class SecuritySettings(TypedDict, total=False):
    """The security settings as keyword arguments."""

    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_truststore_location: str | Path | None
    ssl_keystore_location: str | Path | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig(metaclass=HidesArguments):
    """How a client makes sure of the broker, and the broker of the client.

    Attributes:
        security_protocol: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``
            (``security.protocol``).
        ssl_context: the caller's own TLS context, used as it is; instead of the four that follow.
        ssl_truststore_location: PEM file of the certificates to trust; without it, those that the
            system trusts (``ssl.truststore.location``).
        ssl_keystore_location: PEM file with this client's private key and certificate chain, for
            mutual TLS (``ssl.keystore.location``).
        ssl_key_password: what the private key is encrypted with, if it is (``ssl.key.password``).
        ssl_endpoint_identification_algorithm: ``"https"`` checks that the certificate names the
            broker's host; ``""`` does not.
        sasl_mechanism: ``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"`` or ``"OAUTHBEARER"``
            (``sasl.mechanism``).
        sasl_username, sasl_password: for PLAIN and SCRAM.
        sasl_oauth_token_provider: async function that gives an :class:`OAuthToken`, for
            OAUTHBEARER.
    """

    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    ssl_truststore_location: str | Path | None = None
    ssl_keystore_location: str | Path | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_endpoint_identification_algorithm: str = "https"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: TokenProvider | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _normalise(self, "security_protocol", SECURITY_PROTOCOLS)
        if self.sasl_mechanism is not None:
            _normalise(self, "sasl_mechanism", SASL_MECHANISMS)
        _check_texts(self)
        _check_tls(self)
        _check_sasl(self)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether this client proves who it is by SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@hide_arguments
def new_tls_context(config: SecurityConfig, *, system_trust: bool = True) -> ssl.SSLContext:
    """Build the TLS context from the files that the settings name.

    Args:
        system_trust: where no ``ssl_truststore_location`` is set, load what the system trusts
            (takes some 30 ms).

    Raises:
        ConfigError: a file can't be read or is not what the setting wants.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    if config.ssl_truststore_location is not None:
        _trust(context, config.ssl_truststore_location)
    elif system_trust:
        context.load_default_certs()
    if config.ssl_keystore_location is not None:
        _identify(context, config)
    return context


def _trust(context: ssl.SSLContext, location: str | Path) -> None:
    _read_pem("ssl_truststore_location", location, "a certificate", b"CERTIFICATE")
    # As in Java, each certificate in the file is trusted by itself, also one that another authority
    # has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(location)
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl_truststore_location={str(location)!r}: a certificate in it can't be read "
            f"({error.reason})"
        ) from None


def _identify(context: ssl.SSLContext, config: SecurityConfig) -> None:
    location = config.ssl_keystore_location
    assert location is not None
    text = _read_pem(
        "ssl_keystore_location",
        location,
        "a private key and its certificate chain",
        b"PRIVATE KEY",
        b"CERTIFICATE",
    )
    if config.ssl_key_password is None and any(sign in text for sign in _ENCRYPTED_KEY):
        raise ConfigError(
            f"ssl_keystore_location={str(location)!r}: its private key is encrypted, set "
            "ssl_key_password"
        )
    try:
        # Never without a password, not even an empty one: OpenSSL would ask for it on the terminal.
        context.load_cert_chain(location, password=config.ssl_key_password or "none")
    except ValueError:
        raise ConfigError("ssl_key_password: must not be longer than 1024 bytes") from None
    except ssl.SSLError as error:
        because = (
            "ssl_key_password does not open its private key"
            if config.ssl_key_password is not None
            else "its private key can't be used"
        )
        if error.reason == "KEY_VALUES_MISMATCH":
            because = "its first certificate does not belong to its private key"
        raise ConfigError(f"ssl_keystore_location={str(location)!r}: {because}") from None


def _read_pem(setting: str, location: str | Path, wanted: str, *labels: bytes) -> bytes:
    shown = f"{setting}={str(location)!r}"
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{shown}: {error.strerror}") from None
    except ValueError:  # a NUL character, or one that the file system's encoding lacks
        raise ConfigError(f"{shown}: no file can have such a name") from None
    if content.startswith((*_JAVA_KEYSTORES, _DER_SEQUENCE)):
        kind = "PKCS #12 (or DER)" if content.startswith(_DER_SEQUENCE) else "JKS"
        raise ConfigError(
            f"{shown}: this is a {kind} file, only PEM is read; convert it with keytool and "
            "openssl (see docs/security.md)"
        )
    for label in labels:
        if not any(
            line.startswith(b"-----BEGIN ") and label in line for line in content.splitlines()
        ):
            raise ConfigError(
                f"{shown}: must be a PEM file with {wanted}; it has no {label.decode()}"
            )
    return content


def _normalise(config: SecurityConfig, name: str, choices: tuple[str, ...]) -> None:
    given = getattr(config, name)
    value = given.upper() if isinstance(given, str) else given
    if value not in choices:
        raise ConfigError(f"{name}={given!r}: must be one of {', '.join(choices)}")
    object.__setattr__(config, name, value)


def _check_texts(config: SecurityConfig) -> None:
    for name in ("ssl_key_password", "sasl_username", "sasl_password"):
        value = getattr(config, name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ConfigError(f"{name}: must be a string, not {type(value).__name__}")
        if _LONE_SURROGATE.search(value):
            # As os.environ gives it for bytes in another encoding.
            raise ConfigError(
                f"{name}: has a character that UTF-8 can't encode; was it read in another encoding?"
            )
    for name in ("ssl_truststore_location", "ssl_keystore_location"):
        value = getattr(config, name)
        if value is not None and not isinstance(value, str | Path):
            raise ConfigError(f"{name}: must be a path, not {type(value).__name__}")
        if value is not None and _PEM_BEGIN in str(value):
            raise ConfigError(
                f"{name}: must be the path of a PEM file, not its content; "
                "write that to a file, or give an ssl_context"
            )


def _check_tls(config: SecurityConfig) -> None:
    algorithm = config.ssl_endpoint_identification_algorithm
    if algorithm not in ("https", ""):
        raise ConfigError(
            f"ssl_endpoint_identification_algorithm={algorithm!r}: must be 'https', or '' "
            "for no check of the broker's host name"
        )
    files = [
        name
        for name in ("ssl_truststore_location", "ssl_keystore_location", "ssl_key_password")
        if getattr(config, name) is not None
    ]
    if algorithm != "https":
        files.append("ssl_endpoint_identification_algorithm")
    context = config.ssl_context
    given = [*files, "ssl_context"] if context is not None else files
    if given and not config.uses_tls:
        raise ConfigError(
            f"{given[0]} is set, but security_protocol={config.security_protocol!r} is "
            "without TLS: choose 'SSL' or 'SASL_SSL'"
        )
    if context is None:
        if files:
            new_tls_context(
                config, system_trust=False
            )  # a bad file is told now, not with the first connection
    elif files:
        raise ConfigError(
            f"{files[0]} and ssl_context are both set: the context is used as it is, so give "
            "one or the other"
        )
    elif not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context: must be an ssl.SSLContext, not {type(context).__name__}")
    elif context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ConfigError(
            "ssl_context is one for servers: make it with ssl.create_default_context()"
        )


def _check_sasl(config: SecurityConfig) -> None:
    given = [name for name in _SASL_NAMES if getattr(config, name) is not None]
    if not config.uses_sasl:
        if given:
            raise ConfigError(
                f"{given[0]} is set, but security_protocol={config.security_protocol!r} is "
                "without SASL: choose 'SASL_SSL'"
            )
        return
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(
            f"security_protocol={config.security_protocol!r} needs sasl_mechanism: one of "
            f"{', '.join(SASL_MECHANISMS)}"
        )
    wanted = (
        ("sasl_username", "sasl_password")
        if mechanism in PASSWORD_MECHANISMS
        else ("sasl_oauth_token_provider",)
    )
    for name in wanted:
        if not getattr(config, name):
            raise ConfigError(f"sasl_mechanism={mechanism!r} needs {name}")
    for name in given:
        if name not in wanted and name != "sasl_mechanism":
            raise ConfigError(f"{name} is set, but sasl_mechanism={mechanism!r} does not use it")
    for name in ("sasl_username", "sasl_password"):
        if "\0" in (getattr(config, name) or ""):
            raise ConfigError(f"{name}: must not contain the character NUL")
    if mechanism == "OAUTHBEARER" and not callable(config.sasl_oauth_token_provider):
        raise ConfigError(
            "sasl_oauth_token_provider: must be an async function that returns an OAuthToken"
        )


_SASL_NAMES = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_oauth_token_provider")
