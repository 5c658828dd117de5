"""Packages that import a name only when it is used.

pytest imports aioprod in each run, for its plugin, so ``import aioprod`` must be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: dict[str, Any],
    homes: Mapping[str, str],
    modules: Sequence[str] = (),
    unlisted: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Define them where type checkers do not see them: if a module has a ``__getattr__``, they accept
    every name.

    Args:
        package: its ``globals()``.
        homes: the module of each public name.
        modules: modules whose ``__all__`` is public, too.
        unlisted: further such modules; ``dir`` shows the module instead of its names.
    """
    shown_modules = {module.rpartition(".")[2]: module for module in unlisted}

    def names_of(searched: Iterable[str]) -> set[str]:
        return {name for module in searched for name in import_module(module).__all__}

    def get(name: str) -> Any:
        if name == "__all__":
            public = {name for name in homes if not name.startswith("_")}
            return sorted(public | names_of((*modules, *unlisted)))
        if name in shown_modules:
            return import_module(shown_modules[name])
        home = homes.get(name)
        if home is None and not name.startswith("_"):
            searched = (*modules, *unlisted)
            home = next((each for each in searched if name in names_of([each])), None)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(home), name)
        return value

    def names() -> list[str]:
        special = {name for name in package if name.startswith("__")}
        return sorted({*special, *homes, *shown_modules, *names_of(modules)})

    return get, names
