"""Tokens for driver and tasks, which import the same function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable

from aioprod.config.plugins import import_object
from aioprod.errors import ConfigError
from aioprod.oauth_token import OAuthToken

_SETTING = "sasl_oauth_token_provider"


class ImportedTokenProvider:
    """A token provider that is given by its import path, in the option
    ``kafka.sasl.oauth.token.provider``.

    Spark copies the settings of a write to its tasks. Only the path is copied, not the function or
    object, which may contain secrets or connections.

    Raises:
        ConfigError: if the path can't be imported, or is not an async function. The error does not
            show the path, because it may be a token that was given by mistake.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._provider = found = import_object(_SETTING, path, is_secret=True)
        if not (inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(_call_of(found))):
            expected = "the import path of an async function that returns an OAuthToken"
            raise ConfigError(f"{_SETTING}: must be {expected}")

    def __call__(self) -> Awaitable[OAuthToken]:
        answer: Awaitable[OAuthToken] = self._provider()
        return answer

    def __reduce__(self) -> tuple[type[ImportedTokenProvider], tuple[str]]:
        return ImportedTokenProvider, (self._path,)


def _call_of(found: object) -> object:
    """Return the ``__call__`` method of a callable object, but not that of a class's instances."""
    return None if isinstance(found, type) else getattr(found, "__call__", None)  # noqa: B004
