"""JSON Schemas as documents: their drafts, and the targets of their references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

from jsonschema import validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from aioprod.schema_registry.schemas import Schema, load_schema

_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED: Final = (
    "properties",
    "patternProperties",
    "definitions",
    "$defs",
    "dependentSchemas",
    "dependencies",
)
_SINGLE: Final = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_LATER: Final = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "dependentRequired",
        "dependentSchemas",
        "maxContains",
        "minContains",
        "prefixItems",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords that draft 7 does not have."""
_SPECIFICATIONS: Final = {
    validators.Draft4Validator: DRAFT4,
    validators.Draft6Validator: DRAFT6,
    validators.Draft7Validator: DRAFT7,
    validators.Draft201909Validator: DRAFT201909,
    validators.Draft202012Validator: DRAFT202012,
}


class Document(NamedTuple):
    """A JSON Schema, with the schemas that it refers to.

    Attributes:
        content: the parsed JSON.
        draft: jsonschema's class for its draft.
        specification: ``referencing``'s class for its draft.
        known: the schemas that it refers to.
    """

    content: Any
    draft: Any
    specification: Any
    known: Registry[Any]

    @property
    def resolver(self) -> Any:
        """Finds the schemas that it refers to, within it and outside."""
        return self.known.resolver_with_root(self.specification.create_resource(self.content))


def document_of(schema: Schema, used: Mapping[str, Schema]) -> Document:
    """Return a schema as a document.

    Args:
        used: the schemas that it refers to, by the names of the references.

    Raises:
        ValueError: if a schema is not JSON.
    """
    content = load_schema(schema.text)
    draft = draft_of(content)
    specification = _SPECIFICATIONS.get(draft, DRAFT7)
    resources = {}
    for name, each in used.items():
        found = load_schema(each.text)
        default = _SPECIFICATIONS.get(draft_of(found), DRAFT7)
        resources[name] = Resource.from_contents(found, default_specification=default)
    bases = [specification.id_of(content) or "", *resources]
    bases += [each.id() or "" for each in resources.values()]
    known: dict[str, Any] = {}
    # A reference is named like the text of `$ref`, which is relative to the enclosing schema.
    for name, resource in resources.items():
        known |= {urljoin(base, name): resource for base in bases if base}
    known |= {own: each for each in resources.values() if (own := each.id())}
    known |= resources
    registry: Registry[Any] = Registry()
    # Without a function that retrieves schemas: only the schema registry is queried.
    return Document(content, draft, specification, registry.with_resources(known.items()))


def check_ends(document: Document) -> None:
    """Check that no schema refers to itself for the same value, as validation would not end.

    Raises:
        ValueError: if a schema does.
    """
    done: set[int] = set()
    for schema in subschemas(document.content):
        _follow(schema, document.resolver, [], done)


def _follow(schema: Any, resolver: Any, above: list[int], done: set[int]) -> None:
    if not isinstance(schema, dict) or id(schema) in done:
        return
    if id(schema) in above:
        raise ValueError("a schema in it refers to itself without end")
    above.append(id(schema))
    if "$ref" in schema:
        try:
            found = resolver.lookup(schema["$ref"])
        except (Unresolvable, AttributeError, TypeError, ValueError):
            pass  # an error of the records that use it
        else:
            _follow(found.contents, found.resolver, above, done)
    for each in (*schema.get("allOf", ()), schema.get("not"), schema.get("if")):
        _follow(each, resolver, above, done)
    done.add(above.pop())


def draft_of(content: Any) -> Any:
    """Return jsonschema's class for the draft of a schema.

    A schema without a draft is of draft 7, as for Confluent's Java client, unless it has keywords
    of later drafts, as pydantic's schemas do.
    """
    default: Any = validators.Draft7Validator
    if isinstance(content, dict) and "$schema" not in content:
        schemas = [each for each in subschemas(content) if isinstance(each, dict)]
        if any(_LATER & each.keys() for each in schemas):
            # A list of items is a tuple in drafts before 2019-09.
            older = any("$recursiveRef" in each or _has_tuple(each) for each in schemas)
            default = validators.Draft201909Validator if older else validators.Draft202012Validator
    return validators.validator_for(content, default=default)


def _has_tuple(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("items"), list)


def subschemas(content: Any) -> Iterator[Any]:
    """Return a schema and all schemas in it, without the schemas that it refers to."""
    stack = [content]
    while stack:
        schema = stack.pop()
        yield schema
        if not isinstance(schema, dict):
            continue
        for keyword in _LISTS:
            if isinstance(found := schema.get(keyword), list):
                stack += found
        for keyword in _NAMED:
            if isinstance(found := schema.get(keyword), dict):
                stack += found.values()
        stack += [
            schema[keyword] for keyword in _SINGLE if isinstance(schema.get(keyword), dict | bool)
        ]
