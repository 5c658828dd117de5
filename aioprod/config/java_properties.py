"""Parses Java properties files in the format of ``java.util.Properties``, as Kafka's tools do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile("\r\n|\r|\n")
# A name: escapes of any character, and characters except blanks and separators.
_NAME = re.compile(r"(?:[^\\ \t\f=:]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*([=:]?)[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class PropertiesError(ValueError):
    """A line is invalid. The error text does not contain the line, as it may contain a password.

    Attributes:
        line: number of the line.
    """

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(fault)
        self.line = line


class Property(NamedTuple):
    """A property of a file.

    Attributes:
        line: number of its first line.
        name, value: the unescaped name and value.
        separator: ``=``, ``:``, or an empty string if there are only blanks or nothing between
            them.
    """

    line: int
    name: str
    value: str
    separator: str


def decode_properties(data: bytes) -> str:
    """Decode a file as UTF-8 if it is valid, else as ISO 8859-1, which Java uses for all files. So
    names and passwords in UTF-8 need no escapes here.

    Raises:
        PropertiesError: if it is UTF-16, which PowerShell writes on Windows.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PropertiesError(1, "the file is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> Iterator[Property]:
    """Yield the properties in a text in their order. If a name occurs several times, the last
    counts.

    Raises:
        PropertiesError: if an escape is invalid.
    """
    for number, line in _logical_lines(text):
        found = _NAME.match(line)
        assert found is not None  # it also matches an empty string
        separator = _SEPARATOR.match(line, found.end())
        assert separator is not None
        yield Property(
            number,
            _unescaped(found[0], number),
            _unescaped(line[separator.end() :], number),
            separator[1],
        )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines, each with the number of its first line. An unescaped backslash at
    the end of a line continues it on the next line, whose leading blanks are removed.
    """
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1]
            if not line:  # as in Java, the next line begins a new one, and may be a comment
                break
            line += next(lines, (0, ""))[1].lstrip(_BLANK)
        if line:
            yield number, line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    try:
        # An escape is a UTF-16 code unit: two of them may be one character.
        units = _ESCAPE.sub(lambda found: _character(found[1]), text)
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise PropertiesError(number, "\\uXXXX is half of a surrogate pair") from None
    except ValueError:
        raise PropertiesError(number, "\\u must be followed by four hexadecimal digits") from None


def _character(escape: str) -> str:
    if escape[0] != "u":
        return _ESCAPES.get(escape, escape)
    if len(escape) == 1:
        raise ValueError(escape)
    return chr(int(escape[1:], 16))
