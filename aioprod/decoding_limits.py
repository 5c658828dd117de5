"""Limits on what deserializers do for one record, and JSON that is read within them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Final

from aioprod.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits on what a deserializer does for one record.

    A record costs what its size lets expect, unless its writer means harm: a few bytes may stand
    for billions of values. A record beyond a limit is one that can't be read. Its
    DeserializationError names the limit.

    Args:
        max_depth: the maximum depth of nested objects, arrays, maps and records. Protobuf's own
            limit is 100 messages.
        max_empty_values: how many values of a record may take no bytes: nulls, records without
            fields and the like in an array of Avro.
        max_decimal_digits: the digits of a decimal of Avro.
        max_checks: how many schemas in a JSON Schema a record may be compared with, counted once
            for each value in it, besides 4 for each of its bytes.
        linear_patterns: match the patterns of a JSON Schema in a time that grows with the length of
            the text only. False: use Python's ``re``, which knows backreferences, and which some
            texts keep busy forever.

    Raises:
        ConfigError: if a limit is below 1.
    """

    max_depth: int = 100
    max_empty_values: int = 10_000
    max_decimal_digits: int = 1_000
    max_checks: int = 100_000
    linear_patterns: bool = True

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "linear_patterns":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"{each.name}={value!r}: must be a whole number of at least 1 (DecodingLimits)"
                )


class DecodingLimitError(ValueError):
    """A record exceeds a limit."""


DEFAULT_LIMITS: Final = DecodingLimits()

_ESCAPES: Final = re.compile(rb"\\.", re.DOTALL)
_TEXTS: Final = re.compile(rb'"[^"]*(?:"|\Z)')
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_PASSES: Final = 8
_SHORT: Final = 4_096
"""It is faster to count the brackets of so few bytes than to collect them."""
_PORTION: Final = 4_096
_REMEDY: Final = "give the deserializer limits=DecodingLimits({}=...) if such records are valid"
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def load_json(data: bytes | str, max_depth: int, what: str = "the data") -> Any:
    """Return what JSON stands for.

    Args:
        what: it is, for the error.

    Raises:
        ValueError: if it is not JSON, or nested deeper than ``max_depth``.
    """
    is_flat = (
        len(data) <= _SHORT
        and isinstance(data, bytes)
        and data.count(b"[") + data.count(b"{") <= max_depth
    )
    if not is_flat and _is_deeper(data, max_depth):
        raise (
            too_deep(max_depth)
            if what == "the data"
            else ValueError(f"{what} is nested deeper than {max_depth} levels")
        )
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError(f"{what}: nested too deep for Python, whose stack is full") from None


def _is_deeper(data: bytes | str, limit: int) -> bool:
    """Return whether JSON is nested deeper; the result for invalid JSON is arbitrary."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if (encoding := json.detect_encoding(data)) != "utf-8":
        data = data.decode(encoding, "replace").encode("utf-8", "surrogatepass")
    brackets = left = _brackets(data)
    for _ in range(min(_PASSES, limit // 2)):  # each takes away two levels at most
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if not shorter:
            return False
        if len(shorter) == len(left):
            break  # not JSON
        left = shorter
    here = 0
    for start in range(0, len(brackets), _PORTION):
        steps = map(_STEPS.__getitem__, brackets[start : start + _PORTION])
        levels = list(accumulate(steps, initial=here))
        here = levels[-1]
        if max(levels) > limit:
            return True
    return False


def _brackets(data: bytes) -> bytes:
    """Return the brackets of JSON, without those in texts."""
    if b"\\" in data:
        data = _ESCAPES.sub(b"", data)
    # A text without brackets is two quotation marks now. If these are the end of one text and the
    # begin of the next, the two become one: what is within texts stays the same.
    left = data.translate(None, _OTHERS).replace(b'""', b"")
    return _TEXTS.sub(b"", left) if b'"' in left else left


def too_deep(max_depth: int) -> DecodingLimitError:
    """Return the error of a record that is nested too deep."""
    return DecodingLimitError(
        f"the data is nested deeper than max_depth={max_depth}: {_REMEDY.format('max_depth')}"
    )


def beyond(what: str, limit: str, value: int) -> DecodingLimitError:
    """Return the error of a record that exceeds another limit."""
    return DecodingLimitError(
        f"the data has more {what} than {limit}={value}: {_REMEDY.format(limit)}"
    )
