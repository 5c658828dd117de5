"""Parses the regular expressions of JSON Schema: ECMA-262's, with the additions of Java and Python
that determine which texts match.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]

_MOST_NESTED: Final = 100
_LAST: Final = 0x10FFFF
_DIGITS: Final[Ranges] = ((0x30, 0x39),)
_WORDS: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_BLANKS: Final[Ranges] = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_ENDS: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": _BLANKS}
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0, "a": 7, "e": 27}
_CATEGORIES: Final = {
    "Letter": "L",
    "Alphabetic": "L",
    "Lowercase_Letter": "Ll",
    "Lowercase": "Ll",
    "Uppercase_Letter": "Lu",
    "Uppercase": "Lu",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Punctuation": "P",
    "punct": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Other": "C",
    "Control": "Cc",
}


class UnsupportedPatternError(ValueError):
    """A pattern is malformed, or can't be matched in linear time."""


@dataclass(frozen=True, slots=True)
class Chars:
    """A set of characters.

    Attributes:
        ranges: of code points.
        categories: of Unicode, such as "L" or "Lu"; a leading "^" means all other ones.
        negated: whether it is the complement.
        ignores_case: whether a letter stands for both cases.
    """

    ranges: Ranges = ()
    categories: tuple[str, ...] = ()
    negated: bool = False
    ignores_case: bool = False

    def __contains__(self, char: str) -> bool:
        forms = {char, *_other_cases(char)} if self.ignores_case else (char,)
        return any(map(self._has, forms)) != self.negated

    def _has(self, char: str) -> bool:
        number = ord(char)
        if any(low <= number <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        category = unicodedata.category(char)
        return any(
            not category.startswith(each[1:]) if each[0] == "^" else category.startswith(each)
            for each in self.categories
        )


@dataclass(frozen=True, slots=True)
class Sequence:
    """Nodes in sequence."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several nodes."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeated node; ``most`` is None without a limit."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A condition on the place: "start", "end", "line start", "line end", "word edge"."""

    kind: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on the text after a place, or before it."""

    part: Node
    behind: bool
    negated: bool


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Place | Look


def parse_pattern(pattern: str) -> Node:
    """Parse a pattern.

    Raises:
        UnsupportedPatternError: if it is malformed, or has backreferences or similar features.
    """
    return _Parser(pattern).whole()


def _other_cases(char: str) -> tuple[str, ...]:
    return tuple(each for each in (char.lower(), char.upper()) if len(each) == 1)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._place = 0
        self._nested = 0
        self._flags = ""

    def whole(self) -> Node:
        found = self._choice()
        if self._place < len(self._text):
            raise self._wrong("an unexpected ')'")
        return found

    def _choice(self) -> Node:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise self._wrong(f"groups nested more than {_MOST_NESTED} deep")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._nested -= 1
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._place < len(self._text) and self._text[self._place] not in "|)":
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(sign):
                found = Repeat(part, least, most)
                break
        else:
            counts = self._counts()
            if counts is None:
                return part
            found = Repeat(part, *counts)
        if self._take("+"):
            raise self._wrong("a possessive quantifier")
        self._take("?")
        if self._text[self._place : self._place + 1] in ("*", "+", "?") and self._place < len(
            self._text
        ):
            raise self._wrong("nothing to repeat")
        return found

    def _counts(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._place)
        if not self._text.startswith("{", self._place) or end < 0:
            return None
        least, comma, most = self._text[self._place + 1 : end].partition(",")
        if not _is_count(least) or (most and not _is_count(most)):
            return None  # a literal brace
        self._place = end + 1
        counts = int(least), (int(most) if most else None) if comma else int(least)
        if counts[1] is not None and counts[1] < counts[0]:
            raise self._wrong("counts in the wrong order")
        return counts

    def _atom(self) -> Node | None:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return self._chars(() if "s" in self._flags else _LINE_ENDS, negated=True)
        if char == "^":
            return Place("line start" if "m" in self._flags else "start")
        if char == "$":
            return Place("line end" if "m" in self._flags else "end")
        if char in "*+?":
            raise self._wrong("nothing to repeat")
        return self._escape() if char == "\\" else self._chars(_one(ord(char)))

    def _group(self) -> Node | None:
        flags = self._flags
        make: Callable[[Node], Node] | None = None
        if self._take("?"):
            for sign, behind, negated in (
                ("=", False, False),
                ("!", False, True),
                ("<=", True, False),
                ("<!", True, True),
            ):
                if self._take(sign):
                    make = _look(behind, negated)
                    break
            else:
                if not (self._take(":") or self._name()) and self._new_flags():
                    return None  # for the rest of the enclosing group
        found = self._choice()
        if not self._take(")"):
            raise self._wrong("a missing ')'")
        self._flags = flags
        return found if make is None else make(found)

    def _name(self) -> bool:
        if not (self._take("P<") or self._take("<")):
            return False
        end = self._text.find(">", self._place)
        if end <= self._place:
            raise self._wrong("a group without a name")
        self._place = end + 1
        return True

    def _new_flags(self) -> bool:
        """Read ``(?i)``, or ``(?i:`` of a group; return whether it is the former."""
        start = self._place
        while self._text[self._place : self._place + 1] in tuple("imsu"):
            self._place += 1
        flags = self._text[start : self._place]
        if not flags or not (self._take(")") or self._text.startswith(":", self._place)):
            raise self._wrong("an unknown kind of group")
        self._flags += flags
        return not self._take(":")

    def _chars(self, ranges: Ranges, *, negated: bool = False) -> Chars:
        return Chars(ranges, negated=negated, ignores_case="i" in self._flags and not negated)

    def _escape(self) -> Node:
        char = self._next()
        if char in "bB":
            return Place("word edge", negated=char == "B")
        if char in "AzZ":
            return Place("start" if char == "A" else "end")
        if char in "123456789kg":
            raise self._wrong("a backreference")
        found = self._class_escape(char)
        return found if isinstance(found, Chars) else self._chars(_one(found))

    def _class_escape(self, char: str) -> Chars | int:
        if char.lower() in _CLASSES:
            return Chars(_CLASSES[char.lower()], negated=char.isupper())
        if char in "pP":
            return self._property(negated=char == "P")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "c":
            return ord(self._next()) % 32
        if char == "x":
            return self._number(2)
        if char == "u":
            return self._unicode()
        if char.isascii() and char.isalnum():
            raise self._wrong(f"the unknown escape \\{char}")
        return ord(char)

    def _unicode(self) -> int:
        if self._take("{"):
            return self._number(self._text.find("}", self._place) - self._place, "}")
        found = self._number(4)
        if 0xD800 <= found < 0xDC00 and self._take("\\u"):
            low = self._number(4)
            found = 0x10000 + ((found - 0xD800) << 10) + (low - 0xDC00)
        return found

    def _number(self, length: int, end: str = "") -> int:
        text = self._text[self._place : self._place + max(0, length)]
        self._place += len(text)
        try:
            found = int(text, 16)
        except ValueError:
            raise self._wrong("an invalid number of a character") from None
        if found > _LAST or (end and not self._take(end)):
            raise self._wrong("an invalid number of a character")
        return found

    def _property(self, *, negated: bool) -> Chars:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._place)
            name, self._place = self._text[self._place : end], end + 1
            if end < 0:
                raise self._wrong("an unterminated property")
        _, _, value = name.rpartition("=")
        category = _CATEGORIES.get(value.removeprefix("Is"), value)
        if not (1 <= len(category) <= 2 and category[0] in "LMNPSZC"):
            raise self._wrong(f"the property {name!r} of characters")
        return Chars(categories=(category,), negated=negated)

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        categories: list[str] = []
        first = True
        while first or not self._take("]"):
            # An empty class matches nothing in ECMA-262; to Python a first "]" is a character.
            if first and self._take("]"):
                break
            first = False
            low = self._member()
            if self._text.startswith("-", self._place) and not self._text.startswith(
                "-]", self._place
            ):
                self._place += 1
                high = self._member()
                if isinstance(low, Chars) or isinstance(high, Chars) or high < low:
                    raise self._wrong("a range in the wrong order")
                ranges.append((low, high))
            elif isinstance(low, Chars):
                ranges += _negated(low.ranges) if low.negated and low.ranges else low.ranges
                categories += [f"^{each}" if low.negated else each for each in low.categories]
            else:
                ranges.append((low, low))
        ignores_case = "i" in self._flags
        return Chars(tuple(ranges), tuple(categories), negated, ignores_case)

    def _member(self) -> Chars | int:
        char = self._next()
        if char != "\\":
            return ord(char)
        char = self._next()
        return 8 if char == "b" else self._class_escape(char)

    def _next(self) -> str:
        if self._place >= len(self._text):
            raise self._wrong("an unexpected end")
        self._place += 1
        return self._text[self._place - 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._place):
            return False
        self._place += len(sign)
        return True

    def _wrong(self, what: str) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"{what} at character {self._place}")


def _one(number: int) -> Ranges:
    return ((number, number),)


def _look(behind: bool, negated: bool) -> Callable[[Node], Node]:
    return lambda part: Look(part, behind, negated)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 8


def _negated(ranges: Ranges) -> Ranges:
    found = []
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, _LAST))
