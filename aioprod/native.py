"""The accelerator: optional C code for what runs once per record, batch or request.

Wheels contain it, and an installation from source builds it if there is a C compiler. Each function
also has an implementation in Python. ``AIOPROD_PURE=1`` in the environment turns it
off.

    >>> from aioprod import native
    >>> native.in_use
    True
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import TypeVar, cast

__all__ = ["in_use", "reason_not_in_use"]

_Function = TypeVar("_Function", bound=Callable[..., object])
_Type = TypeVar("_Type")
_Item = TypeVar("_Item")


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get("AIOPROD_PURE"):
        return None, "AIOPROD_PURE is set"
    try:
        from aioprod import _native
    except ImportError as error:
        # The build says why it left the accelerator out.
        reason = os.path.join(os.path.dirname(__file__), "_not_built.txt")
        if os.path.isfile(reason):
            with open(reason, encoding="utf-8") as file:
                return None, f"it was not built: {file.read()}"
        return None, f"it is not installed ({error})"
    return _native, ""


reason_not_in_use: str
_module, reason_not_in_use = _load()
in_use: bool = _module is not None
python_sources: dict[str, Callable[..., object]] = {}
"""The functions and classes in Python that the accelerator replaces, by name."""


def accelerated_type(source: type[_Type]) -> type[_Type]:
    """Replace a class by the accelerator's type of the same name, if it is in use. The type gets
    the methods of the class that it lacks, and its docstring and module.
    """
    found = accelerated(source)
    if found is not source:
        kept = {*vars(found), "__slots__"} - {"__doc__", "__module__"}
        for name, value in vars(source).items():
            if name not in kept:
                setattr(found, name, value)
    return found


def accelerated(function: _Function) -> _Function:
    """Replace a function or class by the accelerator's of the same name, if it is in use."""
    python_sources[function.__name__] = function
    found: _Function = getattr(_module, function.__name__, function)
    return found


def without_coroutine(send: _Function) -> _Function:
    """Let ``Producer.send`` need no coroutine for a record that gets its place at once, if the
    accelerator is in use. What it returns is awaited as the coroutine is.

    Only for Python 3.11: later ones get a result from other objects than their own coroutines by an
    exception, which takes longer.
    """
    python_sources["SendMethod"] = send
    if _module is None or sys.version_info >= (3, 12):
        return send
    return cast("_Function", _module.SendMethod(send))


def stream_of(
    consumer: AsyncIterator[_Item], records: deque[_Item], anext_of_class: Callable[..., object]
) -> AsyncIterator[_Item]:
    """Return what ``async for`` asks for the records of a consumer: the consumer itself; or, if the
    accelerator is in use and no subclass has its own ``__anext__``, what needs no coroutine for a
    record that is in ``records``.

    Only for Python 3.11, as above.
    """
    if _module is None or sys.version_info >= (3, 12):
        return consumer
    if type(consumer).__anext__ is not anext_of_class:
        return consumer
    return cast("AsyncIterator[_Item]", _module.RecordStream(consumer, records))


python_sources["RecordStream"] = stream_of
