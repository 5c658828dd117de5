"""Validation by JSON Schema, in a number of steps that is limited.

jsonschema does the work, with some of its keywords replaced: those that lead to other schemas count
what they do, ``uniqueItems`` compares no item with each other one, and patterns are matched in
linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Final

import attrs
from jsonschema import validators
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import lookup_recursive_ref

from aioprod.schema_registry.linear_patterns import compiled

Keyword = Callable[[Any, Any, Any, Any], Any]
Search = Callable[[str, str], bool]

_BRANCHES: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_ITEMS: Final = ("items", "additionalItems", "contains", "propertyNames", "additionalProperties")
_ONCE: Final = (
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "not",
    "if",
    "prefixItems",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
)


class Steps:
    """The steps of one validation.

    Args:
        most: how many it may have.
        exceeded: makes the error of more.
    """

    __slots__ = ("_exceeded", "left")

    def __init__(self, most: int, exceeded: Callable[[], Exception]) -> None:
        self.left = most
        self._exceeded = exceeded

    def spend(self, count: int) -> None:
        """Count steps.

        Raises:
            Exception: the given one, if they are too many.
        """
        self.left -= count
        if self.left < 0:
            raise self._exceeded()


_steps: ContextVar[Steps] = ContextVar("aioprod_validation_steps")


def first_error(validator: Any, data: Any, steps: Steps) -> ValidationError | None:
    """Return why data don't fit a schema; None if they do.

    Args:
        validator: of a class that :func:`limited` has made.
    """
    token = _steps.set(steps)
    try:
        return next(validator.iter_errors(data), None)
    finally:
        _steps.reset(token)


@lru_cache(maxsize=100)
def limited(draft: Any, linear: bool) -> Any:
    """Return jsonschema's class for a draft with keywords whose work is limited.

    Args:
        linear: whether patterns are matched in linear time; else by ``re``.
    """
    search = _search_linear if linear else _search_python
    replaced: dict[str, Keyword] = {
        "uniqueItems": _unique_items,
        "pattern": partial(_pattern, search),
        "patternProperties": partial(_pattern_properties, search),
        "additionalProperties": partial(_additional_properties, search),
    }
    if "unevaluatedProperties" in draft.VALIDATORS:
        replaced["unevaluatedProperties"] = partial(_unevaluated_properties, search)
    keywords = {
        name: replaced.get(name, keyword)
        for name, keyword in draft.VALIDATORS.items()
        if name != "format"
    }
    for names, cost in ((_BRANCHES, _of_branches), (_ITEMS, _of_items), (_ONCE, _of_one)):
        for name in names:
            if name in keywords:
                keywords[name] = partial(_counted, keywords[name], cost)
    keywords["properties"] = partial(_counted, keywords["properties"], _of_properties)
    extend: Any = validators.extend
    made = extend(draft, keywords)
    own = [(each.name, each.alias) for each in attrs.fields(made) if each.init]

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own one leaves these keywords behind at a schema that names its draft.
        schema = changes.setdefault("schema", self.schema)
        kind = made
        if isinstance(schema, dict) and "$schema" in schema:
            kind = limited(validators.validator_for(schema, default=draft), linear)
        for name, alias in own:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        return kind(**changes)

    made.evolve = evolve
    return made


# -- what a keyword costs --------------------------------------------------------------------------


def _counted(
    keyword: Keyword,
    cost: Callable[[Any, Any], int],
    validator: Any,
    value: Any,
    instance: Any,
    schema: Any,
) -> Any:
    _steps.get().spend(cost(value, instance))
    return keyword(validator, value, instance, schema)


def _of_branches(value: Any, instance: Any) -> int:
    return len(value) + 1


def _of_items(value: Any, instance: Any) -> int:
    return len(instance) + 1 if isinstance(instance, list | dict) else 1


def _of_properties(value: Any, instance: Any) -> int:
    return min(len(value), len(instance)) + 1 if isinstance(instance, dict) else 1


def _of_one(value: Any, instance: Any) -> int:
    return 1


# -- keywords --------------------------------------------------------------------------------------


def _search_linear(pattern: str, text: str) -> bool:
    return compiled(pattern).search(text, _steps.get().spend)


def _search_python(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def _pattern(
    search: Search, validator: Any, value: str, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not search(value, instance):
        yield ValidationError("the text does not match the pattern")


def _pattern_properties(
    search: Search, validator: Any, value: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, below in value.items():
        for name, each in instance.items():
            if search(pattern, name):
                yield from validator.descend(each, below, path=name, schema_path=pattern)


def _additional_properties(
    search: Search, validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, each in instance.items():
        if name in known or any(search(pattern, name) for pattern in patterns):
            continue
        if value is False:
            yield ValidationError("additional properties are not allowed")
        else:
            yield from validator.descend(each, value, path=name)


def _unique_items(
    validator: Any, value: bool, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if value and isinstance(instance, list):
        spend = _steps.get().spend
        spend(len(instance) // 4 + 1)
        if len({_canonical(each, spend) for each in instance}) < len(instance):
            yield ValidationError("the items are not unique")


def _canonical(value: Any, spend: Callable[[int], None]) -> str:
    """Return a text that equal values share. Texts: numbers can be chosen so that hashes of all of
    them are the same.
    """
    if isinstance(value, list):
        spend(len(value) // 4 + 1)
        return f"[{','.join(_canonical(each, spend) for each in value)}]"
    if isinstance(value, dict):
        spend(len(value) // 4 + 1)
        items = (f"{json.dumps(k)}:{_canonical(each, spend)}" for k, each in sorted(value.items()))
        return f"{{{','.join(items)}}}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _unevaluated_properties(
    search: Search, validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known = _evaluated(search, validator, instance, schema, own=True)
    for name, each in instance.items():
        if name not in known:
            if value is False:
                yield ValidationError("unevaluated properties are not allowed")
            else:
                yield from validator.descend(each, value, path=name)


def _evaluated(
    search: Search, validator: Any, instance: dict[str, Any], schema: Any, *, own: bool = False
) -> set[str]:
    """Return the names of the properties that a schema has looked at.

    Args:
        own: whether it is the schema of the keyword ``unevaluatedProperties`` itself.
    """
    if not isinstance(schema, dict):
        return set()
    _steps.get().spend(len(instance) + 1)
    others = "additionalProperties" in schema or (not own and "unevaluatedProperties" in schema)
    if others:  # those that don't fit are errors of that keyword
        return set(instance)
    found = set(schema.get("properties", ())) & set(instance)
    for pattern in schema.get("patternProperties", ()):
        found.update(name for name in instance if search(pattern, name))
    below = [each for name, each in schema.get("dependentSchemas", {}).items() if name in instance]
    for keyword in ("allOf", "anyOf", "oneOf"):
        below += [each for each in schema.get(keyword, ()) if _fits(validator, instance, each)]
    if "if" in schema:
        matches = _fits(validator, instance, schema["if"])
        below += [schema["if"]] if matches else []
        below.append(schema.get("then" if matches else "else", True))
    for each in below:
        found |= _evaluated(search, validator, instance, each)
    for referenced, resolver in _referenced(validator, schema):
        there = validator.evolve(schema=referenced, _resolver=resolver)
        found |= _evaluated(search, there, instance, referenced)
    return found


def _fits(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _referenced(validator: Any, schema: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    resolver = validator._resolver
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            found = resolver.lookup(schema[keyword])
            yield found.contents, found.resolver
    if "$recursiveRef" in schema:
        found = lookup_recursive_ref(resolver)
        yield found.contents, found.resolver
