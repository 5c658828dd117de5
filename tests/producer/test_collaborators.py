"""The graph of a producer: collaborators are constructor arguments, and no object reaches through
another one's attributes to assign, or past it to its collaborators.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioprod.producer
from aioprod.producer.core import ProducerCore

ROOT = Path(aioprod.producer.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# Records of data, which several objects keep up to date; by the names of their variables.
# They have no collaborators that could be assigned.
DATA = {
    "batch": "ProducerBatch",
    "part": "ProducerBatch",
    "topic": "Topic",
    "waiter": "a caller that waits for memory",
    "writer": "RecordBatchWriter",
    "pending": "PendingAppend",
    "call": "PendingCall",
    "reservation": "TopicReservation",
    "delivery": "Delivery",
    "found": "Ready",
    "request": "a message of Kafka's protocol",
    "failure": "an exception",
    "own": "an exception",
}


def assigned_outside(tree: ast.Module) -> Iterator[str]:
    """The attributes that are assigned of objects other than ``self`` and records of data."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                    *owners, _ = ast.unparse(each).split(".")
                    if owners != ["self"] and owners[0] not in DATA:
                        yield ast.unparse(each)


def reached_through(tree: ast.Module) -> Iterator[str]:
    """Private attributes of a collaborator's collaborators: ``self._sender.handler.giving_up``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names = ast.unparse(node).split(".")
            private = [name for name in names[2:] if name[:1] == "_" and name[:2] != "__"]
            if names[0] == "self" and private:
                yield ".".join(names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_attribute_of_a_collaborator_is_assigned(path: Path) -> None:
    """An object gets what it needs in its constructor, never by an assignment afterwards."""
    assert list(assigned_outside(ast.parse(path.read_text()))) == []


def changed_queues(tree: ast.Module) -> Iterator[str]:
    """Calls that change a collection of a partition, from outside of its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, *attributes = ast.unparse(node.func).split(".")
            if owner == "queue" and attributes[0] in ("batches", "line") and attributes[1:]:
                yield ast.unparse(node.func)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_a_partition_changes_its_own_state(path: Path) -> None:
    """Assignments to its attributes are found above."""
    assert list(changed_queues(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_object_reaches_into_a_collaborator(path: Path) -> None:
    assert list(reached_through(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_constructor_has_more_than_eight_parameters(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = [*node.args.args, *node.args.kwonlyargs]
            assert len(given) - len(["self"]) <= 8, f"line {node.lineno}"


@pytest.mark.parametrize(
    "statement",
    [
        "self.accumulator.on_end = reporter.ended",
        "self._sender.handler.giving_up = None",
        "accumulator.on_end, self.x = reporter.ended, 1",
        "sender.calls += 1",
        "sender.calls: int = 1",
        "queue.muted = False",
        "queue.sequence.refusal_noted = True",
    ],
)
def test_a_hook_that_is_set_from_outside_is_found(statement: str) -> None:
    assert len(list(assigned_outside(ast.parse(statement)))) == 1


def test_the_graph_is_one_function_of_a_page() -> None:
    """``ProducerCore.__init__`` makes every collaborator, each from those above it."""
    lines, _ = inspect.getsourcelines(ProducerCore.__init__)
    assert len(lines) <= 60
    assert {
        "RecordAccumulator",
        "Sender",
        "ProduceResponseHandler",
        "TopicGate",
        "Appender",
        "RecordIntake",
        "BulkIntake",
        "Admission",
    } <= {
        node.func.id
        for node in ast.walk(ast.parse(textwrap.dedent("".join(lines))))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
