"""Arrow types for Protobuf's types. Imports pyarrow, which is optional: import this lazily.

A message is a struct. A field with presence (a message, an ``optional`` field, or a member of a
``oneof``) is null if it is not set; all other fields then have their default.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor

from aioprod.schema_registry.columns import count_types

Convert = Callable[[Any], Any]

_NUMBERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    _PACKAGE + f"{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


class ProtobufType(NamedTuple):
    """A type.

    Attributes:
        arrow: the type of its column.
        read: converts a message's value for Arrow; None if they are the same.
        write: converts Arrow's value for the constructor of a message.
    """

    arrow: pa.DataType
    read: Convert | None = None
    write: Convert | None = None


class _Around(NamedTuple):
    """The surroundings of a type.

    Attributes:
        path: the path of the field.
        above: the enclosing messages.
        types: counts all types.
    """

    path: str
    above: tuple[str, ...]
    types: Iterator[None]


def message_type(descriptor: Any) -> ProtobufType:
    """Return the column type of a message.

    Raises:
        ValueError: if a type contains itself, or there are too many types.
    """
    return _message(descriptor, _Around("", (), count_types()))


def _message(descriptor: Any, around: _Around) -> ProtobufType:
    next(around.types)
    name = descriptor.full_name
    if name == _PACKAGE + "Timestamp":
        return ProtobufType(pa.timestamp("us", "UTC"), _read_time, _write_time)
    if name == _PACKAGE + "Duration":
        return ProtobufType(pa.duration("us"), _read_duration, _write_duration)
    if name in _WRAPPERS:
        inner = _single(descriptor.fields_by_name["value"], around)
        return ProtobufType(
            inner.arrow, lambda message: message.value, lambda value: {"value": value}
        )
    if name in around.above:
        raise ValueError(
            f"{_at(around.path)}{name} contains itself, which is impossible in a column"
        )
    fields = {
        field.name: _field(
            field,
            _Around(
                f"{around.path}.{field.name}" if around.path else field.name,
                (*around.above, name),
                around.types,
            ),
        )
        for field in descriptor.fields
    }
    kind = pa.struct([(each, found.arrow) for each, found in fields.items()])
    present = {field.name for field in descriptor.fields if field.has_presence}
    return ProtobufType(kind, _reading(fields, present), _writing(fields, descriptor))


def _field(field: Any, around: _Around) -> ProtobufType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (
            _single(field.message_type.fields_by_name[name], around) for name in ("key", "value")
        )
        return ProtobufType(
            pa.map_(key.arrow, value.arrow),
            lambda items: [(name, _converted(value.read, each)) for name, each in items.items()],
            lambda items: {name: _converted(value.write, each) for name, each in items.items()},
        )
    found = _single(field, around)
    if not field.is_repeated:
        return found
    return ProtobufType(
        pa.list_(found.arrow),
        lambda items: [_converted(found.read, each) for each in items],
        lambda items: [_converted(found.write, each) for each in items],
    )


def _single(field: Any, around: _Around) -> ProtobufType:
    if field.message_type is not None:
        return _message(field.message_type, around)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        return ProtobufType(pa.binary() if is_bytes else pa.string())
    return ProtobufType(_NUMBERS[field.cpp_type])


def _enum(enum: Any) -> ProtobufType:
    names = {number: each.name for number, each in enum.values_by_number.items()}
    numbers = {name: each.number for name, each in enum.values_by_name.items()}

    def write(name: str) -> int:
        if name in numbers:
            return int(numbers[name])
        try:
            return int(name)  # a number that the schema does not name
        except ValueError:
            raise ValueError(f"{name!r} is not a name of the enum {enum.full_name}") from None

    return ProtobufType(pa.string(), lambda number: names.get(number, str(number)), write)


def _reading(fields: dict[str, ProtobufType], present: set[str]) -> Convert:
    plan = [(name, found.read, name in present) for name, found in fields.items()]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None
            if knows and not message.HasField(name)
            else _converted(convert, getattr(message, name))
            for name, convert, knows in plan
        }

    return read


def _writing(fields: dict[str, ProtobufType], descriptor: Any) -> Convert:
    choices = [
        (choice.name, [each.name for each in choice.fields])
        for choice in descriptor.oneofs
        if len(choice.fields) > 1
    ]

    def write(given: dict[str, Any]) -> dict[str, Any]:
        for choice, names in choices:
            chosen = [name for name in names if given.get(name) is not None]
            if len(chosen) > 1:
                raise ValueError(f"{' and '.join(chosen)} of oneof {choice} are set")
        found = {}
        for name, value in given.items():
            if value is not None:
                if name not in fields:
                    raise ValueError(f"{descriptor.full_name} has no field {name!r}")
                found[name] = _converted(fields[name].write, value)
        return found

    return write


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _read_time(message: Any) -> int:
    return int(message.seconds) * 1_000_000 + int(message.nanos) // 1_000


def _write_time(value: datetime.datetime) -> dict[str, int]:
    if value.tzinfo is None:
        raise ValueError("a timestamp has no time zone")
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    return {"seconds": seconds, "nanos": micros * 1_000}


def _read_duration(message: Any) -> int:
    return int(message.seconds) * 1_000_000 + int(message.nanos / 1_000)


def _write_duration(value: datetime.timedelta) -> dict[str, int]:
    micros = value // _MICROSECOND
    sign = -1 if micros < 0 else 1
    seconds, rest = divmod(abs(micros), 1_000_000)
    return {"seconds": sign * seconds, "nanos": sign * rest * 1_000}


def _at(path: str) -> str:
    return f"{path}: " if path else ""
