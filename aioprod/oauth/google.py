"""Tokens for Google Cloud Managed Service for Apache Kafka."""

from __future__ import annotations

import base64
import json
import os
import time
from datetime import UTC
from functools import cache
from typing import Any, Unpack

from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError
from aioprod.oauth.cache import Token
from aioprod.oauth.cloud import CloudOptions, CloudTokens
from aioprod.oauth.errors import TokenRequestError
from aioprod.oauth_token import OAuthToken

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# As in Google's own providers for Kafka.
_HEADER = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_PRINCIPAL = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"


class GoogleTokens(CloudTokens, metaclass=HidesArguments):
    """A token provider for Google's Managed Service for Apache Kafka: sends access tokens of the
    application default credentials.

    google-auth finds the credentials: ``GOOGLE_APPLICATION_CREDENTIALS`` (a service account, or
    workload identity federation), ``gcloud auth application-default login``, instance metadata. It
    is called in a thread, as it blocks. The access token is wrapped in the form of a JSON Web Token
    that names the principal.

    Args:
        principal: e-mail address of the account; None uses that of the service account, or
            ``GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL``. The credentials of a user do not contain the
            user's address.
        credentials: credentials of google-auth instead of the default ones, with the scope
            ``https://www.googleapis.com/auth/cloud-platform``.
        options: see :class:`~aioprod.oauth.cloud.CloudOptions`.

    Raises:
        ConfigError: if an argument is invalid, or google-auth is not installed.
    """

    _library = ("google.auth", "google")

    def __init__(
        self,
        principal: str | None = None,
        *,
        credentials: Any = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        if principal is not None and (not isinstance(principal, str) or not principal.strip()):
            raise ConfigError(f"principal={principal!r}: must be a non-empty string")
        if credentials is not None and not callable(getattr(credentials, "refresh", None)):
            raise ConfigError(
                "credentials: must be credentials of google-auth, not a "
                f"{type(credentials).__name__}"
            )
        super().__init__(options)
        self._principal = principal
        self._credentials = credentials

    async def _fetch(self) -> Token:
        return await self._in_thread(self._ask)

    def _ask(self) -> Token:
        import google.auth
        from google.auth.transport.requests import Request

        found = self._credentials
        if found is None:
            # Read again for each token: the file may have changed.
            found, _project = google.auth.default(scopes=[_SCOPE])
        found.refresh(Request())
        if not found.token or found.expiry is None:
            raise TokenRequestError("the credentials have no token with an expiry time", 0)
        principal = (
            self._principal
            or getattr(found, "service_account_email", None)
            or os.environ.get(_PRINCIPAL)
        )
        if not principal:
            raise TokenRequestError(
                f"{type(found).__name__} does not contain its principal: set principal or "
                f"{_PRINCIPAL}",
                0,
            )
        now, expires = time.time(), found.expiry.replace(tzinfo=UTC).timestamp()
        return Token(_wrapped(found.token, principal, int(now), int(expires)), expires - now)

    def _errors(self) -> tuple[type[Exception], ...]:
        from google.auth.exceptions import GoogleAuthError

        return (GoogleAuthError,)


def _wrapped(access_token: str, principal: str, issued: int, expires: int) -> str:
    claims = {"exp": expires, "iss": "Google", "iat": issued, "scope": "kafka", "sub": principal}
    parts = (json.dumps(_HEADER), json.dumps(claims), access_token)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


async def token() -> OAuthToken:
    """Return a token of :class:`GoogleTokens` without arguments, for clients that are configured by
    text: ``sasl.oauth.token.provider=aioprod.oauth.google.token``.

    Raises:
        TokenRequestError: if there are no credentials, or they do not contain their principal.
        ConfigError: if google-auth is not installed.
    """
    return await _from_environment()()


@cache
def _from_environment() -> GoogleTokens:
    return GoogleTokens()
