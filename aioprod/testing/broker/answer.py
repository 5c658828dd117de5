"""How an answer goes out: whole, as a rule, or as a test wants it."""

from __future__ import annotations

from typing import NamedTuple


class Pieces(NamedTuple):
    """An answer in parts that are sent one by one.

    Attributes:
        parts: the bytes, not always all of them.
        hang_up: close the connection afterwards.
    """

    parts: list[bytes]
    hang_up: bool


#: What goes out for a request; None for nothing.
Answer = bytes | Pieces | None
