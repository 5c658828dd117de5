"""Numbers of things in messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 record`` or ``2,000 records``.

    Args:
        count: the number.
        noun: in the singular; perhaps with an adjective before it.
    """
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
