"""The base class of all configurations: read-only dataclasses that are imported quickly.

``dataclass`` compiles a constructor and other methods for each class. With ninety settings that
takes a tenth of a client's import, so the configurations share these methods.
"""

# Without `from __future__ import annotations`, as in `aioprod.types`.

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from typing import Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform

from aioprod.config.redaction import HidesArguments

C = TypeVar("C", bound="type[Configuration]")


class ConfigurationType(HidesArguments):
    """The class of configurations."""

    @property
    def __signature__(cls) -> Signature:
        """The constructor's signature, which ``help()`` and editors show."""
        own = fields(cls)  # type: ignore[arg-type]
        return Signature(
            [_parameter(each) for each in sorted(own, key=lambda each: bool(each.kw_only))]
        )


class Configuration(metaclass=ConfigurationType):
    """Settings as the fields of a dataclass. A subclass has the decorator :func:`configuration`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init__(self, *values: Any, **named: Any) -> None:
        positional = [each.name for each in fields(self) if not each.kw_only]
        fault = _fault(positional, len(values), named.keys(), self.__dataclass_fields__.keys())
        if fault is not None:
            name = type(self).__name__
            # Some tools record the local variables of an error: passwords, and no settings yet.
            del self, values, named
            raise TypeError(f"{name}.__init__() {fault}")
        named.update(zip(positional, values, strict=False))
        for each in fields(self):
            value = named[each.name] if each.name in named else _default(each)
            object.__setattr__(self, each.name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: if a setting is invalid.
        """

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def configuration(*, kw_only: bool = False) -> Callable[[C], C]:
    """Make a subclass of :class:`Configuration` a read-only dataclass.

    Args:
        kw_only: whether its own fields are keyword arguments only.
    """
    change: Any = dataclass(kw_only=kw_only, init=False, eq=False, repr=False)
    return cast("Callable[[C], C]", change)


def _fault(
    positional: list[str], count: int, named: AbstractSet[str], known: AbstractSet[str]
) -> str | None:
    """Return why a constructor cannot have ``count`` positional arguments, and those with these
    names; None if it can.
    """
    if count > len(positional):
        return f"takes {len(positional)} positional arguments but {count} were given"
    for name in positional[:count]:
        if name in named:
            return f"got multiple values for argument {name!r}"
    for name in named:
        if name not in known:
            return f"got an unexpected keyword argument {name!r}"
    return None


def _default(setting: Field[Any]) -> Any:
    made = setting.default_factory
    return setting.default if made is MISSING else made()


def _parameter(setting: Field[Any]) -> Parameter:
    kind = Parameter.KEYWORD_ONLY if setting.kw_only else Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(setting.name, kind, default=_default(setting), annotation=setting.type)


def _values(config: Configuration) -> tuple[object, ...]:
    return tuple(getattr(config, each.name) for each in fields(config))
