"""The fields of dataclasses and pydantic models, without importing pydantic."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
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
        default: MISSING if it has none, or one that is made for each object.
    """

    name: str
    attribute: str
    hint: Any
    default: Any


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
            f"{model.__qualname__}: the type of a field is not found: {error}"
        ) from error
    return tuple(
        Field(
            field.name,
            field.name,
            hints[field.name],
            MISSING if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(model)
    )


def _pydantic_fields(model: Any) -> Iterator[Field]:
    for attribute, info in model.model_fields.items():
        hint = info.annotation
        if info.metadata:
            hint = Annotated[(hint, *info.metadata)]
        required = info.is_required() or info.default_factory is not None
        yield Field(info.alias or attribute, attribute, hint, MISSING if required else info.default)


def without_annotation(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type, and what Annotated adds to it."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return inner, tuple(extras)
    return hint, ()


def union_of(hint: Any) -> tuple[Any, ...] | None:
    """Return the types of a union, None if a type is not one."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else None


def symbol_of(member: Enum) -> str:
    """Return the text for a member of an enumeration: its value if that is a text, or its name."""
    return member.value if isinstance(member.value, str) else member.name


def member_of(kind: type[Enum], symbol: str) -> Enum:
    """Return the member of an enumeration that a text stands for.

    Raises:
        ValueError: if there is none.
    """
    for member in kind:
        if symbol_of(member) == symbol:
            return member
    raise ValueError(f"{kind.__name__} has no member for {symbol!r}")


def described(model: type) -> str | None:
    """Return the documentation that a class has of its own, for its schema."""
    text = model.__dict__.get("__doc__")
    # A dataclass without a docstring has its signature there.
    if not text or text.startswith(f"{model.__name__}("):
        return None
    return " ".join(text.split())
