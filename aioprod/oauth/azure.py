"""Tokens of Microsoft Entra ID for Azure Event Hubs."""

from __future__ import annotations

import asyncio
import inspect
import time
from importlib import import_module
from typing import Any, Unpack
from urllib.parse import urlsplit

from aioprod.config.redaction import HidesArguments
from aioprod.errors import ConfigError
from aioprod.oauth.cache import Token
from aioprod.oauth.cloud import CloudOptions, CloudTokens, require
from aioprod.oauth.errors import TokenRequestError


class AzureTokens(CloudTokens, metaclass=HidesArguments):
    """A token provider for Azure Event Hubs. Tokens are for a workload identity, a managed
    identity, or any other identity that ``DefaultAzureCredential`` of azure-identity finds.

    Args:
        namespace: host name, such as ``orders.servicebus.windows.net``. The requested scope is
            ``https://<namespace>/.default``. None if ``scope`` is set.
        scope: for other services that accept tokens of Entra ID, such as
            ``api://<application>/.default``.
        client_id: id of a user-assigned managed identity; None uses ``AZURE_CLIENT_ID``, or the
            system-assigned identity.
        credential: a credential of azure-identity instead of the default one. Asynchronous ones
            run in the event loop, others in a thread. The provider does not close it.
        options: see :class:`~aioprod.oauth.cloud.CloudOptions`.

    Raises:
        ConfigError: if an argument is invalid, or azure-identity is not installed.
    """

    _library = ("azure.identity", "azure")

    def __init__(
        self,
        namespace: str | None = None,
        *,
        scope: str | None = None,
        client_id: str | None = None,
        credential: Any = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        self._scope = _scope(namespace, scope)
        if credential is not None and client_id is not None:
            raise ConfigError("credential and client_id are both set: set one of them")
        if credential is not None and not callable(getattr(credential, "get_token", None)):
            raise ConfigError(
                "credential: must have a method get_token, as those of azure-identity do; "
                f"{type(credential).__name__} does not"
            )
        super().__init__(options)
        require("aiohttp", type(self).__name__, "azure")
        self._client_id = client_id
        self._credential = credential

    async def _fetch(self) -> Token:
        if self._credential is not None and not _is_async(self._credential):
            return await self._in_thread(lambda: _token(self._credential.get_token(self._scope)))
        outcome = await self._limited(self._ask())
        if isinstance(outcome, Token):
            return outcome
        raise outcome

    async def _ask(self) -> Token | TokenRequestError:
        try:
            if self._credential is not None:
                return _token(await self._credential.get_token(self._scope))
            # The import takes half a second.
            identity = await asyncio.to_thread(import_module, "azure.identity.aio")
            given = (
                {}
                if self._client_id is None
                else {
                    "managed_identity_client_id": self._client_id,
                    "workload_identity_client_id": self._client_id,
                }
            )
            # A new credential for each token: its connections belong to this event loop.
            async with identity.DefaultAzureCredential(**given) as credential:
                return _token(await credential.get_token(self._scope))
        except Exception as error:
            return self._failure(error)

    def _errors(self) -> tuple[type[Exception], ...]:
        from azure.core.exceptions import AzureError

        return (AzureError,)


def _scope(namespace: str | None, scope: str | None) -> str:
    if (namespace is None) == (scope is None):
        raise ConfigError("set either namespace or scope")
    if scope is not None:
        if not isinstance(scope, str) or not scope.strip():
            raise ConfigError(f"scope={scope!r}: must be text that is not empty")
        return scope
    host = namespace if isinstance(namespace, str) else ""
    if not host or urlsplit(f"//{host}").hostname != host.lower():
        raise ConfigError(
            f"namespace={namespace!r}: must be a host name, such as orders.servicebus.windows.net"
        )
    return f"https://{host}/.default"


def _is_async(credential: Any) -> bool:
    return inspect.iscoroutinefunction(credential.get_token)


def _token(answer: Any) -> Token:
    """Convert an ``AccessToken`` of azure-core."""
    return Token(answer.token, float(answer.expires_on) - time.time())
