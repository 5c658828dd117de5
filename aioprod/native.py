"""The accelerator, a small part in C for the loops that run once per record.

It is optional: wheels have it, an installation from source builds it if there is a C compiler, and
every function has its source in Python beside it. ``AIOPROD_PURE=1`` in the environment turns it
off.

    >>> from aioprod import native
    >>> native.in_use
    True
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

F = TypeVar("F", bound=Callable[..., object])

in_use: Final[bool]
"""Whether the accelerator is used in this process."""
reason: Final[str]
"""Why it is not used; empty if it is."""

if os.environ.get("AIOPROD_PURE"):
    _native = None
    reason = "AIOPROD_PURE is set"
else:
    try:
        from aioprod import _native
    except ImportError as error:
        _native = None
        reason = f"it is not installed ({error})"
    else:
        reason = ""
in_use = _native is not None


def accelerated(function: F) -> F:
    """Return the accelerator's function of the same name and meaning, or ``function`` itself."""
    found: F = getattr(_native, function.__name__, function)
    return found
