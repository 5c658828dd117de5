"""Checks of the headers of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.errors import SerializationError
from aioprod.header_names import encode_name
from aioprod.types import Header, Headers


def check_headers(headers: Headers | Mapping[str, bytes | None]) -> tuple[Header, ...]:
    """Check the headers of a record, and copy them.

    Raises:
        SerializationError: if a header is not a pair of str, and bytes or None.
    """
    if not headers:
        return ()
    given: list[Any] | None = None
    if isinstance(headers, Mapping):
        given = list(headers.items())
    elif isinstance(headers, Iterable) and not isinstance(headers, str | bytes | bytearray):
        given = list(headers)
    if given is None:
        raise SerializationError(
            f"headers of type {_type_name(headers)}: must be a list of (name, value) pairs, or a "
            "mapping from names to values"
        )
    return tuple(_checked_header(header) for header in given)


def _check_text(name: str) -> None:
    try:
        encode_name(name)
    except UnicodeEncodeError as error:
        raise SerializationError(
            f"header {name!r}: UTF-8 can't encode its name ({error.reason})"
        ) from None


def _checked_header(header: Any) -> Header:
    try:
        name, value = header
    except (TypeError, ValueError):
        raise SerializationError(
            f"a header of type {_type_name(header)}: must be a (name, value) pair"
        ) from None
    if not isinstance(name, str):
        raise SerializationError(f"the name of a header must be str, not {_type_name(name)}")
    if not name.isascii():
        _check_text(name)
    if not (value is None or isinstance(value, bytes | bytearray | memoryview)):
        raise SerializationError(
            f"header {name!r}: its value must be bytes or None, not {_type_name(value)}"
            + ("; encode the text: value.encode()" if isinstance(value, str) else "")
        )
    return name, None if value is None else bytes(value)


def _type_name(data: object) -> str:
    return type(data).__name__
