"""Tokens for driver and tasks: a function that each of them imports."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable

from aioprod.config.plugins import import_object
from aioprod.errors import ConfigError
from aioprod.types import OAuthToken

_SETTING = "sasl_oauth_token_provider"


class ImportedTokenProvider:
    """A token provider by its import path; the option ``kafka.sasl.oauth.token.provider``.

    Spark copies the settings of a write to its tasks. The path is copied, and not what it leads to,
    which may hold secrets or connections.

    Raises:
        ConfigError: the path leads nowhere, or not to an async function. The error does not show
            the path: it may be a token, given by mistake.
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
    """The method of an object that can be called; a class has none of its own."""
    return None if isinstance(found, type) else getattr(found, "__call__", None)  # noqa: B004
