"""pydantic models as JSON. A model may write other names than it reads, and computed fields.

A model's schema describes what it writes. Names in written JSON are changed before it is read.
Does not import pydantic, which models import.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_origin

from aioprod.schema_registry.model_fields import is_pydantic, union_of, without_annotation


def written_schema(model: Any) -> dict[str, Any]:
    """Return the JSON Schema of the JSON that a model writes."""
    found: dict[str, Any] = model.model_json_schema(mode="serialization")
    return found


def readable_schemas(model: Any) -> list[dict[str, Any]]:
    """Return the JSON Schemas of the JSON that a model reads: what it writes, possibly without
    computed fields; and, if that differs, what else it accepts.
    """
    written = written_schema(model)
    for each in _objects(written):
        computed = {
            name for name, field in each["properties"].items() if field.get("readOnly") is True
        }
        required = [name for name in each.get("required", ()) if name not in computed]
        if "required" in each:
            each["required"] = required
    read = model.model_json_schema(mode="validation")
    return [written] if _equal(read, written) else [written, read]


def read_model(model: Any, value: Any) -> Any:
    """Read a model from JSON, which the model may have written.

    Raises:
        ValueError: if the value does not fit.
    """
    if _is_renamed(model):
        value = _renamed(model, value)
    return model.model_validate(value)


class _Names(NamedTuple):
    """The names of a model's fields.

    Attributes:
        fields: the name to read by and the type, by written name.
        computed: names that are written, and not read.
    """

    fields: dict[str, tuple[str, Any]]
    computed: frozenset[str]


@lru_cache(maxsize=1_000)
def _names(model: Any) -> _Names:
    fields = {}
    for attribute, info in model.model_fields.items():
        written = info.serialization_alias or info.alias or attribute
        fields[written] = _read_name(attribute, info), info.annotation
    computed = {info.alias or attribute for attribute, info in model.model_computed_fields.items()}
    return _Names(fields, frozenset(computed - {name for name, _ in fields.values()}))


def _read_name(attribute: str, info: Any) -> str:
    alias = info.validation_alias
    if alias is None or isinstance(alias, str):
        return alias or info.alias or attribute
    choices = getattr(alias, "choices", [alias])  # of AliasChoices
    for choice in choices:
        path = getattr(choice, "path", [choice])  # of AliasPath
        if len(path) == 1 and isinstance(path[0], str):
            return str(path[0])
    return attribute  # requires populate_by_name


@lru_cache(maxsize=1_000)
def _is_renamed(model: Any) -> bool:
    """Return whether a model, or a nested one, writes other names than it reads."""
    met: set[Any] = set()
    stack = [model]
    while stack:
        kind = stack.pop()
        if not is_pydantic(kind):
            stack += [each for each in get_args(kind) if each is not ... and not _is_plain(each)]
            continue
        if kind in met:
            continue
        met.add(kind)
        names = _names(kind)
        if names.computed or any(name != read for name, (read, _) in names.fields.items()):
            return True
        stack += [hint for _, hint in names.fields.values()]
    return False


def _is_plain(hint: Any) -> bool:
    return isinstance(hint, str | int | bytes | None)


def _renamed(hint: Any, value: Any) -> Any:
    hint, _ = without_annotation(hint)
    if is_pydantic(hint):
        if getattr(hint, "__pydantic_root_model__", False):
            return _renamed(hint.model_fields["root"].annotation, value)
        return _renamed_fields(hint, value) if isinstance(value, dict) else value
    if (parts := union_of(hint)) is not None:
        return _renamed(_chosen(parts, value), value)
    arguments = get_args(hint)
    if isinstance(value, list) and arguments:
        if get_origin(hint) is tuple and len(arguments) == len(value) and ... not in arguments:
            return [_renamed(kind, each) for kind, each in zip(arguments, value, strict=True)]
        return [_renamed(arguments[0], each) for each in value]
    if isinstance(value, dict) and len(arguments) == 2:
        return {name: _renamed(arguments[1], each) for name, each in value.items()}
    return value


def _renamed_fields(model: Any, value: dict[str, Any]) -> dict[str, Any]:
    names = _names(model)
    read = dict(names.fields.values())
    found = {}
    for name, each in value.items():
        if name in names.fields:
            wanted, hint = names.fields[name]
            found[wanted] = _renamed(hint, each)
        elif name not in names.computed:
            found.setdefault(name, _renamed(read.get(name), each))
    return found


def _chosen(parts: tuple[Any, ...], value: Any) -> Any:
    """Return the type of a union that shares the most names with a value."""
    models = [kind for part in parts if is_pydantic(kind := without_annotation(part)[0])]
    if isinstance(value, dict) and models:
        return max(models, key=lambda kind: _shared(kind, value))
    wanted = list if isinstance(value, list) else dict if isinstance(value, dict) else None
    for part in parts:
        kind = without_annotation(part)[0]
        origin = get_origin(kind)
        if wanted is not None and isinstance(origin, type) and _contains(origin, wanted):
            return kind
    return None


def _contains(origin: type, wanted: type) -> bool:
    return issubclass(origin, dict) == (wanted is dict)


def _shared(model: Any, value: dict[str, Any]) -> int:
    names = _names(model)
    known = {*names.fields, *names.computed, *(name for name, _ in names.fields.values())}
    return len(known & set(value)) - len(set(value) - known)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas of objects in a schema."""
    stack = [schema]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            if isinstance(each.get("properties"), dict):
                yield each
            stack += each.values()
        elif isinstance(each, list):
            stack += each


def _equal(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
