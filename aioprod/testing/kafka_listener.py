"""A listener of a real broker: TLS, SASL, and Kafka's settings for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """An additional listener of a ``RealKafka``, on a separate free port. Its repr has no passwords
    or keys.

    TLS needs PEM texts. Clients connect to 127.0.0.1, so the broker's certificate must be valid for
    this address. OAUTHBEARER accepts unsigned JSON Web Tokens ("alg": "none") with "sub", "iat" and
    "exp". GSSAPI needs a principal ``SERVICE/127.0.0.1@REALM`` with a keytab, and Java's
    ``-Djava.security.krb5.conf=...`` (``RealCluster(java_options=...)``).

    Attributes:
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        name: the listener's name; empty for the name of the protocol.
        advertised_port: the port of 127.0.0.1 that clients are sent to, such as that of a proxy;
            None for the listener's port.
        certificate_chain: for TLS, the broker's certificate first.
        private_key: for TLS, in PKCS #8 format ("BEGIN PRIVATE KEY"), not encrypted.
        trusted_certificates: if set, clients must have a certificate that these authorities signed.
        mechanisms: for SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and GSSAPI.
        plain_users: passwords by user name, for PLAIN. SCRAM users are the broker's
            (``RealKafka(scram_users=...)``).
        kerberos_principal: the broker's principal, for GSSAPI.
        kerberos_keytab: the file with its keys.
        settings: more of Kafka's listener settings, without the prefix ``listener.name.<name>.``.
            They override the generated ones.

    Raises:
        ValueError: if an attribute is invalid.
    """

    security_protocol: str = "PLAINTEXT"
    name: str = ""
    advertised_port: int | None = None
    certificate_chain: str = ""
    private_key: str = field(default="", repr=False)
    trusted_certificates: str = ""
    mechanisms: Sequence[str] = ()
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    kerberos_principal: str = ""
    kerberos_keytab: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise ValueError(
                f"security_protocol must be one of {', '.join(SECURITY_PROTOCOLS)}, not "
                f"{self.security_protocol!r}"
            )
        if unknown := [
            mechanism for mechanism in self.mechanisms if mechanism not in _LOGIN_MODULES
        ]:
            raise ValueError(
                f"mechanisms must be among {', '.join(_LOGIN_MODULES)}, not {', '.join(unknown)}"
            )
        if self.uses_sasl != bool(self.mechanisms):
            raise ValueError(
                f"a {self.security_protocol} listener "
                f"{'needs at least one mechanism' if self.uses_sasl else 'has no mechanisms'}"
            )
        if self.uses_tls and not (self.certificate_chain and self.private_key):
            raise ValueError(
                f"a {self.security_protocol} listener needs certificate_chain and private_key"
            )
        if "GSSAPI" in self.mechanisms and not (self.kerberos_principal and self.kerberos_keytab):
            raise ValueError("GSSAPI needs kerberos_principal and kerberos_keytab")
        if not self.name:
            object.__setattr__(self, "name", self.security_protocol)

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def server_properties(self, directory: Path) -> dict[str, str]:
        """Return this listener's settings for ``server.properties``. Write its PEM files to
        ``directory``, which only its owner should be able to read.
        """
        settings = {**self._tls_settings(directory), **self._sasl_settings(), **self.settings}
        return {
            f"listener.name.{self.name.lower()}.{name}": value for name, value in settings.items()
        }

    def _tls_settings(self, directory: Path) -> dict[str, str]:
        if not self.uses_tls:
            return {}
        key_store, trust_store = (
            directory / f"{self.name}-keys.pem",
            directory / f"{self.name}-trusted.pem",
        )
        key_store.write_text(f"{self.private_key.strip()}\n{self.certificate_chain.strip()}\n")
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}
        if self.trusted_certificates:
            trust_store.write_text(self.trusted_certificates)
            settings |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(trust_store),
                "ssl.client.auth": "required",
            }
        return settings

    def _sasl_settings(self) -> dict[str, str]:
        if not self.uses_sasl:
            return {}
        settings = {
            f"{mechanism.lower()}.sasl.jaas.config": self._login_module(mechanism)
            for mechanism in self.mechanisms
        }
        if "GSSAPI" in self.mechanisms:
            settings["sasl.kerberos.service.name"] = self.kerberos_principal.partition("/")[0]
        return {"sasl.enabled.mechanisms": ",".join(self.mechanisms), **settings}

    def _login_module(self, mechanism: str) -> str:
        options: dict[str, str] = {}
        if mechanism == "PLAIN":
            options = {f"user_{user}": password for user, password in self.plain_users.items()}
        elif mechanism == "OAUTHBEARER":
            # Kafka requires a login for the broker, too.
            options = {"unsecuredLoginStringClaim_sub": "broker"}
        elif mechanism == "GSSAPI":
            options = {
                "useKeyTab": "true",
                "storeKey": "true",
                "keyTab": str(self.kerberos_keytab),
                "principal": self.kerberos_principal,
            }
        return (
            " ".join(
                [
                    _LOGIN_MODULES[mechanism],
                    "required",
                    *(f"{name}={_quoted(value)}" for name, value in options.items()),
                ]
            )
            + ";"
        )


def properties_text(settings: Mapping[str, str]) -> str:
    """Return the text of a Java properties file, in Latin-1 with Java's escapes."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    escaped = "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
