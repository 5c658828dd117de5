"""Writes Python values as Avro's types that contain no other types; and errors of writing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from operator import index
from typing import Any, Final, TypeAlias

from aioprod.schema_registry.avro_branches import fits
from aioprod.schema_registry.avro_logical import EXPECTED, to_underlying
from aioprod.schema_registry.avro_nodes import AvroNode
from aioprod.schema_registry.model_fields import symbol_of
from aioprod.varints import append_varint

Write: TypeAlias = Callable[[bytearray, Any], None]

_SMALL: Final = 64
_FLOAT: Final = struct.Struct("<f").pack
_FLOAT_OF: Final = struct.Struct("<f").unpack
_DOUBLE: Final = struct.Struct("<d").pack
_PYTHON: Final[Mapping[str, str]] = {
    "null": "None",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "bytes": "bytes",
    "string": "str",
    "fixed": "bytes",
    "enum": "str",
    "array": "list",
    "map": "dict with strings as keys",
    "record": "dict or model",
}


class Misfit(Exception):
    """Base class of the errors. They collect the names of the fields around the value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: str = ""

    def below(self, name: str) -> None:
        """Prepend the name of a field, or an index."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{name}{joint}{self.path}"

    def __str__(self) -> str:
        return f"{self.path}: {self.args[0]}" if self.path else str(self.args[0])


class AvroTypeError(Misfit, TypeError):
    """A value has a type that its field does not accept."""


class AvroValueError(Misfit, ValueError):
    """A value has the right type, but is out of range or malformed."""


def wrong(node: AvroNode, value: Any) -> AvroTypeError:
    """Return the error for a value of a type that its field does not accept."""
    kind = type(value)
    given = "None, and the type allows no null" if value is None else kind.__qualname__
    if node.logical is None:
        return AvroTypeError(f"expected {node} ({_PYTHON[node.kind]}), got {given}")
    expected = EXPECTED.get(node.logical)
    kinds = f"{expected} or {_PYTHON[node.kind]}" if expected else _PYTHON[node.kind]
    return AvroTypeError(f"expected {node} ({kinds}), got {given}")


def leaf_writer(node: AvroNode) -> Write:
    """Return a function that writes values of a type that contains no other types."""
    write = _LEAVES[node.kind](node)
    return write if node.logical is None else _logical(node, write)


def _logical(node: AvroNode, write: Write) -> Write:
    def converted(out: bytearray, value: Any) -> None:
        try:
            value = to_underlying(node, value)
        except TypeError as error:
            raise AvroTypeError(f"{node}: {error}") from None
        except (ValueError, OverflowError) as error:
            raise AvroValueError(str(error)) from None
        write(out, value)

    return converted


def _null(node: AvroNode) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is not None:
            raise wrong(node, value)

    return write


def _boolean(node: AvroNode) -> Write:
    def write(out: bytearray, value: Any) -> None:
        # A numpy boolean is not a bool.
        if not isinstance(value, bool) and getattr(value, "dtype", None) != "bool":
            raise wrong(node, value)
        out.append(1 if value else 0)

    return write


def _integer(node: AvroNode) -> Write:
    bits = 32 if node.kind == "int" else 64

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not int:
            if isinstance(value, bool):
                raise wrong(node, value)
            try:
                value = index(value)
            except TypeError:
                raise wrong(node, value) from None
        if -_SMALL <= value < _SMALL:
            out.append((value << 1) ^ (value >> 63))
            return
        if not fits(node, value):
            raise AvroValueError(f"expected {node}, got a number of more than {bits} bits")
        append_varint(out, value)

    return write


def _number(node: AvroNode) -> Write:
    pack = _FLOAT if node.kind == "float" else _DOUBLE

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not float:
            value = _as_float(node, value)
        try:
            out += pack(value)
        except OverflowError:
            raise AvroValueError(f"expected {node}, got a number that is too large") from None

    return write


def _rounded(value: float) -> float:
    try:
        found: float = _FLOAT_OF(_FLOAT(value))[0]
    except OverflowError:
        return value  # refused by the writer
    return found


def _as_float(node: AvroNode, value: Any) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        if hasattr(value, "dtype") and hasattr(value, "__float__"):
            return float(value)
        raise wrong(node, value)
    try:
        found = float(value)
    except OverflowError:
        raise AvroValueError(f"expected {node}, got a number that is too large") from None
    if found != value or (node.kind == "float" and _rounded(found) != value):
        raise AvroValueError(f"expected {node}, got an int with too many digits for it")
    return found


def _bytes(node: AvroNode) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong(node, value)
        data = bytes(value)
        append_varint(out, len(data))
        out += data

    return write


def _fixed(node: AvroNode) -> Write:
    size = node.size

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wrong(node, value)
        data = bytes(value)
        if len(data) != size:
            raise AvroValueError(f"expected {node} of {size} bytes, got {len(data)}")
        out += data

    return write


def _string(node: AvroNode) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if type(value) is not str:
            if isinstance(value, Enum):
                value = symbol_of(value)
            elif not isinstance(value, str):
                raise wrong(node, value)
        try:
            data = value.encode()
        except UnicodeEncodeError as error:
            raise AvroValueError(f"expected {node}: {error.reason}") from None
        if (size := len(data)) < _SMALL:
            out.append(size << 1)
        else:
            append_varint(out, size)
        out += data

    return write


def _symbol(node: AvroNode) -> Write:
    symbols = {symbol: long_bytes(place) for place, symbol in enumerate(node.symbols)}

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, Enum):
            value = symbol_of(value)
        elif not isinstance(value, str):
            raise wrong(node, value)
        found = symbols.get(value)
        if found is None:
            raise AvroValueError(f"expected {node}, got a string that is not one of its symbols")
        out += found

    return write


def long_bytes(number: int) -> bytes:
    """Return the varint of a number."""
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


_LEAVES: Final[Mapping[str, Callable[[AvroNode], Write]]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _number,
    "double": _number,
    "bytes": _bytes,
    "fixed": _fixed,
    "string": _string,
    "enum": _symbol,
}
