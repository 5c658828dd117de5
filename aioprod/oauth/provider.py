"""The common part of the token providers for identity providers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TypedDict

from aioprod.config.checks import check_string
from aioprod.oauth.cache import Token, TokenCache
from aioprod.oauth.checks import check_options, check_texts
from aioprod.oauth.endpoint import TokenEndpoint
from aioprod.oauth_token import OAuthToken


class Options(TypedDict, total=False):
    """Options of all token providers.

    Attributes:
        scope: the requested scopes, separated by spaces. Kafka: ``sasl.oauthbearer.scope``.
        extensions: names and values that are sent to the broker with each token (KIP-342).
        parameters: further parameters of the request, such as ``audience``. Not in Kafka.
        ssl_context: TLS context; None uses the system's trusted certificates. Not in Kafka.
        proxy: URL of an HTTP proxy; None uses ``HTTPS_PROXY`` and ``NO_PROXY`` of the environment.
            Not in Kafka.
        request_timeout_ms: limit on one request; by default 10 s.
        timeout_ms: limit on all attempts together; by default 20 s. Should be below
            ``request_timeout_ms`` of the Kafka client, whose login fails after that time.
    """

    scope: str | None
    extensions: Mapping[str, str]
    parameters: Mapping[str, str]
    ssl_context: ssl.SSLContext | None
    proxy: str | None
    request_timeout_ms: float
    timeout_ms: float


class EndpointTokens:
    """Requests tokens for a grant, and caches them."""

    def __init__(self, url: str, grant: str, options: Options) -> None:
        check_options(type(self).__name__, Options, options)
        rest = dict(options)
        self._form = {
            "grant_type": grant,
            **check_texts("parameters", rest.pop("parameters", {})),
        }
        scope = rest.pop("scope", None)
        if scope:
            self._form["scope"] = check_string("scope", scope)
        self._extensions = check_texts("extensions", rest.pop("extensions", {}))
        self._endpoint = TokenEndpoint(url=url, **rest)  # type: ignore[arg-type]
        self._cache = TokenCache(self._fetch)

    async def __call__(self) -> OAuthToken:
        """Return a token: the cached one unless it is due for renewal.

        Raises:
            TokenRequestError: if the identity provider refuses the request or can't be reached.
            KafkaTimeoutError: if it does not respond within ``timeout_ms``.
        """
        return await self._cache.get(self._extensions)

    async def _fetch(self) -> Token:
        raise NotImplementedError
