"""The accelerator: optional C code for the loops that run once per record.

Wheels contain it, and an installation from source builds it if there is a C compiler. Each function
also has an implementation in Python. ``AIOPROD_PURE=1`` in the environment turns it
off.

    >>> from aioprod import native
    >>> native.in_use
    True
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])
_Type = TypeVar("_Type")


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get("AIOPROD_PURE"):
        return None, "AIOPROD_PURE is set"
    try:
        from aioprod import _native
    except ImportError as error:
        return None, f"it is not installed ({error})"
    return _native, ""


_module, reason_not_in_use = _load()
in_use = _module is not None
python_sources: dict[str, Callable[..., object]] = {}
"""The Python functions that the accelerator replaces, by name."""


def accelerated_type(source: type[_Type]) -> type[_Type]:
    """Replace a class by the accelerator's type of the same name, if it is in use. All methods that
    the type lacks become methods of it.
    """
    python_sources[source.__name__] = source
    found: type[_Type] | None = getattr(_module, source.__name__, None)
    if found is None:
        return source
    for name, value in vars(source).items():
        if name in ("__doc__", "__module__") or name not in (*vars(found), "__slots__"):
            setattr(found, name, value)
    return found


def accelerated(function: _Function) -> _Function:
    """Replace a function by the accelerator's function of the same name, if it is in use."""
    python_sources[function.__name__] = function
    found: _Function = getattr(_module, function.__name__, function)
    return found
