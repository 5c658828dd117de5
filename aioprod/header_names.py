"""Names of headers, which are bytes in Kafka and text here.

Most names are UTF-8. A byte that is not gets a surrogate, as in Python's file names
(``surrogateescape``), so a name that was read is sent as the same bytes. Columns of Arrow and Spark
can't have surrogates; there, a byte from 0x80 to 0xFF is a character from U+EF80 to U+EFFF, which
are for private use. Names that have such a character are written the same way, so that each text
stands for one name.
"""

from __future__ import annotations

import re
from typing import Final

_FIRST_SURROGATE: Final = 0xDC80
_FIRST_PRIVATE: Final = 0xEF80
_BYTES: Final = 0x80
_NEVER_IN_COLUMNS: Final = "[\udc80-\udcff\uef80-\uefff]"
_SURROGATES: Final = {_FIRST_PRIVATE + byte: _FIRST_SURROGATE + byte for byte in range(_BYTES)}

#: A pattern for the UTF-8 of the characters that stand for bytes in columns.
PRIVATE_IN_UTF8: Final = b"\xee[\xbe\xbf]"


def decode_name(name: bytes) -> str:
    """Return the text of a name."""
    return name.decode("utf-8", "surrogateescape")


def encode_name(name: str) -> bytes:
    """Return the bytes of a name, the opposite of `decode_name`.

    Raises:
        UnicodeEncodeError: if it has other surrogates.
    """
    return name.encode("utf-8", "surrogateescape")


def column_text(name: str) -> str:
    """Return the text of a name in a column of Arrow."""
    return re.sub(_NEVER_IN_COLUMNS, _private, name)


def name_in_column(text: str) -> str:
    """Return the name with this text in a column of Arrow, the opposite of `column_text`."""
    return decode_name(encode_name(text.translate(_SURROGATES)))


def _private(found: re.Match[str]) -> str:
    return "".join([chr(_FIRST_PRIVATE - _BYTES + byte) for byte in encode_name(found[0])])
