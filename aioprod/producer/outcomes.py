"""Decides what to do with a batch after an attempt, from the error code and the facts about the
batch. Pure functions.
"""

from enum import Enum
from typing import NamedTuple

from aioprod.error_codes import ErrorCode


class Outcome(Enum):
    """The action for a batch after an attempt."""

    STORED = "stored"
    RETRY = "retry"
    REWRITE = "rewrite"
    """It is not stored and its sequence number is lost: send it again under a new epoch, or a new
    producer id.
    """
    SPLIT = "split"
    """It is too large: send its records in smaller batches."""
    FAIL = "fail"
    SEQUENCE_LOST = "sequence lost"
    """It fails, is not stored, and its sequence number is lost."""
    ABORT = "abort"
    """It fails, because its transaction is aborted."""
    FATAL = "fatal"
    """The broker accepts no more batches of this producer."""


class Facts(NamedTuple):
    """The facts about a batch when a request with it has ended.

    Attributes:
        idempotent: whether the batch has a sequence number.
        transactional: whether the producer has a transactional id.
        several_records: whether it can be split.
        first_unresolved: whether all earlier batches of the partition have their outcome.
        may_be_stored: whether it, or a batch of which it is a part, may be stored by an attempt
            that got no reply.
        late_copies: whether copies of earlier attempts may still arrive.
        aborted: whether its transaction is aborted without waiting for its outcome.
        retries_left: whether it may be sent again.
    """

    idempotent: bool
    transactional: bool
    several_records: bool
    first_unresolved: bool
    may_be_stored: bool
    late_copies: bool
    aborted: bool
    retries_left: bool


_STORED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""A duplicate: an earlier attempt is stored, and its response was lost."""
_MAY_BE_STORED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None}
)
_BROKER_LOST_OUR_STATE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def leaves_doubt(code: ErrorCode | None) -> bool:
    """Return whether a batch may be stored though its attempt failed with ``code``; None is no
    reply.
    """
    return code in _MAY_BE_STORED


def outcome_of(code: ErrorCode | None, facts: Facts) -> Outcome:
    """Return what to do with a batch after an attempt.

    Args:
        code: the partition's error code in the reply; None if the request got no reply.
        facts: about the batch, after this attempt.
    """
    if code in _STORED:
        return Outcome.STORED
    if code in _TOO_LARGE:
        return Outcome.SPLIT if facts.several_records else Outcome.FAIL
    outcome = _outcome_of_code(code, facts)
    if outcome is Outcome.RETRY or outcome is Outcome.REWRITE:
        if facts.aborted:
            return Outcome.ABORT
        if not facts.retries_left:
            return Outcome.FAIL if outcome is Outcome.RETRY else Outcome.SEQUENCE_LOST
    return outcome


def _outcome_of_code(code: ErrorCode | None, facts: Facts) -> Outcome:
    """Return the outcome of an error if the batch may be sent any number of times."""
    if code is None:
        return Outcome.RETRY
    if facts.transactional and code == ErrorCode.INVALID_PRODUCER_EPOCH:
        # Perhaps only the transaction has timed out. Ending it shows whether the producer is fenced
        # (KIP-588).
        return Outcome.FAIL
    lost_our_state = code in _BROKER_LOST_OUR_STATE or (
        # Without a transactional id there is no mapping: the producer id is unknown.
        not facts.transactional and code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    if facts.idempotent and lost_our_state:
        return _outcome_of_lost_state(code, facts)
    if facts.idempotent and code in _FATAL:
        return Outcome.FATAL
    return Outcome.RETRY if code.retriable else Outcome.FAIL


def _outcome_of_lost_state(code: ErrorCode, facts: Facts) -> Outcome:
    """Return the outcome of a batch whose sequence number or producer id the broker refuses."""
    if not facts.first_unresolved:
        # Expected after an earlier batch that failed: retry when that one has its outcome.
        return Outcome.RETRY
    if not facts.may_be_stored:
        # In a transaction only the coordinator assigns epochs, so the transaction fails.
        return Outcome.SEQUENCE_LOST if facts.transactional else Outcome.REWRITE
    if (
        facts.late_copies
        and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        and not facts.transactional
    ):
        # It was refused because earlier batches are missing. Late copies of those may still arrive,
        # and after them a late copy of this one, which the broker then stores. With another
        # sequence number it would be stored twice. So it is retried unchanged.
        return Outcome.RETRY
    return Outcome.FAIL
