"""All clients share one runtime and one retry loop, which exist only once in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import aioprod

ROOT = Path(aioprod.__file__).parent
CLIENTS = (
    "cluster",
    "producer",
    "consumer",
    "admin",
    "processing",
    "schema_registry",
    "spark",
    "cli",
    "demo",
)
RUNTIME = "cluster/runtime.py"
# Coordinators of a group have connections of their own.
MADE_IN = {
    "Brokers": {RUNTIME},
    "Metadata": {RUNTIME},
    "LoopBinding": {RUNTIME},
    "Coordinators": {RUNTIME, "consumer/group/connections.py"},
}
# Loops that pause and are not retries of one failing request.
LOOPS_WITH_PAUSES = {
    ("cluster/retry.py", "retry"): "the one retry",
    ("consumer/group/heartbeats.py", "_run"): "heartbeats, one after another",
    ("consumer/group/epoch_heartbeats.py", "run"): "heartbeats, one after another",
    ("consumer/group/reconciling.py", "_learn_names"): "asks for the topics that are left",
    ("consumer/group/joining.py", "run"): "each answer may have another JoinGroup follow",
    ("consumer/group/offsets.py", "_send_all"): "the commits of a batch change between attempts",
    ("processing/transactions.py", "commit_now"): "each transaction has what is complete by then",
    ("processing/dead_letters/reading.py", "partitions_of"): "waits for a topic, without an error",
    ("processing/dead_letters/redrive.py", "_send_all"): "waits between batches, for a rate",
    ("processing/inbox/guarantee.py", "call"): "retries errors of the database, not of Kafka",
    ("processing/inbox/guarantee.py", "_retry"): "retries errors of the database, not of Kafka",
    ("producer/transactions/previous_end.py", "wait"): "asks until the transaction has ended",
    ("spark/planning.py", "available_offsets"): "fetchOffset.numRetries, without an error",
    ("cli/consume.py", "_partitions_of"): "waits for a new topic, without an error",
    ("cli/copy_report.py", "run"): "prints a line per interval",
    ("cli/top.py", "watch"): "takes a sample per interval",
    ("demo/topics.py", "_wait_for_leaders"): "waits for the leaders of new topics",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in CLIENTS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_what_a_client_is_made_of_is_made_in_one_place() -> None:
    found: dict[str, set[str]] = {name: set() for name in MADE_IN}
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.get(node.func.id, set()).add(name)
    assert found == MADE_IN


def test_retries_are_not_written_by_hand() -> None:
    found = set()
    for name, tree in modules():
        for function in ast.walk(tree):
            if isinstance(function, ast.AsyncFunctionDef) and any(map(_pauses, _loops(function))):
                found.add((name, function.name))
    assert found == set(LOOPS_WITH_PAUSES), (
        "use aioprod.cluster.retry.retry, or say here why the loop is not a retry"
    )


def _loops(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The loops of a function, without those of functions in it."""
    inside = list(ast.iter_child_nodes(function))
    while inside:
        node = inside.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.While | ast.For):
            yield node
        inside += ast.iter_child_nodes(node)


def _pauses(loop: ast.AST) -> bool:
    """Return whether a loop waits in ``sleep`` for longer than a turn of the event loop."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "sleep"
        and ast.unparse(node.args[0]) != "0"
        for node in ast.walk(loop)
    )
