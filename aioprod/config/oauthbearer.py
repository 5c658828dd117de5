"""Creates the token provider of a client from the settings ``sasl.oauthbearer.*``."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from aioprod.config.plugins import import_object
from aioprod.config.settings.security import SECURITY
from aioprod.errors import ConfigError
from aioprod.oauth_token import TokenProvider

if TYPE_CHECKING:
    from aioprod.config.jaas import OAuthLogin

URL = "sasl_oauthbearer_token_endpoint_url"
_ID = "sasl_oauthbearer_client_credentials_client_id"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"
_SCOPE = "sasl_oauthbearer_scope"
_FILE = "sasl_oauthbearer_assertion_file"
_URLENCODE = "sasl_oauthbearer_header_urlencode"
_ASSERTION = "sasl_oauthbearer_assertion_"
_KEY = f"{_ASSERTION}private_key_file"
# Settings for assertions that the client signs, with the arguments of `aioprod.oauth.Assertion`.
_SIGNED = {
    _KEY: "private_key_file",
    f"{_ASSERTION}private_key_passphrase": "private_key_passphrase",
    f"{_ASSERTION}algorithm": "algorithm",
    f"{_ASSERTION}claim_iss": "issuer",
    f"{_ASSERTION}claim_sub": "subject",
    f"{_ASSERTION}claim_aud": "audience",
    f"{_ASSERTION}claim_exp_seconds": "lifetime_s",
    f"{_ASSERTION}claim_nbf_seconds": "not_before_s",
    f"{_ASSERTION}claim_jti_include": "with_id",
}
#: The settings, with their default values.
OAUTHBEARER: Mapping[str, Any] = {
    name: SECURITY[name].default
    for name in (URL, _ID, _SECRET, _SCOPE, _URLENCODE, _FILE, *_SIGNED)
}
_PROVIDER = "sasl_oauth_token_provider"


def given_settings(config: object) -> dict[str, Any]:
    """Return the settings that are set."""
    return {
        name: value
        for name, default in OAUTHBEARER.items()
        if (value := getattr(config, name)) != default
    }


def token_provider(config: object, login: OAuthLogin | None) -> TokenProvider | None:
    """Create the provider. Return None if none of the settings is set.

    Args:
        login: id, secret and scope from ``sasl.jaas.config``, if given.

    Raises:
        ConfigError: if a setting is missing or invalid, or aiohttp is not installed.
    """
    given = given_settings(config)
    if login is not None:
        own = {_ID: login.client_id, _SECRET: login.client_secret, _SCOPE: login.scope}
        for name, value in own.items():
            if value is not None and name in given:
                raise ConfigError(f"{name} and sasl_jaas_config are both set: set one of them")
            if value is not None:
                given[name] = value
    if not given and not (login is not None and login.extensions):
        return None
    if getattr(config, _PROVIDER) is not None:
        if not given:
            raise ConfigError(
                f"sasl_jaas_config has extensions, but {_PROVIDER} is set: let it return them"
            )
        raise ConfigError(f"{min(given)} and {_PROVIDER} are both set: set one of them")
    options = {
        "scope": given.get(_SCOPE),
        "extensions": login.extensions if login else {},
        "ssl_context": _tls_context(login.authorities if login else None),
    }
    way = _way(given)
    if way == _FILE:
        made = _import("JwtBearer")(given[URL], given[_FILE], **options)
    elif way == _KEY:
        signed = {_SIGNED[name]: value for name, value in given.items() if name in _SIGNED}
        made = _import("JwtBearer")(given[URL], _import("Assertion")(**signed), **options)
    else:
        urlencode = given.get(_URLENCODE, False)
        made = _import("ClientCredentials")(
            given[URL], given[_ID], given[_SECRET], header_urlencode=urlencode, **options
        )
    return cast("TokenProvider", made)


def _way(given: Mapping[str, Any]) -> str:
    """Return the setting that determines how tokens are requested."""
    way, *others = [name for name in (_FILE, _KEY, _ID, _SECRET) if name in given] or [_ID]
    if others and (way, others) != (_ID, [_SECRET]):
        raise ConfigError(f"{way} and {others[0]} are both set: set one of them")
    for name in (URL, way) if way in (_FILE, _KEY) else (URL, _ID, _SECRET):
        if not given.get(name):
            raise ConfigError(f"sasl_mechanism='OAUTHBEARER' needs {name}, or {_PROVIDER}")
    unused = sorted(given.keys() & _SIGNED.keys()) if way != _KEY else []
    if unused:
        raise ConfigError(f"{unused[0]} is set, but {_KEY} is not")
    return way


def _tls_context(authorities: str | None) -> ssl.SSLContext | None:
    if authorities is None:
        return None
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"sasl_jaas_config: ssl.truststore.location={authorities!r}: {reason}"
        ) from None


def _import(name: str) -> Any:
    # By its path: the provider's package is above the configuration, as plug-ins are.
    try:
        return import_object(URL, f"aioprod.oauth.{name}", is_secret=True)
    except ConfigError as error:
        raise ConfigError(f'{error}; it needs pip install "aioprod[oauth]"') from None
