"""The states of a transactional producer, the transitions between them, and the calls that each
state allows. No I/O.
"""

from __future__ import annotations

from enum import Enum

from aioprod.errors import KafkaError, ProducerClosedError, TransactionStateError
from aioprod.logs import Logger, get_logger

log: Logger = get_logger(__name__)


class TransactionState(Enum):
    """The state of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    """The coordinator has not assigned a producer id yet, or has to assign a new one."""
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARING = "preparing"
    PREPARED = "prepared"
    """All records are written: this producer, or another process that knows the producer id and
    epoch, may end the transaction (KIP-939).
    """
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    """A record or request of the transaction has failed: it can only be aborted."""
    FATAL_ERROR = "fatal error"
    """The producer has failed: it can only be closed."""


class Call(Enum):
    """A public method of the producer."""

    START = "start"
    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


_S = TransactionState

# The states that follow each state. The fatal error follows every state, and is the last.
_NEXT: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING}),
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED}),
    _S.READY: frozenset({_S.IN_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.PREPARING, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.PREPARING: frozenset({_S.PREPARED, _S.ABORTING, _S.ABORTABLE_ERROR}),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING}),
    # An abort may replace a commit that is not sent yet.
    _S.COMMITTING: frozenset({_S.READY, _S.INITIALIZING, _S.ABORTABLE_ERROR, _S.ABORTING}),
    # Failures during an abort don't matter, except that of the abort request: it is fatal, because
    # no other action is left (KAFKA-19250).
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
    _S.COMMITTING: "a commit is running: call commit_transaction() again to wait for its end",
    _S.ABORTING: "an abort is running: call abort_transaction() again to wait for its end",
    _S.ABORTABLE_ERROR: "the transaction has failed: call abort_transaction()",
    _S.FATAL_ERROR: "the producer can't continue: close it and create a new one",
}


def may_follow(source: TransactionState, target: TransactionState) -> bool:
    """Return whether a producer may go from ``source`` to ``target``."""
    return target in _NEXT[source] or (target is _S.FATAL_ERROR and source is not target)


def refusal(call: Call, state: TransactionState) -> str:
    """Return the error text for a call that a state does not allow, with the call that it does."""
    return f"{call.value}() in state {state.value!r}: {_ADVICE[state]}"


class TransactionStatus:
    """The state of one transactional producer.

    Attributes:
        state: the current state.
        error: the cause of one of the two error states; None in other states.
        closed: the error of every call after :meth:`close`; None before.
        may_append: whether a record may be appended now: a transaction is open and has not failed.
        number: the number of transactions that have begun.
    """

    def __init__(self, transactional_id: str) -> None:
        self.state: TransactionState = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        self.closed: ProducerClosedError | None = None
        self.may_append: bool = False
        self.number: int = 0
        self._id = transactional_id

    def go(self, state: TransactionState, error: KafkaError | None = None) -> None:
        """Enter a state; ``error`` is the cause of an error state."""
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
        """Check that the current state allows a call.

        Raises:
            ProducerClosedError: if the producer is closed.
            TransactionStateError: if the state is not one of those allowed.
            KafkaError: if the transaction or the producer has failed.
        """
        if self.closed is not None:
            raise self.closed.with_traceback(None)
        if self.state not in allowed:
            # These errors are raised again and again. Their tracebacks are dropped, because they
            # would grow with each call.
            raise (
                self.error.with_traceback(None)
                if self.error is not None
                else TransactionStateError(refusal(call, self.state))
            )
