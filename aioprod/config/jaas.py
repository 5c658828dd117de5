"""Parses ``sasl.jaas.config``, the credentials setting of Java's clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from aioprod.errors import ConfigError

_EXAMPLE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
    'password="...";'
)
_MODULES = ("PlainLoginModule", "ScramLoginModule")
_OAUTH_EXAMPLE = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="..." clientSecret="...";'
)
_OAUTH_MODULE = "OAuthBearerLoginModule"
_EXTENSION = "extension_"
_AUTHORITIES = "ssl.truststore.location"
_KERBEROS_EXAMPLE = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="..." '
    'principal="...";'
)
_KERBEROS_MODULE = "Krb5LoginModule"
# Options for Java's implementation, which the Kerberos library does not need.
_KERBEROS_IGNORED = (
    "clearPass",
    "debug",
    "doNotPrompt",
    "isInitiator",
    "refreshKrb5Config",
    "storeKey",
)
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?://[^\n]*\n?|/\*.*?\*/|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\w.$-]+|[=;]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class Login(NamedTuple):
    """User name and password, or id and HMAC of a delegation token."""

    username: str
    password: str
    is_token: bool = False


class OAuthLogin(NamedTuple):
    """The options of a login with client credentials (KIP-768). Id, secret and scope are None if
    other settings contain them (KIP-1139). The authorities are those for the TLS certificate of the
    token endpoint.
    """

    client_id: str | None
    client_secret: str | None
    scope: str | None
    extensions: dict[str, str]
    authorities: str | None = None


class KerberosLogin(NamedTuple):
    """The location of the keys or the ticket for a login with Kerberos."""

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None
    service_name: str | None = None


#: The mechanism that a login is for; a ``Login`` is for several.
MECHANISM_OF_LOGIN: Mapping[type, str] = {OAuthLogin: "OAUTHBEARER", KerberosLogin: "GSSAPI"}


def settings_of(login: Login | OAuthLogin | KerberosLogin) -> dict[str, str | bool]:
    """Return the settings that a login sets."""
    if isinstance(login, Login):
        named: dict[str, str | bool] = {
            "sasl_username": login.username,
            "sasl_password": login.password,
        }
        return {**named, "sasl_delegation_token": True} if login.is_token else named
    if isinstance(login, KerberosLogin):
        given = login._asdict().items()
        return {f"sasl_kerberos_{name}": value for name, value in given if value is not None}
    return {}


def parse_jaas(text: str) -> Login | OAuthLogin | KerberosLogin:
    """Parse a login module for PLAIN, SCRAM, OAUTHBEARER or GSSAPI. The class may be that of a
    repackaged Kafka client (``kafkashaded.org.apache...``).

    Raises:
        ConfigError: if the text is not such a module, or an option is missing. The error does not
            contain the text, which may contain a password.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise _error(f"must be like {_EXAMPLE}")
    module = tokens[0].rpartition(".")[2]
    if not module.endswith("LoginModule"):  # not shown, as it may be a password
        raise _error(f"must be like {_EXAMPLE}")
    if module not in (*_MODULES, _OAUTH_MODULE, _KERBEROS_MODULE):
        raise _error(
            f"the login module {module} is not supported, only {', '.join(_MODULES)}, "
            f"{_OAUTH_MODULE} and {_KERBEROS_MODULE}"
        )
    options = _options(tokens[2:-1])
    if module == _OAUTH_MODULE:
        return _oauth_login(options)
    if module == _KERBEROS_MODULE:
        return _kerberos_login(options)
    for name in ("username", "password"):
        if name not in options:
            raise _error(f"{name} is missing; it must be like {_EXAMPLE}")
    is_token = module == "ScramLoginModule" and _is_true(options, "tokenauth")
    return Login(_value(options["username"]), _value(options["password"]), is_token)


def _oauth_login(options: dict[str, str]) -> OAuthLogin:
    given = {name: _value(value) for name, value in options.items()}
    pair = ("clientId", "clientSecret")
    for name in pair:
        if not given.get(name) and any(other in given for other in pair):
            raise _error(f"{name} is missing; it must be like {_OAUTH_EXAMPLE}")
    extensions = {
        name.removeprefix(_EXTENSION): given.pop(name)
        for name in list(given)
        if name.startswith(_EXTENSION)
    }
    login = OAuthLogin(
        given.pop("clientId", None),
        given.pop("clientSecret", None),
        given.pop("scope", None),
        extensions,
        given.pop(_AUTHORITIES, None),
    )
    if given.pop("ssl.truststore.type", "PEM") != "PEM":
        raise _error(f"ssl.truststore.type of {_OAUTH_MODULE} must be PEM")
    if given:
        raise _error(f"the option {min(given)} of {_OAUTH_MODULE} is not supported")
    return login


def _kerberos_login(options: dict[str, str]) -> KerberosLogin:
    from_keytab, from_cache = _is_true(options, "useKeyTab"), _is_true(options, "useTicketCache")
    if from_keytab == from_cache:
        how = "both true" if from_keytab else "both false, but passwords are not supported"
        raise _error(
            f"useKeyTab and useTicketCache are {how}; set one of them, like {_KERBEROS_EXAMPLE}"
        )
    if _is_true(options, "renewTGT"):
        raise _error("renewTGT is not supported; renew the tickets with k5start or kinit -R")
    given = {
        name: _value(value)
        for name, value in options.items()
        if name not in (*_KERBEROS_IGNORED, "useKeyTab", "useTicketCache", "renewTGT")
    }
    if from_keytab and not given.get("keyTab"):
        raise _error(f"keyTab is missing; it must be like {_KERBEROS_EXAMPLE}")
    keytab, ticket_cache = given.pop("keyTab", None), given.pop("ticketCache", None)
    login = KerberosLogin(
        given.pop("principal", None),
        keytab if from_keytab else None,  # as in Java, each is ignored unless its option is true
        ticket_cache if from_cache else None,
        given.pop("serviceName", None),
    )
    if given:
        raise _error(f"the option {min(given)} of {_KERBEROS_MODULE} is not supported")
    return login


def _is_true(options: dict[str, str], name: str) -> bool:
    return _value(options.get(name, "")).lower() == "true"


def _error(reason: str) -> ConfigError:
    return ConfigError(f"sasl_jaas_config: {reason}")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place, text = 0, text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _error(f"syntax error at character {place + 1}; it must be like {_EXAMPLE}")
        if match[1] is not None:
            tokens.append(match[1])
        place = match.end()
    return tokens


def _options(tokens: list[str]) -> dict[str, str]:
    if len(tokens) % 3 or any(sign != "=" for sign in tokens[1::3]) or ";" in tokens:
        raise _error(f"must be one login module with options name=value, like {_EXAMPLE}")
    return dict(zip(tokens[::3], tokens[2::3], strict=True))


def _value(token: str) -> str:
    if token[:1] not in ("'", '"'):
        return token
    return _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 8)) if match[1][0] in "01234567" else _ESCAPED.get(match[1], match[1])
        ),
        token[1:-1],
    )
