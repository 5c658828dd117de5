"""The tokens of a JSON text as Jackson's parser reads them, which Spark uses.

A malformed text has tokens up to its error, and sometimes behind it: Spark keeps the fields that it
could read, so the place from which Jackson reads on after an error matters. Names and steps follow
Jackson's ``ReaderBasedJsonParser``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

MAX_DEPTH: Final = 1000
MAX_NUMBER_LENGTH: Final = 1000
MAX_NAME_LENGTH: Final = 50_000

_SPACE = " \t\n\r"
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = re.compile("[0-9]*")


class Token(Enum):
    """A kind of token; numbers and text have a value besides."""

    START_OBJECT = "{"
    END_OBJECT = "}"
    START_ARRAY = "["
    END_ARRAY = "]"
    FIELD_NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FRACTION = "fraction"
    TRUE = "true"
    FALSE = "false"
    NULL = "null"


class MalformedError(ValueError):
    """The text is not JSON, or exceeds a limit of Jackson."""


class _Context:
    """An object or array that is open; the outermost one is the text itself."""

    __slots__ = ("is_object", "name", "read")

    def __init__(self, is_object: bool | None) -> None:
        self.is_object = is_object
        self.name: str | None = None
        self.read = 0


class TokenReader:
    """Reads one token after the other."""

    def __init__(self, text: str, *, allow_non_numeric: bool) -> None:
        self._text = text
        self._place = 0
        self._allow_non_numeric = allow_non_numeric
        self._contexts = [_Context(None)]
        self._pending: Token | None = None  # the value of the field whose name was read
        self._unread_string = False
        self._value = ""
        self.token: Token | None = None

    @property
    def current_name(self) -> str | None:
        """The name of the field that the token belongs to; None in arrays."""
        opens = self.token in (Token.START_OBJECT, Token.START_ARRAY)
        return self._contexts[-2 if opens else -1].name

    def text(self) -> str:
        """Return the text of a string, a number or a literal."""
        if self._unread_string:
            self._unread_string = False
            self._value = self._read_string()
        return self._value

    def next(self) -> Token | None:
        """Read the next token; None at the end of the text, and after an error in a field's value.

        Raises:
            MalformedError: if the text is malformed here; reading may go on.
        """
        if self.token is Token.FIELD_NAME:
            self.token, self._pending = self._pending, None
            self._open(self.token)
            return self.token
        if self._unread_string:
            self._unread_string = False
            self._read_string()
        char = self._next_char()
        if char is None:
            if len(self._contexts) > 1:
                raise MalformedError("unexpected end")
            self.token = None
            return None
        if char in "]}":
            self.token = self._close(char)
            return self.token
        context = self._contexts[-1]
        context.read += 1
        if context.is_object is not None and context.read > 1:
            if char != ",":
                raise MalformedError("a comma is missing")
            char = self._required_char()
        if not context.is_object:
            self.token = self._value_token(char)
            self._open(self.token)
            return self.token
        if char != '"':
            raise MalformedError("a field's name is missing")
        context.name = self._read_string()
        if len(context.name) > MAX_NAME_LENGTH:
            raise MalformedError("a name is too long")
        self.token = Token.FIELD_NAME
        if self._required_char() != ":":
            raise MalformedError("a colon is missing")
        self._pending = self._value_token(self._required_char())
        return self.token

    def skip_children(self) -> None:
        """Skip to the end of the object or array if the token opens one."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                return
            if token in (Token.START_OBJECT, Token.START_ARRAY):
                depth += 1
            elif token in (Token.END_OBJECT, Token.END_ARRAY):
                depth -= 1

    def _open(self, token: Token | None) -> None:
        if token in (Token.START_OBJECT, Token.START_ARRAY):
            self._contexts.append(_Context(token is Token.START_OBJECT))
            if len(self._contexts) > MAX_DEPTH + 1:
                raise MalformedError("nested too deeply")

    def _close(self, char: str) -> Token:
        if self._contexts[-1].is_object is not (char == "}"):
            raise MalformedError("the closing mark does not match")
        self._contexts.pop()
        return Token(char)

    def _next_char(self) -> str | None:
        text, place = self._text, self._place
        while place < len(text) and text[place] in _SPACE:
            place += 1
        self._place = place + 1
        if place < len(text):
            if text[place] < " ":
                raise MalformedError("a control character")
            return text[place]
        self._place = place
        return None

    def _required_char(self) -> str:
        char = self._next_char()
        if char is None:
            raise MalformedError("unexpected end")
        return char

    def _value_token(self, char: str) -> Token:
        if char == '"':
            self._unread_string = True
            return Token.STRING
        if char in "{[":
            return Token(char)
        if char in "tfn":
            return self._literal({"t": Token.TRUE, "f": Token.FALSE, "n": Token.NULL}[char])
        if char in "-0123456789":
            return self._number(char)
        return self._odd_value(char)

    def _literal(self, token: Token) -> Token:
        self._match(token.value)
        self._value = token.value
        return token

    def _match(self, word: str) -> None:
        """Read the rest of a word whose first character was read."""
        for char in word[1:]:
            if self._place >= len(self._text) or self._text[self._place] != char:
                self._skip_word()
                raise MalformedError("not a token")
            self._place += 1
        after = self._text[self._place : self._place + 1]
        if after and after >= "0" and after not in "]}" and _in_word(after):
            self._skip_word()
            raise MalformedError("not a token")

    def _skip_word(self) -> None:
        read = 0
        while self._place < len(self._text) and _in_word(self._text[self._place]):
            self._place += 1
            read += 1
            if read >= 256:
                return

    def _number(self, first: str) -> Token:
        start = self._place - 1
        if first == "-":
            if not self._peek().isascii() or not self._peek().isdigit():
                return self._odd_number("-")
            first = self._peek()
            self._place += 1
        if first == "0" and self._peek().isascii() and self._peek().isdigit():
            raise MalformedError("a leading zero")
        self._digits()
        kind = Token.INTEGER
        whole_end = self._place
        if self._peek() == ".":
            self._place += 1
            kind = Token.FRACTION
            if not self._digits():
                raise self._unfinished(first, whole_end, "no digit after the point")
        if self._peek() in ("e", "E"):
            self._place += 1
            kind = Token.FRACTION
            if self._peek() in ("+", "-"):
                self._place += 1
            if not self._digits():
                raise self._unfinished(first, whole_end, "no digit in the exponent")
        self._value = self._text[start : self._place]
        if len(self._value.lstrip("-")) > MAX_NUMBER_LENGTH:
            raise MalformedError("a number is too long")
        return kind

    def _unfinished(self, first: str, whole_end: int, text: str) -> MalformedError:
        """Go to where Jackson reads on: it has read the character that is not a digit if the number
        begins with 0, and else only the one after the whole part.
        """
        self._place = self._place + 1 if first == "0" else whole_end + 1
        return MalformedError(text)

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _digits(self) -> int:
        found = _DIGITS.match(self._text, self._place)
        assert found is not None
        self._place = found.end()
        return found.end() - found.start()

    def _odd_value(self, char: str) -> Token:
        if char == "N":
            self._match("NaN")
            return self._non_numeric("NaN")
        if char == "I":
            self._match("Infinity")
            return self._non_numeric("Infinity")
        if char == "+":
            return self._odd_number("+")
        if _in_word(char) and not char.isdigit():
            self._skip_word()
        raise MalformedError("not a value")

    def _odd_number(self, sign: str) -> Token:
        if self._peek() != "I":
            self._place += 1
            raise MalformedError("not a number")
        self._place += 1
        word = "INF" if self._peek() == "N" else "Infinity"
        if self._peek() not in ("N", "n"):
            self._place += 1
            raise MalformedError("not a number")
        self._match(word)
        return self._non_numeric(f"{sign}Infinity")

    def _non_numeric(self, text: str) -> Token:
        if not self._allow_non_numeric:
            raise MalformedError(f"{text} is not allowed")
        self._value = text
        return Token.FRACTION

    def _read_string(self) -> str:
        """Read to the closing quote; a lone surrogate in an escape stays in the result."""
        parts: list[str] = []
        text = self._text
        while True:
            found = _PLAIN.match(text, self._place)
            assert found is not None
            parts.append(found[0])
            self._place = found.end() + 1
            char = text[found.end() : found.end() + 1]
            if char == '"':
                break
            if char != "\\":
                if not char:
                    self._place = len(text)
                raise MalformedError("a string has no end" if not char else "a control character")
            parts.append(self._escape())
        return "".join(parts)

    def _escape(self) -> str:
        char = self._peek()
        self._place = min(self._place + 1, len(self._text))
        if char == "u":
            code = 0
            for _ in range(4):
                digit = self._peek()
                self._place = min(self._place + 1, len(self._text))
                if not digit or digit not in "0123456789abcdefABCDEF":
                    raise MalformedError("not a hexadecimal digit")
                code = code * 16 + int(digit, 16)
            return chr(code)
        if char not in _ESCAPES:
            raise MalformedError("not an escape")
        return _ESCAPES[char]


def _in_word(char: str) -> bool:
    """Tell whether Java takes it for a part of an identifier."""
    return (
        char.isalnum() or char in "_$" or char < "\t" or "\x0e" <= char <= "\x1b" or char == "\x7f"
    )
