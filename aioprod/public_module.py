"""The common parts of public classes: they show the package that users import them from, and
clients cannot be copied.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations
from typing import ForwardRef, NoReturn, SupportsIndex, TypeVar, get_type_hints

C = TypeVar("C", bound=type)


def set_module(package: str) -> Callable[[C], C]:
    """Make a class show ``package`` as its module in reprs, tracebacks and pickles.

    ``typing.get_type_hints`` looks up names in the module that a class shows, so this evaluates
    annotations that are text first.

    Args:
        package: exports the class.
    """

    def change(kind: C) -> C:
        own = get_annotations(kind)
        if any(isinstance(each, str | ForwardRef) for each in own.values()):
            hints = get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
            kind.__annotations__ = {name: hints[name] for name in own}
        kind.__module__ = package
        return kind

    return change


class Uncopyable:
    """A base class of clients. A copy would share the tasks and connections of its original, and
    close them when it is dropped.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse ``copy``, ``deepcopy`` and ``pickle``, which call this.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{type(self).__name__}: cannot be copied or pickled, as it belongs to its event loop "
            "and has connections; create one in each event loop and process"
        )
