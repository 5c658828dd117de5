"""Decisions as text, and the names of a sink: everything comes back, nothing else is taken for
them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.spark.exactly_once.decision import (
    DecidedTransaction,
    Decision,
    DecisionError,
    decode,
    encode,
)
from aioprod.spark.exactly_once.decision_log import METADATA_LIMIT
from aioprod.spark.exactly_once.ids import SLOTS, Sink, short_run

_whole = st.integers(0, 2**31 - 1)
_runs = st.text("0123456789abcdef", min_size=8, max_size=8)
_transactions = st.builds(
    DecidedTransaction,
    partition=_whole,
    number=_whole,
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    v2=st.booleans(),
    rows=st.integers(0, 2**40),
)
_decisions = st.builds(
    Decision,
    version=st.integers(0, 2**63 - 2),
    run=_runs,
    digest=st.integers(0, 2**64 - 1),
    transactions=st.lists(_transactions, max_size=20).map(tuple),
)
_words = st.text("ab1-", min_size=1, max_size=12)


@given(_decisions)
def test_a_decision_comes_back_from_its_text(decision: Decision) -> None:
    text = encode(decision)
    assert text.isascii()
    assert decode(text) == decision


@given(_decisions, st.data())
def test_a_text_that_was_cut_is_refused(decision: Decision, data: st.DataObject) -> None:
    text = encode(decision)
    with pytest.raises(DecisionError):
        decode(text[: data.draw(st.integers(0, len(text) - 1))])


def test_a_decision_without_a_checksum_is_read() -> None:
    """Earlier versions wrote it, and the group of a query keeps its last decision."""
    text = "aioprod1:0000000001-mSjx00000000030RRHPJ_QN"
    assert decode(text) == Decision(
        1, "deadbeef", 3, (DecidedTransaction(0, 1, 4_000, 2, True, 5),)
    )


@given(st.text())
def test_other_texts_are_no_decisions(text: str) -> None:
    with pytest.raises(DecisionError):
        decode(text)


def test_a_decision_of_a_later_version_is_refused_as_such() -> None:
    with pytest.raises(DecisionError, match="this version of aioprod"):
        decode("aioprod3:abc")


def test_a_decision_of_three_hundred_tasks_fits_into_an_offsets_metadata() -> None:
    transactions = tuple(
        DecidedTransaction(n, (n * 7919) % 16_384, 4_000_000 + 3 * n, n % 50, True, 25_000 + n)
        for n in range(300)
    )
    assert len(encode(Decision(10_000, "deadbeef", 2**63, transactions))) <= METADATA_LIMIT


@given(_words, _words, st.integers(0, 1000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_an_id_names_its_run_and_no_other_sinks(
    prefix: str, sink_id: str, run: int, version: int, number: int
) -> None:
    sink = Sink(prefix, sink_id)
    name = sink.transactional_id(short_run(str(run)), version, number)
    assert sink.parse(name) == (short_run(str(run)), version % SLOTS, number)
    assert sink.parse(sink.driver_id) is None
    for longer in (f"{sink_id}-1", f"{sink_id}-deadbeef", f"{sink_id}-deadbeef-1"):
        other = Sink(prefix, longer)
        assert sink.parse(other.transactional_id(short_run("x"), version, number)) is None
        assert other.parse(name) is None


def test_ids_are_used_again_after_eight_batches() -> None:
    sink = Sink("p", "s")
    names = {sink.transactional_id("deadbeef", version, 0) for version in range(100)}
    assert len(names) == SLOTS
