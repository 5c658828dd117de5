"""What a broker's answer means for a batch. Pure functions."""

from __future__ import annotations

from enum import Enum

from aioprod.error_codes import ErrorCode


class Outcome(Enum):
    """What to do with a batch after an attempt."""

    SUCCESS = "success"
    RETRY = "retry"
    REWRITE = "rewrite"
    """It was not stored and its sequence is of no use: send it again under a new epoch."""
    FAIL = "fail"


_BROKER_LOST_OUR_STATE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})


def judge(code: ErrorCode, *, idempotent: bool, first_unresolved: bool) -> Outcome:
    """The outcome of one attempt.

    Args:
        code: the partition's error code in the reply.
        idempotent: whether the batch has a sequence.
        first_unresolved: whether no earlier batch of the partition is without an outcome.
    """
    if code == ErrorCode.NONE:
        return Outcome.SUCCESS
    if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        # An earlier attempt was stored, its answer was lost.
        return Outcome.SUCCESS
    if idempotent and code in _BROKER_LOST_OUR_STATE:
        # Behind an earlier batch that failed this is only natural: it goes again once that one is settled.
        return Outcome.REWRITE if first_unresolved else Outcome.RETRY
    return Outcome.RETRY if code.retriable else Outcome.FAIL
