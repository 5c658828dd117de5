"""What a listener of a real broker demands of its clients: TLS, SASL, and Kafka's settings for
both.
"""

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
}


@dataclass(frozen=True, slots=True)
class Listener:
    """One more listener of a ``RealKafka``, on a free port of its own. Nothing of it shows
    passwords or keys in its repr.

    ``security_protocol``: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. ``name``: the listener's
        name; where empty, the protocol is its name.
    ``advertised_port``: the port of 127.0.0.1 that clients of this listener are sent to, such as
        that of a proxy in front of it; its own where None.

    For SSL and SASL_SSL, in PEM: ``certificate_chain`` (the broker's own first), ``private_key``
        (PKCS #8, "BEGIN PRIVATE KEY", without a password)
    and ``trusted_certificates``, for which a client's certificate is asked and required. Clients go
    to 127.0.0.1, so a certificate that they accept names that address.

    For SASL_PLAINTEXT and SASL_SSL: ``mechanisms`` of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and
        OAUTHBEARER. ``plain_users``: name to password, for
    PLAIN; SCRAM's users are the broker's (``RealKafka(scram_users=...)``). OAUTHBEARER takes
    unsigned JSON Web Tokens ("alg": "none") with "sub", "iat" and "exp".

    ``settings``: more of Kafka's listener settings, by their names without the prefix
        ``listener.name.<name>.``; they win over the ones made here.
    """

    security_protocol: str = "PLAINTEXT"
    name: str = ""
    advertised_port: int | None = None
    certificate_chain: str = ""
    private_key: str = field(default="", repr=False)
    trusted_certificates: str = ""
    mechanisms: Sequence[str] = ()
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
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
                f"mechanisms must be of {', '.join(_LOGIN_MODULES)}, not {', '.join(unknown)}"
            )
        if self.uses_sasl != bool(self.mechanisms):
            raise ValueError(
                f"a {self.security_protocol} listener takes "
                f"{'at least one mechanism' if self.uses_sasl else 'no mechanisms'}"
            )
        if self.uses_tls and not (self.certificate_chain and self.private_key):
            raise ValueError(
                f"a {self.security_protocol} listener needs certificate_chain and private_key"
            )
        if not self.name:
            object.__setattr__(self, "name", self.security_protocol)

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def server_properties(self, directory: Path) -> dict[str, str]:
        """This listener's lines of ``server.properties``. Its PEM files go to ``directory``, which
        only its owner should be able to read.
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
        return {"sasl.enabled.mechanisms": ",".join(self.mechanisms), **settings}

    def _login_module(self, mechanism: str) -> str:
        options: dict[str, str] = {}
        if mechanism == "PLAIN":
            options = {f"user_{user}": password for user, password in self.plain_users.items()}
        elif mechanism == "OAUTHBEARER":
            options = {
                "unsecuredLoginStringClaim_sub": "broker"
            }  # Kafka refuses a listener without a login of its own
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
    """The text of a Java properties file, whose reader takes Latin-1 and its own escapes."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    escaped = "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
