"""The states of a transactional producer, which of them follow which, and which call is right in
each. No I/O.
"""

from __future__ import annotations

import logging
from enum import Enum

from aioprod.errors import KafkaError, ProducerClosedError, TransactionStateError

log = logging.getLogger(__name__)


class TransactionState(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "uninitialized"
    """The coordinator has not given a producer id yet, or must give a new one."""
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARING = "preparing"
    PREPARED = "prepared"
    """Everything is written: whoever knows the identity may end the transaction, this producer or
    another process (KIP-939).
    """
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    """Something of the transaction failed: it can only be aborted."""
    FATAL_ERROR = "fatal error"
    """Nothing can be done but to close the producer."""


class Call(Enum):
    """The public method that a caller used."""

    START = "start"
    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


_S = TransactionState

# From each state to these. To the fatal error it goes from everywhere, and never back.
_NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING}),
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED}),
    _S.READY: frozenset({_S.IN_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.PREPARING, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.PREPARING: frozenset({_S.PREPARED, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING}),
    # Until the commit itself is sent, an abort may still overtake it.
    _S.COMMITTING: frozenset({_S.READY, _S.INITIALIZING, _S.ABORTABLE_ERROR, _S.ABORTING}),
    # What fails while aborting is of no interest, unless it is the abort itself: that is fatal, for
    # what else could be tried (KAFKA-19250).
    _S.ABORTING: frozenset({_S.READY, _S.INITIALIZING}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING}),
    _S.FATAL_ERROR: frozenset(),
}

_ADVICE: dict[TransactionState, str] = {
    _S.UNINITIALIZED: "no transaction is open: call begin_transaction() first",
    _S.INITIALIZING: (
        "no transaction is open: call begin_transaction() first; it waits for the producer id"
    ),
    _S.READY: "no transaction is open: call begin_transaction() first",
    _S.IN_TRANSACTION: (
        "a transaction is open: end it with commit_transaction() or abort_transaction() first"
    ),
    _S.PREPARING: (
        "the transaction is being prepared: call prepare_transaction() again to wait for its "
        "end, or abort_transaction()"
    ),
    _S.PREPARED: (
        "the transaction is prepared: end it with commit_transaction() or abort_transaction() first"
    ),
    _S.COMMITTING: "a commit is under way: call commit_transaction() again to wait for its end",
    _S.ABORTING: "an abort is under way: call abort_transaction() again to wait for its end",
    _S.ABORTABLE_ERROR: "the transaction has failed: call abort_transaction()",
    _S.FATAL_ERROR: "the producer can't go on: close it and make a new one",
}


def may_follow(source: TransactionState, target: TransactionState) -> bool:
    """Whether a producer may go from ``source`` to ``target``."""
    return target in _NEXT[source] or (target is _S.FATAL_ERROR and source is not target)


def refusal(call: Call, state: TransactionState) -> str:
    """The text of the error for a call that does not fit the state: it names both, and the call
    that would be right.
    """
    return f"{call.value}() in state {state.value!r}: {_ADVICE[state]}"


class TransactionStatus:
    """The state of one transactional producer.

    Attributes:
        state: the present state.
        error: what led to one of the two error states; None otherwise.
        closed: the error of every call after :meth:`close`; None before.
        may_append: whether a record may be appended now: a transaction is open and has not failed.
        number: how many transactions have begun.
    """

    def __init__(self, transactional_id: str) -> None:
        self.state = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        self.closed: ProducerClosedError | None = None
        self.may_append = False
        self.number = 0
        self._id = transactional_id

    def go(self, state: TransactionState, error: KafkaError | None = None) -> None:
        """Enter a state; ``error`` is what led to it, if it is an error state."""
        assert may_follow(self.state, state), f"from {self.state} to {state}"
        log.debug("transactional_id=%r: from %s to %s", self._id, self.state.value, state.value)
        self.state = state
        self.error = error if error is not None else self.error
        self.may_append = state is _S.IN_TRANSACTION

    def begin(self) -> None:
        """Open the next transaction."""
        self.number += 1
        self.go(_S.IN_TRANSACTION)

    def end(self) -> None:
        """Forget the error of a transaction that has ended."""
        self.error = None

    def close(self) -> None:
        """Refuse further calls."""
        self.closed = self.closed or ProducerClosedError("the producer is closed")
        self.may_append = False

    def check(self, call: Call, *allowed: TransactionState) -> None:
        """Check that a call is right in the present state.

        Raises:
            ProducerClosedError: if the producer is closed.
            TransactionStateError: if the state is not one of those allowed.
            KafkaError: if the transaction or the producer has failed.
        """
        if self.closed is not None:
            raise self.closed.with_traceback(None)
        if self.state not in allowed:
            # These errors are raised again and again. Without their old tracebacks, or these would
            # grow with each call.
            raise (
                self.error.with_traceback(None)
                if self.error is not None
                else TransactionStateError(refusal(call, self.state))
            )
