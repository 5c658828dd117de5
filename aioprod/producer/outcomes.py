"""Maps a broker's error codes to what to do with a batch. Pure functions."""

from __future__ import annotations

from enum import Enum

from aioprod.error_codes import ErrorCode


class Outcome(Enum):
    """What to do with a batch after an attempt."""

    SUCCESS = "success"
    RETRY = "retry"
    REWRITE = "rewrite"
    """It is not stored and its sequence number is lost: send it again under a new epoch, or a new
    producer id.
    """
    EPOCH_LOST = "epoch lost"
    """The same in a transaction, which fails: only the coordinator assigns epochs."""
    SPLIT = "split"
    """It is too large: send its records in smaller batches."""
    FAIL = "fail"
    FATAL = "fatal"
    """The broker accepts no more batches of this producer."""


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


def outcome_of(
    code: ErrorCode,
    *,
    idempotent: bool,
    first_unresolved: bool,
    may_split: bool,
    transactional: bool,
) -> Outcome:
    """Return what to do with a batch after an attempt.

    Args:
        code: the partition's error code in the reply.
        idempotent: whether the batch has a sequence number.
        first_unresolved: whether all earlier batches of the partition have their outcome.
        may_split: whether the batch has several records.
        transactional: whether the producer has a transactional id.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        # A duplicate: an earlier attempt is stored, and its answer was lost.
        return Outcome.SUCCESS
    if code in _TOO_LARGE:
        return Outcome.SPLIT if may_split else Outcome.FAIL
    if transactional and code == ErrorCode.INVALID_PRODUCER_EPOCH:
        # Perhaps only the transaction has timed out. Ending it tells whether the producer is fenced
        # (KIP-588).
        return Outcome.FAIL
    lost_our_state = code in _BROKER_LOST_OUR_STATE or (
        # Without a transactional id there is no mapping: the producer id is unknown.
        not transactional and code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    if idempotent and code in _FATAL and not lost_our_state:
        return Outcome.FATAL
    if idempotent and lost_our_state:
        # Expected after an earlier batch that failed: retry when that one has its outcome.
        if not first_unresolved:
            return Outcome.RETRY
        return Outcome.EPOCH_LOST if transactional else Outcome.REWRITE
    return Outcome.RETRY if code.retriable else Outcome.FAIL
