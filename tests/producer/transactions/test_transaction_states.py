"""The table of states: what may follow what, and which error a wrong call gets."""

from __future__ import annotations

import itertools

import pytest

from aioprod.producer.transactions.states import Call, TransactionState, may_follow, refusal

S = TransactionState

ALLOWED = {
    (S.UNINITIALIZED, S.INITIALIZING),
    (S.INITIALIZING, S.READY),
    (S.INITIALIZING, S.UNINITIALIZED),
    (S.READY, S.IN_TRANSACTION),
    (S.IN_TRANSACTION, S.PREPARING),
    (S.IN_TRANSACTION, S.COMMITTING),
    (S.IN_TRANSACTION, S.ABORTING),
    (S.IN_TRANSACTION, S.ABORTABLE_ERROR),
    (S.PREPARING, S.PREPARED),
    (S.PREPARING, S.ABORTING),
    (S.PREPARING, S.ABORTABLE_ERROR),
    (S.PREPARED, S.COMMITTING),
    (S.PREPARED, S.ABORTING),
    (S.COMMITTING, S.READY),
    (S.COMMITTING, S.INITIALIZING),
    (S.COMMITTING, S.ABORTABLE_ERROR),
    (S.COMMITTING, S.ABORTING),
    (S.ABORTABLE_ERROR, S.ABORTING),
    (S.ABORTING, S.READY),
    (S.ABORTING, S.INITIALIZING),
} | {(source, S.FATAL_ERROR) for source in S if source is not S.FATAL_ERROR}


def test_only_these_transitions() -> None:
    assert {pair for pair in itertools.product(S, S) if may_follow(*pair)} == ALLOWED


def test_nothing_follows_the_fatal_error() -> None:
    assert not any(may_follow(S.FATAL_ERROR, target) for target in S)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("call", Call)
def test_a_refusal_names_the_call_the_state_and_what_would_be_right(
    call: Call, state: TransactionState
) -> None:
    text = refusal(call, state)
    assert call.value + "()" in text
    assert repr(state.value) in text
    right = {
        S.IN_TRANSACTION: "commit_transaction() or abort_transaction()",
        S.PREPARING: "prepare_transaction()",
        S.PREPARED: "commit_transaction() or abort_transaction()",
        S.COMMITTING: "commit_transaction()",
        S.ABORTING: "abort_transaction()",
        S.ABORTABLE_ERROR: "abort_transaction()",
        S.FATAL_ERROR: "close it",
    }.get(state, "begin_transaction()")
    assert right in text.partition(": ")[2]
