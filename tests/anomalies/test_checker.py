"""The checker finds each planted anomaly, nothing in clean histories, and what a second checker
finds that compares everything with everything.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.anomalies import brute_force
from tests.anomalies.anomaly import PERMITTED, Kind
from tests.anomalies.checker import check
from tests.anomalies.history import (
    Entry,
    History,
    Operation,
    Outcome,
    Owner,
    Read,
    Reader,
    Repositioned,
    Send,
)
from tests.anomalies.indexed import Indexed
from tests.anomalies.model import Model
from tests.anomalies.plants import PLANTS, Plant
from tests.anomalies.transaction_checks import read_order, strongly_connected, write_order

_CYCLES = {Kind.WRITE_CYCLE, Kind.READ_CYCLE, Kind.MIXED_CYCLE}


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_history_has_no_anomaly(seed: int) -> None:
    assert check(Model(seed).run(400)) == []


def test_a_long_clean_history_has_no_anomaly() -> None:
    assert check(Model(1).run(20_000)) == []


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_anomaly_is_found(plant: Plant) -> None:
    for seed in range(5):
        history = Model(seed).run(400)
        plant(history, Random(seed))
        assert PLANTS[plant] in {anomaly.kind for anomaly in check(history)}


def test_each_kind_is_planted() -> None:
    assert {*PLANTS.values()} == {*Kind}
    assert {*Kind} > PERMITTED


def test_a_value_has_one_send() -> None:
    send = Send("t/0", 1)
    operations = [Operation(n, "c", 0, 0, 1, Outcome.OK, sends=(send,)) for n in range(2)]
    with pytest.raises(ValueError, match="value 1 is sent twice"):
        check(History(operations))


_partitions = st.sampled_from(["t/0", "t/1"])
_moments = st.integers(0, 8).map(float)
_clients = st.sampled_from(["a", "b", "c"])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Small histories, most of them with anomalies."""
    values = [*range(draw(st.integers(1, 6)))]
    unsent = list(values)
    operations = []
    for number in range(draw(st.integers(1, 6))):
        invoked = draw(_moments)
        completed = draw(st.none() | _moments.map(invoked.__add__))
        transactional = draw(st.booleans())
        sends = tuple(
            Send(draw(_partitions), unsent.pop(0), draw(st.none() | st.integers(0, 4)))
            for _ in range(draw(st.integers(0, min(2, len(unsent)))))
        )
        reads = draw(
            st.lists(
                st.builds(Read, _partitions, st.integers(0, 4), st.sampled_from(values)), max_size=3
            )
        )
        operations.append(
            Operation(
                number,
                draw(_clients),
                draw(st.integers(0, 1)),
                invoked,
                completed,
                draw(st.sampled_from(Outcome)),
                sends,
                tuple(reads),
                draw(st.dictionaries(_partitions, st.integers(0, 4), max_size=1)),
                transactional,
                draw(st.none() | _moments) if transactional else None,
                draw(st.sampled_from([3.0, float("inf")])),
                draw(st.booleans()),
            )
        )
    log = {
        partition: [
            Entry(offset, draw(st.sampled_from(values)), draw(st.booleans()))
            for offset in sorted(draw(st.sets(st.integers(0, 4))))
        ]
        for partition in ("t/0", "t/1")
    }
    return History(
        operations,
        log,
        {"t/0": draw(st.integers(0, 2))},
        {
            "a": Reader("g", draw(st.booleans())),
            "b": Reader("g", draw(st.booleans())),
            "c": Reader(None, draw(st.booleans())),
        },
        draw(
            st.lists(
                st.builds(Repositioned, st.integers(0, 6), _clients, st.frozensets(_partitions)),
                max_size=2,
            )
        ),
        draw(st.lists(st.builds(Owner, st.just("g"), st.integers(1, 2), _partitions, _clients))),
        draw(st.sets(st.sampled_from(["g", "c"]))),
        draw(st.none() | _moments),
        draw(st.sampled_from([1.0, 3.0])),
        20.0,
    )


@given(histories())
def test_it_agrees_with_brute_force(history: History) -> None:
    found = {(kind, subject) for kind, subject, _ in check(history) if kind not in _CYCLES}
    assert found == brute_force.anomalies(history)


@given(histories())
def test_cycles_agree_with_brute_force(history: History) -> None:
    indexed = Indexed(history)
    writes, reads = write_order(indexed), read_order(indexed)
    both = {node: writes.get(node, set()) | reads.get(node, set()) for node in {*writes, *reads}}
    for graph, edges in (
        (writes, {"writes": True, "reads": False}),
        (reads, {"writes": False, "reads": True}),
        (both, {"writes": True, "reads": True}),
    ):
        found = {frozenset(component) for component in strongly_connected(graph)}
        assert found == brute_force.cyclic_transactions(history, **edges)


@given(st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7))))
def test_components_are_those_of_reachability(graph: dict[int, set[int]]) -> None:
    reached = {node: set(graph.get(node, ())) for node in range(8)}
    for _ in range(8):
        for node in reached:
            reached[node] |= {far for near in reached[node] for far in reached[near]}
    expected = {
        frozenset(other for other in reached[node] if node in reached[other]) | {node}
        for node in range(8)
    }
    found = {frozenset(component) for component in strongly_connected(graph)}
    assert found == {component for component in expected if len(component) > 1}
