"""Packages whose names are imported when they are asked for: every run of pytest imports aioprod
for its plugin's sake, whatever it tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Define them out of type checkers' sight: one that sees a ``__getattr__`` takes every name for
    known.

    Args:
        package: its ``globals()``.
        homes: public name to the module that has it.
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(home), name)
        return value

    return get, lambda: sorted({*package, *homes})
