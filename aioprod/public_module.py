"""Makes public classes show the package that users import them from."""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations
from typing import TypeVar, get_type_hints

C = TypeVar("C", bound=type)


def set_module(package: str) -> Callable[[C], C]:
    """Make a class show ``package`` as its module in reprs, tracebacks and pickles.

    ``typing.get_type_hints`` looks up names in the module that a class shows, so this
    evaluates the annotations first.

    Args:
        package: exports the class.
    """

    def change(kind: C) -> C:
        own = get_annotations(kind)
        if own:
            hints = get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
            kind.__annotations__ = {name: hints[name] for name in own}
        kind.__module__ = package
        return kind

    return change
