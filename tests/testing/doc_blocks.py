"""The Python blocks and tables of the documentation's pages."""

from __future__ import annotations

import re
from typing import Any


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_block(page: str, text: str, containing: str, bootstrap_servers: str = "") -> dict[str, Any]:
    """Run the block of a page that contains a text, with another broker's address."""
    (source,) = [block for block in python_blocks(text) if containing in block]
    namespace: dict[str, Any] = {"__name__": page}
    source = source.replace("localhost:9092", bootstrap_servers)
    exec(compile(source, f"{page} ({containing})", "exec"), namespace)
    return namespace


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, including heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
