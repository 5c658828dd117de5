"""Tokens for client credentials (the grant of RFC 6749, section 4.4; KIP-768)."""

from __future__ import annotations

from typing import Unpack
from urllib.parse import quote_plus

from aioprod.config.checks import check_secret_text
from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError
from aioprod.oauth.cache import Token
from aioprod.oauth.endpoint import Grant, basic_authorization
from aioprod.oauth.provider import EndpointTokens, Options


class ClientCredentials(EndpointTokens, metaclass=HidesArguments):
    """A token provider that requests tokens with a client's id and secret.

    A token is cached, and renewed after 80 to 85 % of its lifetime. If the renewal fails, the token
    is used until it expires. Several clients may share a provider.

    Args:
        token_endpoint_url: URL at the identity provider. Kafka:
            ``sasl.oauthbearer.token.endpoint.url``.
        client_id: the client's id. Kafka: ``sasl.oauthbearer.client.credentials.client.id``.
        client_secret: the client's secret. Kafka:
            ``sasl.oauthbearer.client.credentials.client.secret``.
        header_urlencode: URL-encode id and secret, as RFC 6749 requires. Many identity providers do
            not expect that. Kafka: ``sasl.oauthbearer.header.urlencode`` (since 3.9, KIP-1025).
        options: see :class:`~aioprod.oauth.provider.Options`.

    Raises:
        ConfigError: if an argument is invalid.
    """

    def __init__(
        self,
        token_endpoint_url: str,
        client_id: str,
        client_secret: str,
        *,
        header_urlencode: bool = False,
        **options: Unpack[Options],
    ) -> None:
        for name, value in (("client_id", client_id), ("client_secret", client_secret)):
            if not check_secret_text(name, value):
                raise ConfigError(f"{name}: must be a non-empty string")
        super().__init__(token_endpoint_url, "client_credentials", options)
        if header_urlencode:
            client_id, client_secret = quote_plus(client_id), quote_plus(client_secret)
        self._authorization = basic_authorization(client_id, client_secret)

    async def _fetch(self) -> Token:
        return await self._endpoint.request(Grant(self._form, self._authorization))
