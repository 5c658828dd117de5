"""Each guide begins with a whole program: what it uses, it imports, and it runs."""

from __future__ import annotations

import asyncio
import builtins
import re
import symtable
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioprod import Admin, Producer
from aioprod.admin import ConfigResource
from aioprod.testing import ThreadedCluster
from tests.testing.doc_blocks import DOCS, python_blocks, run_block

PAGES = sorted(
    page
    for page in [*DOCS.glob("*.md"), *(DOCS / "recipes").glob("*.md")]
    if re.search(r"^```(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def first_block(page: Path) -> tuple[str, str]:
    """Return the language and the text of a page's first block."""
    found = re.search(
        r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1], found[2]


def undefined(table: symtable.SymbolTable, known: set[str]) -> Iterator[str]:
    """Yield the global names that a program uses and does not define."""
    for symbol in table.get_symbols():
        outside = symbol.is_global() or (table.get_type() == "module" and not symbol.is_assigned())
        if outside and symbol.is_referenced() and symbol.get_name() not in known:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from undefined(inner, known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_first_program_is_whole(page: Path) -> None:
    language, source = first_block(page)
    if language != "python":
        return  # a command
    compile(source, page.name, "exec")  # without await outside of a coroutine
    table = symtable.symtable(source, page.name, "exec")
    defined = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    assert list(undefined(table, defined | set(dir(builtins)) | {"__name__"})) == []


class _Printed(Exception):
    """An endless loop has printed a record."""


async def _send(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.incremental_alter_configs({ConfigResource.group("mailers"): earliest})
    async with Producer(servers) as producer:
        await producer.send_and_wait(topic, b"tea", key=b"17")


@pytest.mark.parametrize(
    ("page", "topic", "printed"),
    [("consumer.md", "orders", "0 0 b'17' b'tea'"), ("share-groups.md", "mails", "b'tea'")],
)
def test_it_prints_a_record(
    threaded_broker: ThreadedCluster,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    topic: str,
    printed: str,
) -> None:
    lines: list[str] = []

    def show(*values: object) -> None:
        lines.append(" ".join(map(str, values)))
        raise _Printed

    monkeypatch.setattr("builtins.print", show)
    asyncio.run(_send(threaded_broker.bootstrap_servers, topic))
    text = (DOCS / page).read_text(encoding="utf-8")
    with pytest.raises(_Printed):
        run_block(page, text, python_blocks(text)[0], threaded_broker.bootstrap_servers)
    assert lines == [printed]
