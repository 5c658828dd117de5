"""What the token providers have in common."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TypedDict

from aioprod.config.checks import check_string
from aioprod.oauth.cache import Token, TokenCache
from aioprod.oauth.checks import check_options, check_texts
from aioprod.oauth.endpoint import TokenEndpoint
from aioprod.types import OAuthToken


class Options(TypedDict, total=False):
    """Options of all token providers.

    Attributes:
        scope: the requested access, as names with spaces between. Kafka:
            ``sasl.oauthbearer.scope``.
        extensions: names and values that are sent to the broker with each token (KIP-342).
        parameters: further parameters of the request, such as ``audience``. Not in Kafka.
        ssl_context: TLS context; None trusts what the system trusts. Not in Kafka.
        proxy: URL of an HTTP proxy; None takes ``HTTPS_PROXY`` and ``NO_PROXY`` from the
            environment. Not in Kafka.
        request_timeout_ms: limit of one request; by default 10 s.
        timeout_ms: limit of all attempts; by default 20 s. Should be below ``request_timeout_ms``
            of the Kafka client, which gives up otherwise.
    """

    scope: str | None
    extensions: Mapping[str, str]
    parameters: Mapping[str, str]
    ssl_context: ssl.SSLContext | None
    proxy: str | None
    request_timeout_ms: float
    timeout_ms: float


class EndpointTokens:
    """Requests tokens for a grant, and keeps them."""

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
        """Return a token, the kept one if it is not due for renewal.

        Raises:
            TokenRequestError: if the identity provider refuses, or is not reached.
            KafkaTimeoutError: if it does not answer within ``timeout_ms``.
        """
        return await self._cache.get(self._extensions)

    async def _fetch(self) -> Token:
        raise NotImplementedError
