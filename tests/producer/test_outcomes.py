"""The table of outcomes is the whole decision about a batch after an attempt: rules for
each error code and all facts, and the rows that users know.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from aioprod.error_codes import ErrorCode
from aioprod.producer.outcomes import Facts, Outcome, leaves_doubt, outcome_of

USUAL: dict[str, Any] = {
    "idempotent": True,
    "transactional": False,
    "several_records": True,
    "first_unresolved": True,
    "may_be_stored": False,
    "late_copies": False,
    "aborted": False,
    "retries_left": True,
}
SENT_AGAIN = (Outcome.RETRY, Outcome.REWRITE)
NEW_SEQUENCE = (Outcome.REWRITE, Outcome.SEQUENCE_LOST)


def facts(**others: bool) -> Facts:
    return Facts(**{**USUAL, **others})


def all_rows() -> Iterator[tuple[ErrorCode | None, Facts, Outcome]]:
    names = Facts._fields
    assert list(names) == list(USUAL)
    for values in product((False, True), repeat=len(names)):
        given = Facts(**dict(zip(names, values, strict=True)))
        for code in (None, *ErrorCode):
            yield code, given, outcome_of(code, given)


def test_a_batch_that_may_be_stored_never_gets_another_sequence_number() -> None:
    """It would be stored twice."""
    assert not [row for row in all_rows() if row[1].may_be_stored and row[2] in NEW_SEQUENCE]


def test_only_a_numbered_batch_loses_a_number_or_ends_the_producer() -> None:
    ends = (*NEW_SEQUENCE, Outcome.FATAL)
    assert not [row for row in all_rows() if not row[1].idempotent and row[2] in ends]


def test_in_a_transaction_no_batch_is_written_again_under_another_epoch() -> None:
    assert not [row for row in all_rows() if row[1].transactional and row[2] is Outcome.REWRITE]


def test_a_batch_without_retries_or_of_an_aborted_transaction_is_not_sent_again() -> None:
    for _, given, outcome in all_rows():
        if given.aborted or not given.retries_left:
            assert outcome not in SENT_AGAIN
        if not given.aborted:
            assert outcome is not Outcome.ABORT


def test_a_single_record_is_not_split() -> None:
    assert not [row for row in all_rows() if row[2] is Outcome.SPLIT and not row[1].several_records]


def test_only_success_ends_a_batch_as_stored() -> None:
    codes = {code for code, _, outcome in all_rows() if outcome is Outcome.STORED}
    assert codes == {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}


def test_what_leaves_doubt_is_always_retried() -> None:
    doubtful = [code for code in (None, *ErrorCode) if leaves_doubt(code)]
    assert doubtful == [
        None,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ]
    assert {outcome_of(code, facts()) for code in doubtful} == {Outcome.RETRY}


LOST = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("code", "given", "outcome"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, {}, Outcome.RETRY),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, {}, Outcome.FAIL),
        (ErrorCode.MESSAGE_TOO_LARGE, {}, Outcome.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, {"retries_left": False}, Outcome.SPLIT),
        (ErrorCode.PRODUCER_FENCED, {}, Outcome.FATAL),
        (ErrorCode.PRODUCER_FENCED, {"idempotent": False}, Outcome.FAIL),
        (LOST, {}, Outcome.REWRITE),
        (LOST, {"retries_left": False}, Outcome.SEQUENCE_LOST),
        (LOST, {"transactional": True}, Outcome.SEQUENCE_LOST),
        (LOST, {"first_unresolved": False}, Outcome.RETRY),
        (LOST, {"may_be_stored": True, "late_copies": True}, Outcome.RETRY),
        (LOST, {"may_be_stored": True}, Outcome.FAIL),
        (LOST, {"may_be_stored": True, "late_copies": True, "transactional": True}, Outcome.FAIL),
        (ErrorCode.UNKNOWN_PRODUCER_ID, {"may_be_stored": True, "late_copies": True}, Outcome.FAIL),
        (FENCED, {}, Outcome.REWRITE),
        (FENCED, {"transactional": True}, Outcome.FAIL),
        (UNKNOWN_ID, {}, Outcome.REWRITE),
        (UNKNOWN_ID, {"transactional": True}, Outcome.FATAL),
        (None, {"aborted": True, "transactional": True}, Outcome.ABORT),
    ],
)
def test_rows(code: ErrorCode | None, given: dict[str, bool], outcome: Outcome) -> None:
    assert outcome_of(code, facts(**given)) is outcome
