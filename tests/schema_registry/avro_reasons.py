"""The reasons for which implementations of Avro differ. A difference is one of ``REASONS`` only if
the values stand for the same: a function here compares them.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import struct
import uuid
from typing import Any

from aioprod.schema_registry.avro_branches import Branch
from aioprod.schema_registry.avro_nodes import AvroNode
from tests.schema_registry.avro_judges import Error

REASONS: dict[str, str] = {
    "uuid-fixed": "fastavro has no uuid on a fixed (Avro 1.12): it has the bytes",
    "default-text": "fastavro returns defaults of bytes, fixed and UUIDs as the text of JSON",
    "float-rounded": "fastavro does not round an int that is read as a float to 32 bits",
    "writers-logical": "fastavro uses the writer's logical type, and none for defaults; "
    "the reader's counts, as in Java",
    "decimal-rounded": "fastavro rounds a decimal with more digits than its precision",
    "first-branch": "fastavro reads a union as the first branch that can be promoted; in Java and "
    "the standard the same type comes first",
    "fastavro-refuses": "fastavro refuses what Java reads as we do",
    "both-refuse": "fastavro reads what Java and we refuse",
    "names-of-records": "Java reads records of any name; in the standard and fastavro the names of "
    "two records must match, namespaces aside, or an alias",
    "full-names": "Java compares full names of enums and fixed; the standard and fastavro compare "
    "names without the namespace",
    "map-order": "a map has no order in Java",
    "unit": "Java reads a timestamp of another unit as if it had the reader's: it is wrong",
    "scale": "Java reads a decimal of another scale as if it had the reader's: it is wrong",
    "utf-8": "Java reads bytes that are no UTF-8 as a string; they can't be one in Python",
    "guessed-number": "fastavro writes an int as the first of float, double, int and long; here it "
    "is an int or long",
    "guessed-uuid": "fastavro writes any text as a UUID",
    "guessed-time": "fastavro writes a number as a time; here it is a number first",
    "guessed-array": "fastavro writes bytes as an array of numbers",
    "nan": "JSON has one NaN, Avro many",
    "guessed-decimal": "fastavro takes the first decimal, even if the digits do not fit it",
    "text-of-date": "fastavro fails if a text is compared with a date",
    "guessed-bytes": "fastavro writes bytes as a decimal; here they are bytes first",
    "not-finite": "Java's JSON has texts for numbers that are not finite, and does not read them",
    "short": "confluent-kafka reads no record of less than 6 bytes",
    "negative-zero": "Java's JSON has no sign of a float that is 0",
    "decimal-digits": "a column refuses a decimal with more digits than its precision",
    "empty-record": "Java's JSON has nothing for a record without fields",
}
"""The reasons for which two implementations differ, by the names that the comparison uses."""


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same: NaN is, and a number is not a boolean."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    kinds = (bool, int, float, str, bytes, datetime.datetime, datetime.date, decimal.Decimal)
    for kind in kinds:
        if isinstance(one, kind) != isinstance(other, kind):
            return False
    return bool(one == other)


def order_or_unit(node: AvroNode, ours: Any, theirs: Any) -> str | None:
    """Return why Java has other values of underlying types, whose unions name branches."""
    if same(ours, theirs):
        return "nan" if "nan" in repr(ours) else "map-order"
    if node.kind == "union" and isinstance(ours, Branch) and isinstance(theirs, Branch):
        if ours.place != theirs.place:
            return None
        return order_or_unit(node.branches[ours.place], ours.value, theirs.value)
    reasons = {
        order_or_unit(inner, one, two)
        for one, two, inner in _parts(node, ours, theirs)
        if not same(one, two)
    }
    if reasons:
        return next(iter(reasons)) if len(reasons) == 1 else _worst(reasons)
    if node.logical and isinstance(ours, int) and isinstance(theirs, int):
        factors = (1000, 1_000_000)
        scaled = any(theirs // each == ours or theirs * each == ours for each in factors)
        return "unit" if scaled else None
    if node.logical == "decimal":
        one, two = (int.from_bytes(each, "big", signed=True) for each in (ours, theirs))
        return "scale" if any(two * 10**n == one for n in range(1, 4)) else None
    return None


def _worst(reasons: set[str | None]) -> str | None:
    known = reasons - {"map-order", "nan"}
    return None if None in reasons or len(known) > 1 else next(iter(known), "map-order")


def _parts(node: AvroNode, ours: Any, theirs: Any) -> list[tuple[Any, Any, AvroNode]]:
    if node.kind == "array" and len(ours) == len(theirs):
        return [(one, two, node.item) for one, two in zip(ours, theirs, strict=True)]
    if node.kind == "map" and ours.keys() == theirs.keys():
        return [(ours[key], theirs[key], node.item) for key in ours]
    if node.kind == "record":
        return [(ours[each.name], theirs[each.name], each.node) for each in node.fields]
    return []


def guess_reason(node: AvroNode, ours: Any, theirs: Any) -> str | None:
    """Return why fastavro has guessed other branches of unions."""
    if same(ours, theirs):
        return None
    if node.kind == "union" and isinstance(ours, Branch) and isinstance(theirs, Branch):
        if ours.place == theirs.place:
            return guess_reason(node.branches[ours.place], ours.value, theirs.value)
        mine, its = (node.branches[each.place] for each in (ours, theirs))
        return _guess_of(mine, its)
    reasons = [
        guess_reason(inner, one, two)
        for one, two, inner in _parts(node, ours, theirs)
        if not same(one, two)
    ]
    unknown = [each for each in reasons if each not in REASONS]
    return (unknown or reasons or [None])[0]


def _guess_of(mine: AvroNode, its: AvroNode) -> str:
    if mine.kind in ("int", "long") and its.kind in ("float", "double"):
        return "guessed-number"
    if mine.logical is None and its.logical == "uuid":
        return "guessed-uuid"
    if mine.kind in ("int", "long") and its.logical is not None:
        return "guessed-time"
    if mine.kind in ("bytes", "fixed") and its.kind == "array":
        return "guessed-array"
    if mine.logical != "decimal" and its.logical == "decimal" and mine.kind in ("bytes", "fixed"):
        return "guessed-bytes"
    return f"guessed {mine} for {its}"


def representation(ours: Any, theirs: Any) -> str | None:
    """Return why fastavro has other values in a row; they stand for the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return None
        pairs = [(ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = list(zip(ours, theirs, strict=True))
    else:
        return _leaf_reason(ours, theirs)
    reasons = [representation(one, two) for one, two in pairs if not same(one, two)]
    unknown = [each for each in reasons if each not in REASONS]
    return (unknown or reasons or [None])[0]


def _leaf_reason(ours: Any, theirs: Any) -> str | None:
    if isinstance(ours, uuid.UUID) and theirs == ours.bytes:
        return "uuid-fixed"
    if isinstance(ours, uuid.UUID) and theirs == str(ours):
        return "default-text"
    if isinstance(theirs, str) and theirs.encode("latin-1", "replace") in _as_bytes(ours):
        return "default-text"
    if isinstance(ours, float) and isinstance(theirs, int | float) and _in_32_bits(theirs) == ours:
        return "float-rounded"
    if isinstance(theirs, uuid.UUID) and ours in (str(theirs), str(theirs).encode()):
        return "writers-logical"
    if isinstance(ours, decimal.Decimal) and isinstance(theirs, decimal.Decimal):
        if len(ours.as_tuple().digits) > len(theirs.as_tuple().digits):
            return "decimal-rounded"
        return None
    if isinstance(ours, str) and theirs == ours.encode():
        return "first-branch"
    if isinstance(ours, int) and isinstance(theirs, float) and ours == theirs:
        return "first-branch"
    numbers = _as_numbers(theirs)
    if isinstance(ours, float):
        numbers = {_in_32_bits(each) for each in numbers} | numbers
    if isinstance(theirs, int):  # of nanoseconds
        numbers |= {float(theirs // 1000), float(theirs // 1_000_000)}
    if _as_bytes(ours) & _as_bytes(theirs) or _as_numbers(ours) & numbers:
        return "writers-logical"
    return None


def _as_bytes(value: Any) -> set[bytes]:
    """Return the bytes that a value may be written as."""
    if isinstance(value, bytes):
        return {value}
    if isinstance(value, str):
        return {value.encode()}
    if isinstance(value, uuid.UUID):
        return {value.bytes}
    if isinstance(value, decimal.Decimal):
        number = int(value.scaleb(-int(value.as_tuple().exponent)))
        found = {
            number.to_bytes(size, "big", signed=True)
            for size in range((number.bit_length() + 8) // 8, 9)
        }
        return found | ({b""} if not number else set())
    return set()


def _as_numbers(value: Any) -> set[float]:
    """Return the numbers that a value may be written as."""
    if isinstance(value, bool):
        return set()
    if isinstance(value, int | float):
        return {float(value)}
    if isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
    elif isinstance(value, datetime.date):
        return {float(value.toordinal() - datetime.date(1970, 1, 1).toordinal())}
    elif isinstance(value, datetime.time):
        value = datetime.timedelta(
            hours=value.hour,
            minutes=value.minute,
            seconds=value.second,
            microseconds=value.microsecond,
        )
    else:
        return set()
    micros = value // datetime.timedelta(microseconds=1)
    return {float(micros), float(micros // 1000), float(micros * 1000)}


def json_reason(ours: Any, theirs: Any) -> str | None:
    """Return why Java has other JSON."""
    if "{}" in json.dumps(ours):
        return "empty-record"
    return "negative-zero" if ours == theirs else None


def error_reason(ours: Any, theirs: Any) -> str | None:
    """Return what an implementation has raised."""
    return str(theirs)


def column_reason(ours: Any, theirs: Any) -> str | None:
    """Return why a column has no value."""
    if isinstance(theirs, Error) and "Decimal type with precision" in theirs.text:
        return "decimal-digits"
    return None


def _in_32_bits(number: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found
