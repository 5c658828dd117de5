"""Tokens for SASL/OAUTHBEARER from an identity provider (KIP-768, KIP-1139).

Needs the extra ``oauth``.

    >>> from aioprod.oauth import ClientCredentials
    >>> tokens = ClientCredentials(
    ...     "https://login.example.com/oauth2/token", "orders-service", "secret", scope="kafka"
    ... )

Pass it as ``sasl_oauth_token_provider``. Clients that are configured by text make one from the
settings ``sasl.oauthbearer.*``.
"""

from __future__ import annotations

from aioprod.oauth.client_credentials import ClientCredentials
from aioprod.oauth.endpoint import TokenRequestError
from aioprod.oauth.jwt_bearer import Assertion, JwtBearer

__all__ = ["Assertion", "ClientCredentials", "JwtBearer", "TokenRequestError"]
