"""The Python blocks and tables of the documentation's pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aioprod

#: What the quickstart says to write on Windows.
WITHOUT_UVLOOP = "import asyncio as uvloop"
DOCS = Path(aioprod.__file__).parents[1] / "docs"


def python_blocks(text: str) -> list[str]:
    if sys.platform == "win32":
        text = text.replace("import uvloop", WITHOUT_UVLOOP)
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_block(page: str, text: str, containing: str, bootstrap_servers: str = "") -> dict[str, Any]:
    """Run the block of a page that contains a text, with another broker's address."""
    (source,) = [block for block in python_blocks(text) if containing in block]
    namespace: dict[str, Any] = {"__name__": page}
    source = source.replace("localhost:9092", bootstrap_servers)
    # A program of the page has no "from __future__ import annotations", unlike this module.
    code = compile(source, f"{page} ({containing.strip()[:40]})", "exec", dont_inherit=True)
    exec(code, namespace)
    return namespace


def security_example(
    function: str, bootstrap_servers: str, others: Mapping[str, str] | None = None
) -> Any:
    """Return a function of docs/security.md, for a broker without TLS.

    Args:
        others: further texts of the example, and what is used instead.
    """
    replaced = {
        '"SASL_SSL"': '"SASL_PLAINTEXT"',
        '        ssl_truststore_location="authority.pem",\n': "",
        "kafka.example.org:9093": bootstrap_servers,
        **(others or {}),
    }
    text = (DOCS / "security.md").read_text()
    for theirs, ours in replaced.items():
        text = text.replace(theirs, ours)
    return run_block("security.md", text, f"async def {function}(")[function]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, including heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
