"""Check that transactions are atomic and isolated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.anomalies.anomaly import Anomaly, Kind
from tests.anomalies.indexed import Indexed

Graph = dict[int, set[int]]
"""The transactions that follow each transaction, by the numbers of their operations."""


def torn_transactions(indexed: Indexed) -> Iterator[Anomaly]:
    """Find transactions of which a part is committed."""
    for operation in indexed.history.operations:
        if not operation.transactional:
            continue
        missing = [each.value for each in operation.sends if not indexed.committed(each.value)]
        if 0 < len(missing) < len(operation.sends):
            yield Anomaly(
                Kind.TORN_TRANSACTION,
                f"operation {operation.number}",
                f"of the transaction {operation.number} of {operation.client} "
                f"({operation.outcome}) the log lacks {missing}",
            )


def intermediate_reads(indexed: Indexed) -> Iterator[Anomaly]:
    """Find reads of committed records that ended before the commit of the record was invoked."""
    for operation in indexed.history.operations:
        reader = indexed.history.readers.get(operation.client)
        if reader is None or not reader.committed_only or operation.completed is None:
            continue
        for read in operation.reads:
            sent = indexed.sent.get(read.value)
            if sent is None or not sent.operation.transactional:
                continue
            begins = sent.operation.commit_invoked
            if sent.operation is operation or begins is None or operation.completed < begins:
                yield Anomaly(
                    Kind.INTERMEDIATE_READ,
                    f"value {read.value}",
                    f"operation {operation.number} of {operation.client} read {read.value} at "
                    f"{operation.completed:.6f}, before transaction {sent.operation.number} was "
                    f"committed ({begins})",
                )


def cycles(indexed: Indexed) -> Iterator[Anomaly]:
    """Find cycles of transactions by what they read and by the order of their writes."""
    writes, reads = write_order(indexed), read_order(indexed)
    both = {node: writes.get(node, set()) | reads.get(node, set()) for node in {*writes, *reads}}
    simple = set()
    for kind, graph in ((Kind.READ_CYCLE, reads), (Kind.WRITE_CYCLE, writes)):
        for component in strongly_connected(graph):
            simple.add(frozenset(component))
            yield _cycle(kind, component)
    for component in strongly_connected(both):
        if frozenset(component) not in simple:
            yield _cycle(Kind.MIXED_CYCLE, component)


def write_order(indexed: Indexed) -> Graph:
    """Return which transaction wrote a partition directly after which."""
    graph: Graph = {}
    for entries in indexed.history.log.values():
        writers = [
            sent.operation.number
            for entry in entries
            if entry.committed
            and (sent := indexed.sent.get(entry.value)) is not None
            and sent.operation.transactional
        ]
        for earlier, later in pairwise(writers):
            if earlier != later:
                graph.setdefault(earlier, set()).add(later)
    return graph


def read_order(indexed: Indexed) -> Graph:
    """Return which transaction read which one's committed values."""
    graph: Graph = {}
    for operation in indexed.history.operations:
        if not operation.transactional:
            continue
        for read in operation.reads:
            sent = indexed.sent.get(read.value)
            if (
                sent is not None
                and sent.operation.transactional
                and sent.operation is not operation
            ):
                graph.setdefault(sent.operation.number, set()).add(operation.number)
    return graph


def strongly_connected(graph: Graph) -> list[list[int]]:
    """Return the strongly connected components with more than one node (Tarjan's algorithm,
    without recursion).
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = []
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(graph.get(root, ())))]
        order[root] = lowest[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in order:
                    order[successor] = lowest[successor] = len(order)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    lowest[node] = min(lowest[node], order[successor])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        found.append(sorted(component))
    return found


def _cycle(kind: Kind, component: list[int]) -> Anomaly:
    shown = ", ".join(map(str, component[:10])) + (", ..." if len(component) > 10 else "")
    return Anomaly(
        kind, f"operation {component[0]}", f"{len(component)} transactions form a cycle: {shown}"
    )
