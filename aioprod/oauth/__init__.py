"""Tokens for SASL/OAUTHBEARER from an identity provider (KIP-768, KIP-1139), or a cloud.

Needs the extra ``oauth``; for the identities of clouds ``aws``, ``azure`` or ``google``.

    >>> from aioprod.oauth import ClientCredentials
    >>> tokens = ClientCredentials(
    ...     "https://login.example.com/oauth2/token", "orders-service", "secret", scope="kafka"
    ... )

Pass it as ``sasl_oauth_token_provider``. Clients that are configured by text make one from the
settings ``sasl.oauthbearer.*``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioprod.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioprod.oauth.aws import AwsTokens
    from aioprod.oauth.azure import AzureTokens
    from aioprod.oauth.client_credentials import ClientCredentials
    from aioprod.oauth.errors import TokenRequestError
    from aioprod.oauth.google import GoogleTokens
    from aioprod.oauth.jwt_bearer import Assertion, JwtBearer
else:
    # Each provider has its own extra.
    __getattr__, __dir__ = lazy_names(
        globals(),
        {
            "Assertion": "aioprod.oauth.jwt_bearer",
            "AwsTokens": "aioprod.oauth.aws",
            "AzureTokens": "aioprod.oauth.azure",
            "ClientCredentials": "aioprod.oauth.client_credentials",
            "GoogleTokens": "aioprod.oauth.google",
            "JwtBearer": "aioprod.oauth.jwt_bearer",
            "TokenRequestError": "aioprod.oauth.errors",
        },
    )

__all__ = [
    "Assertion",
    "AwsTokens",
    "AzureTokens",
    "ClientCredentials",
    "GoogleTokens",
    "JwtBearer",
    "TokenRequestError",
]
