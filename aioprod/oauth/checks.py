"""Checks of the arguments that all token providers have."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.config.checks import check_secret_text, check_string
from aioprod.errors import ConfigError


def check_options(provider: str, known: type, given: Mapping[str, object]) -> None:
    """Raise TypeError if the name of an argument is unknown."""
    unknown = sorted(given.keys() - known.__annotations__)
    if unknown:
        raise TypeError(f"{provider} has no argument {unknown[0]!r}")


def check_texts(what: str, given: object) -> dict[str, str]:
    """Raise ConfigError if a name or value is not a string. Errors do not show values: they may be
    secrets.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what}: must be a mapping, not {type(given).__name__}")
    for name, value in given.items():
        check_string(f"{what}: name", name)
        check_secret_text(f"{what}: {name!r}", value)
        if value is None:
            raise ConfigError(f"{what}: {name!r}: must be a string, not None")
    return dict(given)
