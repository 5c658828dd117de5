"""Adapts serializers and deserializers of one argument, as other clients have them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aioprod.errors import ConfigError
from aioprod.types import Headers

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ARGUMENTS = 3
# Names of parameters that say which of both forms a function has, if it can be called in both.
_OURS = {"topic", "headers"}
_EXPECTED = "must accept (data), or (topic, headers, data)"


class OfData:
    """A serializer or deserializer that calls a function with the data only. A null is None, and
    not given to the function.

    Attributes:
        function: the function, or object that can be called.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        # Errors of records have this name.
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> Any:
        """Call the function."""
        return None if data is None else self.function(data)

    def __repr__(self) -> str:
        return repr(self.function)


def adapted(setting: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what can be called with ``(topic, headers, data)``: a function of these, or an
    :class:`OfData` around a function of one argument.

    Raises:
        ConfigError: if it is neither.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function  # of C, without a signature
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    required = sum(each.default is each.empty for each in positional)
    most: float = len(positional)
    names = {each.name for each in parameters}
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        most = float("inf")
    needs_keywords = any(
        each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters
    )
    takes_three = required <= _ARGUMENTS <= most and not needs_keywords
    takes_one = required <= 1 <= most and not needs_keywords and "ctx" not in names
    if takes_three and (not takes_one or required == 0 or most > len(positional)):
        return function
    if takes_three and names & _OURS:
        return function
    if takes_one:
        return OfData(function)
    raise ConfigError(f"{setting}: {_name_of(function)}{_signature_of(function)}: {_cure(names)}")


def _cure(names: set[str]) -> str:
    if "ctx" in names:
        return (
            f"{_EXPECTED}; for serializers of confluent-kafka there are equivalents in "
            "aioprod.schema_registry and aioprod.serialization"
        )
    return _EXPECTED


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _signature_of(function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    names = (str(each.replace(annotation=each.empty, default=each.empty)) for each in parameters)
    return f"({', '.join(names)})"
