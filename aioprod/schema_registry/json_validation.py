"""Validation by JSON Schema within a limited number of steps.

jsonschema validates; some of its keywords are replaced. Keywords that lead to other schemas count
their steps, ``uniqueItems`` does not compare every pair of items, ``unevaluatedItems`` does not
search a list for each item, and patterns are matched in linear time. The errors of keywords do not
show the data, as jsonschema's do: each alternative that a large value does not fit has an error.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sized
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
# Keywords whose errors in jsonschema show the data.
_SHOWING: Final = ("items", "contains", "additionalItems")
_CHARACTERS_OF_A_STEP: Final = 64
_PARTS_OF_A_STEP: Final = 16
# Keywords that limit the size of a value of some type.
_SIZES: Final[Mapping[str, tuple[type[Sized], Callable[[int, int], bool]]]] = {
    "minItems": (list, operator.lt),
    "maxItems": (list, operator.gt),
    "minProperties": (dict, operator.lt),
    "maxProperties": (dict, operator.gt),
    "minLength": (str, operator.lt),
    "maxLength": (str, operator.gt),
}


class Steps:
    """The steps of one validation.

    Args:
        most: the maximum number of steps.
        exceeded: returns the error to raise when there are more.
    """

    __slots__ = ("_exceeded", "left")

    def __init__(self, most: int, exceeded: Callable[[], Exception]) -> None:
        self.left: int = most
        self._exceeded = exceeded

    def spend(self, count: int) -> None:
        """Count steps.

        Raises:
            Exception: the error that ``exceeded`` returns, if there are too many steps.
        """
        self.left -= count
        if self.left < 0:
            raise self._exceeded()


_steps: ContextVar[Steps] = ContextVar("aioprod_validation_steps")


def first_error(validator: Any, data: Any, steps: Steps) -> ValidationError | None:
    """Return why data does not fit a schema, or None if it fits.

    Args:
        validator: a validator of a class that :func:`limited` returned.
    """
    token = _steps.set(steps)
    try:
        return next(validator.iter_errors(data), None)
    finally:
        _steps.reset(token)


@lru_cache(maxsize=100)
def limited(draft: Any, linear: bool) -> Any:
    """Return jsonschema's class for a draft, with limits on the work of its keywords.

    Args:
        linear: whether patterns are matched in linear time; otherwise by ``re``.
    """
    search = _search_linear if linear else _search_python
    replaced: dict[str, Keyword] = {
        "uniqueItems": _unique_items,
        "pattern": partial(_pattern, search),
        "patternProperties": partial(_pattern_properties, search),
        "additionalProperties": partial(_additional_properties, search),
        "unevaluatedItems": _unevaluated_items,
        "anyOf": _any_of,
        "oneOf": _one_of,
        "not": _not,
        "enum": _enum,
        "const": _const,
        **{name: partial(_size, *limit) for name, limit in _SIZES.items()},
    }
    if draft.VALIDATORS["type"] is validators.Draft202012Validator.VALIDATORS["type"]:
        replaced["type"] = _type
    if "unevaluatedProperties" in draft.VALIDATORS:
        replaced["unevaluatedProperties"] = partial(_unevaluated_properties, search)
    keywords = {
        name: replaced.get(name, keyword)
        for name, keyword in draft.VALIDATORS.items()
        if name != "format"
    }
    for name in keywords.keys() & set(_SHOWING):
        keywords[name] = partial(_with_errors_counted, keywords[name])
    for names, cost in ((_BRANCHES, _of_branches), (_ITEMS, _of_items), (_ONCE, _of_one)):
        for name in names:
            if name in keywords:
                keywords[name] = partial(_counted, keywords[name], cost)
    keywords["properties"] = partial(_counted, keywords["properties"], _of_properties)
    extend: Any = validators.extend
    made = extend(draft, keywords)
    own = [(each.name, each.alias) for each in attrs.fields(made) if each.init]

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own method drops these keywords at a schema that names its draft.
        schema = changes.setdefault("schema", self.schema)
        kind = made
        if isinstance(schema, dict) and "$schema" in schema:
            kind = limited(validators.validator_for(schema, default=draft), linear)
        for name, alias in own:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        return kind(**changes)

    made.evolve = evolve
    _allow_nothing_if_false(made)
    return made


def _allow_nothing_if_false(made: Any) -> None:
    """Let a class report the schema false without the data, which jsonschema's error shows."""
    of_data, of_part = made.iter_errors, made.descend

    def iter_errors(self: Any, instance: Any, _schema: Any = None) -> Iterator[ValidationError]:
        is_false = _schema is False or (_schema is None and self.schema is False)
        found: Iterator[ValidationError] = of_data(self, instance, _schema)
        return iter((_not_allowed(),)) if is_false else found

    def descend(
        self: Any, instance: Any, schema: Any, *path: Any, **paths: Any
    ) -> Iterator[ValidationError]:
        found: Iterator[ValidationError] = of_part(self, instance, schema, *path, **paths)
        return iter((_not_allowed(),)) if schema is False else found

    made.iter_errors, made.descend = iter_errors, descend


