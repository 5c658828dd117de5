"""The consumer stays a face with small collaborators: each gets what it needs by its constructor,
and none reaches into another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import aioprod.consumer

ROOT = Path(aioprod.consumer.__file__).parent
MAX_METHODS = 22
MAX_ATTRIBUTES = 15
# Larger ones, with the methods and attributes that they may have. The face delegates each of its
# methods.
FACE = "Consumer"
LARGER = {
    FACE: (43, 12),
    "GroupMember": (31, 16),
    "ClassicMember": (30, 14),
    "ReconcilingMember": (28, 14),
    "ShareMember": (21, 17),
    # Builds the collaborators of a share consumer, starts them and ends them.
    "ShareCore": (17, 19),
}
BASES = {
    *("ABC", "Enum", "Generic", "IntEnum", "StrEnum", "NamedTuple", "Protocol", "Sequence"),
    *("Assignor", "StatelessAssignor", "GroupMember", "ClientLifecycle", "ReadingReporter"),
    *("Requests", "Uncopyable"),
}
# Set by a subscription with a pattern.
SET_ELSEWHERE = {"self._metadata.want_all_topics"}


def trees() -> Iterator[ast.Module]:
    for path in sorted(ROOT.rglob("*.py")):
        yield ast.parse(path.read_text(), path)


def classes() -> Iterator[ast.ClassDef]:
    for tree in trees():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that are assigned anywhere in it."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each


def methods(node: ast.ClassDef) -> list[str]:
    return [
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(ast.unparse(decorator) == "overload" for decorator in each.decorator_list)
    ]


def attributes(node: ast.ClassDef) -> set[str]:
    return {each.attr for each in targets(node) if ast.unparse(each.value) == "self"}


def test_no_class_has_many_methods_or_attributes() -> None:
    too_large = {}
    for node in classes():
        size = len(methods(node)), len(attributes(node))
        limit = LARGER.get(node.name, (MAX_METHODS, MAX_ATTRIBUTES))
        if size[0] > limit[0] or size[1] > limit[1]:
            too_large[node.name] = size
    assert too_large == {}


def test_the_face_only_delegates() -> None:
    (face,) = (node for node in classes() if node.name == FACE)
    assert [name for name in methods(face) if name.startswith("_") and name[1] != "_"] == []


def test_there_are_no_mixins() -> None:
    bases = {
        node.name: [ast.unparse(base).partition("[")[0] for base in node.bases]
        for node in classes()
    }
    assert {name: named for name, named in bases.items() if not BASES.issuperset(named)} == {}
    assert [name for name, named in bases.items() if len({*named} - {"Generic"}) > 1] == []


def test_no_collaborator_is_changed_from_outside() -> None:
    """Neither a hook nor any other attribute of one is assigned after its construction."""
    found = {
        ast.unparse(target)
        for tree in trees()
        for target in targets(tree)
        if target.attr.startswith("on_")
        or (isinstance(target.value, ast.Attribute) and ast.unparse(target).startswith("self."))
    }
    assert found - SET_ELSEWHERE == set()


def test_nothing_in_the_graph_knows_the_consumer() -> None:
    """Else one that is dropped without close would not be noticed."""
    importers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "consumer.consumer import" in path.read_text()
    }
    assert importers <= {"__init__.py"}
