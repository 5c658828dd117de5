"""Makes the token provider of a client that is configured by text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aioprod.config.jaas import OAuthLogin
from aioprod.config.plugins import import_object
from aioprod.errors import ConfigError
from aioprod.types import TokenProvider

URL = "sasl_oauthbearer_token_endpoint_url"
_ID = "sasl_oauthbearer_client_credentials_client_id"
_SECRET = "sasl_oauthbearer_client_credentials_client_secret"
_SCOPE = "sasl_oauthbearer_scope"
_FILE = "sasl_oauthbearer_assertion_file"
_URLENCODE = "sasl_oauthbearer_header_urlencode"
#: The settings, and their values when they are not set.
OAUTHBEARER: Mapping[str, Any] = {
    **dict.fromkeys((URL, _ID, _SECRET, _SCOPE, _FILE)),
    _URLENCODE: False,
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
    """Make the provider; return None if none of the settings is set.

    Args:
        login: id, secret and scope from ``sasl.jaas.config``.

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
    secrets = [name for name in (_ID, _SECRET) if name in given]
    if _FILE in given and secrets:
        raise ConfigError(f"{_FILE} and {secrets[0]} are both set: set one of them")
    for name in (URL, _FILE) if _FILE in given else (URL, _ID, _SECRET):
        if not given.get(name):
            raise ConfigError(f"sasl_mechanism='OAUTHBEARER' needs {name}, or {_PROVIDER}")
    options = {"scope": given.get(_SCOPE), "extensions": login.extensions if login else {}}
    if _FILE in given:
        made = _import("JwtBearer")(given[URL], given[_FILE], **options)
    else:
        urlencode = given.get(_URLENCODE, False)
        made = _import("ClientCredentials")(
            given[URL], given[_ID], given[_SECRET], header_urlencode=urlencode, **options
        )
    return cast("TokenProvider", made)


def _import(name: str) -> Any:
    # By its path: the provider stands above the configuration, as plug-ins do.
    try:
        return import_object(URL, f"aioprod.oauth.{name}", is_secret=True)
    except ConfigError as error:
        raise ConfigError(f'{error}; it needs pip install "aioprod[oauth]"') from None
