"""Python code for one field of a message."""

from __future__ import annotations

import re

from aioprod._tools.schema import Field, SchemaError

_METHODS = {"bool": "boolean", "bytes": "bytes_"}
_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "uuid.UUID",
    "string": "str",
    "bytes": "bytes",
    "records": "BytesLike",
}
_ZEROS = {
    "bool": "False",
    "float64": "0.0",
    "uuid": "ZERO_UUID",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
}


def snake_case(name: str) -> str:
    """Return a name in the style of Python's variables."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def annotation(field: Field) -> str:
    """Return the type."""
    name = field.type if field.is_struct else _PYTHON_TYPES.get(field.type, "int")
    if field.is_array:
        name = f"list[{name}]"
    return name if field.nullable_from is None else f"{name} | None"


def default_value(field: Field) -> str:
    """Return the default, as an expression that creates a new object.

    Raises:
        SchemaError: if the default is null and the field is not nullable.
    """
    if field.default == "null" or (field.type == "records" and field.nullable_from is not None):
        if field.nullable_from is None:
            raise SchemaError(f"{field.name} is never null, but its default is")
        return "None"
    if field.is_array:
        return "[]"
    if field.is_struct:
        return f"{field.type}()"
    if field.type == "bool" and field.default:
        return field.default.capitalize()
    return field.default or _ZEROS.get(field.type, "0")


def parameter(field: Field) -> str:
    """Return the parameter of the constructor."""
    default = "UNSET" if _is_made(field) else default_value(field)
    return f"{field.name}: {annotation(field)} = {default}"


def assignment(field: Field) -> str:
    """Return the constructor's statement that assigns the parameter to the attribute."""
    value = field.name
    if _is_made(field):
        value = f"{default_value(field)} if {value} is UNSET else {value}"
    # Annotated, as the types are public to `pyright --verifytypes`. It costs nothing at run time.
    return f"self.{field.name}: {annotation(field)} = {value}"


def _is_made(field: Field) -> bool:
    """Return whether each object needs a new default value."""
    return default_value(field) == "[]" or default_value(field).endswith("()")


def is_set(field: Field) -> str:
    """Return a condition that is true if the field's value is not its default."""
    value, default = f"self.{field.name}", default_value(field)
    if default == "None":
        return f"{value} is not None"
    if default == "False" or (default == "[]" and field.nullable_from is None):
        return value
    if default == "ZERO_UUID":
        return f"{value}.int"  # to compare two UUIDs runs Python code
    return f"not {value}" if default == "True" else f"{value} != {default}"


def method(field: Field, compact: bool, nullable: bool, *, reading: bool = False) -> str:
    """Return the method of Writer or Reader for one value."""
    if field.type not in ("string", "bytes", "records"):
        return _METHODS.get(field.type, field.type)
    kind = "bytes" if field.type == "records" and not reading else field.type
    name = f"{'compact_' if compact else ''}{'nullable_' if nullable else ''}{kind}"
    return "bytes_" if name == "bytes" else name