def _not_allowed() -> ValidationError:
    none: Any = None  # as jsonschema has it for this schema
    return ValidationError("no data is allowed", validator=none, validator_value=None, schema=False)


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


def _with_errors_counted(
    keyword: Keyword, validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    for error in keyword(validator, value, instance, schema) or ():
        _steps.get().spend(len(error.message) // _CHARACTERS_OF_A_STEP + 1)
        yield error


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


def _type(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    names = (value,) if isinstance(value, str) else value
    if not any(validator.is_type(instance, name) for name in names):
        yield ValidationError("the data has another type")


def _size(
    kind: type[Sized],
    wrong: Callable[[int, int], bool],
    validator: Any,
    value: Any,
    instance: Any,
    schema: Any,
) -> Iterator[ValidationError]:
    if isinstance(instance, kind) and wrong(len(instance), value):
        yield ValidationError("the data has another size")


def _enum(
    validator: Any, value: list[Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    _steps.get().spend(len(value) // _PARTS_OF_A_STEP + 1)
    if isinstance(instance, str):
        found = instance in value
    else:
        found = any(_equal(each, instance) for each in value)
    if not found:
        yield ValidationError("the data is not one of the values")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not _equal(value, instance):
        yield ValidationError("the data is another value")


def _equal(one: Any, other: Any) -> bool:
    """Return whether values of JSON are equal. True is not 1, which is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        _steps.get().spend(min(len(one), len(other)) // _PARTS_OF_A_STEP + 1)
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        _steps.get().spend(min(len(one), len(other)) // _PARTS_OF_A_STEP + 1)
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(one == other)


def _any_of(
    validator: Any, value: list[Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not any(_fits(validator, instance, each) for each in value):
        yield ValidationError("the data fits none of the schemas")


def _one_of(
    validator: Any, value: list[Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if sum(_fits(validator, instance, each) for each in value) != 1:
        yield ValidationError("the data fits none or several of the schemas")


def _not(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if _fits(validator, instance, value):
        yield ValidationError("the data fits the schema")


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
    """Return a string that equal values share. A string, because numbers can be chosen so that all
    their hashes are equal.
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


def _unevaluated_items(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    # These are the items that the keyword itself accepts, too.
    if len(_evaluated_items(validator, instance, schema)) < len(instance):
        yield ValidationError("unevaluated items are not allowed")


def _evaluated_items(validator: Any, instance: list[Any], schema: Any) -> set[int]:
    """Return the indexes of the items that a schema has evaluated."""
    if not isinstance(schema, dict):
        return set()
    everything = range(len(instance))
    spend = _steps.get().spend
    spend(len(instance) // 4 + 1)
    found: set[int] = set()
    if "items" in schema:
        if not isinstance(schema["items"], list) or "additionalItems" in schema:
            return set(everything)
        found.update(everything[: len(schema["items"])])
    if "prefixItems" in validator.VALIDATORS:
        found.update(everything[: len(schema.get("prefixItems", ()))])
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            spend(len(instance) + 1)
            found.update(n for n in everything if _fits(validator, instance[n], schema[keyword]))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(keyword, ()):
            if _fits(validator, instance, each):
                found |= _evaluated_items(validator, instance, each)
    if "if" in schema:
        matches = _fits(validator, instance, schema["if"])
        below = [schema["if"], schema.get("then")] if matches else [schema.get("else")]
        for each in below:
            found |= _evaluated_items(validator, instance, each)
    for referenced, resolver in _referenced(validator, schema):
        there = validator.evolve(schema=referenced, _resolver=resolver)
        found |= _evaluated_items(there, instance, referenced)
    return found


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
    """Return the names of the properties that a schema has evaluated.

    Args:
        own: whether it is the schema of the keyword ``unevaluatedProperties`` itself.
    """
    if not isinstance(schema, dict):
        return set()
    _steps.get().spend(len(instance) + 1)
    others = "additionalProperties" in schema or (not own and "unevaluatedProperties" in schema)
    if others:  # that keyword reports those that don't fit
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
