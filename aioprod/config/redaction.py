"""Keeps secrets out of tracebacks: some tools record each frame with its local variables.

A call that is given settings has passwords among its arguments, and so have the calls below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from aioprod.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

_SECRET = re.compile(r"password|passphrase|secret|jaas\.config|keystore\.key$")


def is_secret(name: str) -> bool:
    """Whether a setting of a client, here or in Java, has a secret as its value.

    Args:
        name: with dots or underscores.
    """
    return _SECRET.search(name.replace("_", ".").lower()) is not None


def hide_arguments(call: Callable[P, R]) -> Callable[P, R]:
    """Make a ConfigError that ``call`` raises begin in a frame without the arguments."""

    @wraps(call)
    def hidden(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except ConfigError as error:
            # What was being handled has frames of its own, and a UnicodeError the text itself.
            # A cause was named on purpose.
            error.__context__ = None
            fault = error.with_traceback(None)
        finally:
            del args, kwargs  # of any other error, too
        try:
            raise fault
        finally:
            del fault  # a frame and an error that hold each other wait for the garbage collector

    return hidden


class HidesArguments(type):
    """The class of classes whose constructors are given secrets: a generated one has no source."""

    __call__ = hide_arguments(type.__call__)


class SecretSettings(dict[str, Any]):
    """Settings that some function keeps while it waits: its frame shows their names only."""

    def __repr__(self) -> str:
        return f"<settings {', '.join(self)}>"
