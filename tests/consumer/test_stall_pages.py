"""The pages of consumers and share groups have the reasons of stalls as the log writes them."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

import pytest

from aioprod.consumer import stall_reasons
from aioprod.consumer.share import stall_reasons as share_stall_reasons
from tests.testing.doc_blocks import DOCS


def reasons(module: ModuleType) -> set[str]:
    """The first words of each text of a module that is not documentation."""
    tree = ast.parse(inspect.getsource(module))
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node not in documentation
    ]
    return {" ".join(text.split()[:5]).rstrip(",:") for text in texts if len(text.split()) > 4}


@pytest.mark.parametrize(
    ("page", "module"), [("consumer.md", stall_reasons), ("share-groups.md", share_stall_reasons)]
)
def test_the_page_has_each_reason(page: str, module: ModuleType) -> None:
    text = re.sub(r"\s+", " ", (DOCS / page).read_text(encoding="utf-8"))
    found = reasons(module)
    assert len(found) > 3
    assert [each for each in sorted(found) if each not in text] == []
