"""Keeps secrets out of tracebacks: some tools record the local variables of each frame.

The arguments of a function that gets settings contain passwords, as do those of the functions that
it calls.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aioprod.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

_SECRET = r"password|passphrase|secret|jaas\.config|keystore\.key$"


def is_secret(name: str) -> bool:
    """Return whether the value of a setting of aioprod or the Java client is a secret.

    Args:
        name: the name, with dots or underscores.
    """
    return re.search(_SECRET, name.replace("_", ".").lower()) is not None


def hide_arguments(call: Callable[P, R]) -> Callable[P, R]:
    """Hide the frames of ``call`` in the traceback of a ConfigError that it raises."""

    @wraps(call)
    def hidden(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except ConfigError as error:
            # The context has frames with arguments, and a UnicodeError contains the text. The cause
            # is kept, as it was set on purpose.
            error.__context__ = None
            fault = error.with_traceback(None)
        finally:
            del args, kwargs  # for other errors, too
        try:
            raise fault
        finally:
            del fault  # breaks the reference cycle of frame and error

    return hidden


class HidesArguments(type):
    """Metaclass that applies ``hide_arguments`` to the generated constructor of a dataclass."""

    if not TYPE_CHECKING:  # else type checkers use its signature for that of the classes
        __call__ = hide_arguments(type.__call__)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's signature; ``help()`` and editors would show that of ``__call__``."""
        constructor: Any = type.__getattribute__(cls, "__init__")
        _self, *parameters = inspect.signature(constructor).parameters.values()
        return inspect.Signature(parameters)


class SecretSettings(dict[str, Any]):
    """Settings whose repr only shows their names, for functions that suspend with them."""

    def __repr__(self) -> str:
        return f"<settings {', '.join(self)}>"
