"""The fields of dataclasses and pydantic models, without importing pydantic."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Container, Iterator
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from aioprod.errors import ConfigError

MISSING = object()


class Field(NamedTuple):
    """A field of a model.

    Attributes:
        name: its name in schemas.
        attribute: its name in the class.
        hint: its type.
        default: its default; MISSING if it has none, or each object gets a new one.
        factory: returns the default for an object; None if it has none.
        key: the argument's name in the constructor, if it is not the attribute's.
        is_set: whether the value is set after the object is created.
        needs_fields: whether ``factory`` is called with the other fields.
    """

    name: str
    attribute: str
    hint: Any
    default: Any
    factory: Callable[..., Any] | None = None
    key: str = ""
    is_set: bool = False
    needs_fields: bool = False

    @property
    def is_supplied(self) -> bool:
        """True if the class supplies a value for an object that is created without one."""
        return self.default is not MISSING or self.factory is not None


def is_pydantic(kind: object) -> bool:
    """Return whether a class is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_model(kind: object) -> TypeGuard[type]:
    """Return whether a class is a dataclass or a pydantic model."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_pydantic(kind))


def fields_of(model: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass or pydantic model.

    Raises:
        ConfigError: if it is neither, or a type of a field can't be found.
    """
    return _fields_of(model)


@lru_cache(maxsize=1_000)
def _fields_of(model: Any) -> tuple[Field, ...]:
    if not is_model(model):
        raise ConfigError(f"{model!r}: must be a dataclass or a pydantic model")
    if is_pydantic(model):
        return tuple(_pydantic_fields(model))
    try:
        hints = get_type_hints(model, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"{model.__qualname__}: the type of a field can't be resolved: {error}"
        ) from error
    return tuple(
        Field(
            field.name,
            field.name,
            hints[field.name],
            MISSING if field.default is dataclasses.MISSING else field.default,
            None if field.default_factory is dataclasses.MISSING else field.default_factory,
            field.name,
            is_set=not field.init,
        )
        for field in dataclasses.fields(model)
    )


def _pydantic_fields(model: Any) -> Iterator[Field]:
    for attribute, info in model.model_fields.items():
        if info.exclude:  # never written
            continue
        hint = info.annotation
        if info.metadata:
            hint = Annotated[(hint, *info.metadata)]
        factory = info.default_factory
        required = info.is_required() or factory is not None
        yield Field(
            info.serialization_alias or info.alias or attribute,
            attribute,
            hint,
            MISSING if required else info.default,
            factory,
            _key_of(model, attribute, info),
            needs_fields=bool(getattr(info, "default_factory_takes_validated_data", False)),
        )


def _key_of(model: Any, attribute: str, info: Any) -> str:
    by_name = model.model_config.get("populate_by_name")
    return (
        info.validation_alias
        if isinstance(info.validation_alias, str) and not by_name
        else attribute
    )


def computed_fields_of(model: Any) -> tuple[Field, ...]:
    """Return the computed fields of a pydantic model; none for a dataclass."""
    if not is_pydantic(model):
        return ()
    return tuple(
        Field(info.alias or attribute, attribute, info.return_type, MISSING)
        for attribute, info in model.model_computed_fields.items()
    )


class ModelField(NamedTuple):
    """A field of a model as it is written.

    Attributes:
        name: its name in the schema.
        attribute: its name in the class.
        is_plain_text: whether it is a string, and never a member of an enumeration.
    """

    name: str
    attribute: str
    is_plain_text: bool


def model_fields(model: Any, names: Container[str]) -> list[ModelField]:
    """Return the fields of a model, computed ones included.

    Args:
        model: the class.
        names: the names in a schema, which are aliases or attributes.
    """
    return [
        ModelField(
            each.attribute if each.name not in names and each.attribute in names else each.name,
            each.attribute,
            _may_be_both(each.hint),
        )
        for each in (*fields_of(model), *computed_fields_of(model))
    ]


def _may_be_both(hint: Any) -> bool:
    parts = [without_annotation(each)[0] for each in union_of(without_annotation(hint)[0]) or ()]
    enums = any(isinstance(each, type) and issubclass(each, Enum) for each in parts)
    return enums and any(each is str or get_origin(each) is Literal for each in parts)


def without_annotation(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type, and the metadata of Annotated. Aliases of types and new types are resolved."""
    extras: tuple[Any, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *added = get_args(hint)
            extras = (*extras, *added)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # since Python 3.12
            hint = hint.__value__
        else:
            return hint, extras


def union_of(hint: Any) -> tuple[Any, ...] | None:
    """Return the types of a union; None if a type is not a union."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else None


def symbol_of(member: Enum) -> str:
    """Return the string for a member of an enumeration: its value if that is one, or its name."""
    return member.value if isinstance(member.value, str) else member.name


def member_of(kind: type[Enum], symbol: str) -> Enum:
    """Return the member of an enumeration that a string stands for.

    Raises:
        ValueError: if there is no such member.
    """
    for member in kind:
        if symbol_of(member) == symbol:
            return member
    raise ValueError(f"{kind.__name__} has no member for {symbol!r}")


def described(model: type) -> str | None:
    """Return the class's own documentation, for its schema."""
    text = model.__dict__.get("__doc__")
    # A dataclass without a docstring has its signature as docstring.
    if not text or text.startswith(f"{model.__name__}("):
        return None
    return " ".join(text.split())
