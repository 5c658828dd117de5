"""The action after a coordinator's reply, by its error code, and after a failed batch: tables with
the rules of Kafka 4.1's producer.

Other codes have a default action, so that a new or unexpected code does not end a task.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum

from aioprod.error_codes import COORDINATOR_MOVED, ErrorCode
from aioprod.errors import (
    AbortableTransactionError,
    BrokerError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)


class CoordinatorApi(Enum):
    """The requests to coordinators that belong to transactions."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class ReplyAction(IntEnum):
    """The action after a reply. If its codes differ, the greatest action counts."""

    DONE = 0
    RETRY = 1
    """Send the request again, after the backoff."""
    NEW_COORDINATOR = 2
    """Find the coordinator, then send the request again."""
    ABORTABLE = 3
    """The transaction has to be aborted (KIP-1050)."""
    FATAL = 4
    FENCED = 5
    """Fatal: another producer has the transactional id, or the coordinator fenced this one because
    the transaction was open for too long.
    """


_E = ErrorCode
_MOVED = dict.fromkeys(COORDINATOR_MOVED, ReplyAction.NEW_COORDINATOR)
# Brokers before Kafka 2.7 reply INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED (KIP-588).
_FENCED = dict.fromkeys((_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED), ReplyAction.FENCED)
_LOST = dict.fromkeys(
    (
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.INVALID_TXN_STATE,
        _E.INVALID_PRODUCER_ID_MAPPING,
    ),
    ReplyAction.FATAL,
)
_ABORTABLE = {
    _E.TRANSACTION_ABORTABLE: ReplyAction.ABORTABLE,
    _E.GROUP_AUTHORIZATION_FAILED: ReplyAction.ABORTABLE,
}
# The coordinator has lost the producer: after the abort a new epoch makes it known again (KIP-360).
_UNKNOWN_PRODUCER = {_E.UNKNOWN_PRODUCER_ID: ReplyAction.ABORTABLE}

_RULES: dict[CoordinatorApi, dict[ErrorCode, ReplyAction]] = {
    CoordinatorApi.FIND_COORDINATOR: {**_ABORTABLE},
    CoordinatorApi.INIT_PRODUCER_ID: {
        **_MOVED,
        **_FENCED,
        # Nothing is lost: when the ACL is granted, the next attempt succeeds.
        **dict.fromkeys(
            (
                _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                _E.CLUSTER_AUTHORIZATION_FAILED,
                _E.TRANSACTION_ABORTABLE,
            ),
            ReplyAction.ABORTABLE,
        ),
    },
    CoordinatorApi.ADD_PARTITIONS: {**_MOVED, **_FENCED, **_LOST, **_UNKNOWN_PRODUCER},
    CoordinatorApi.ADD_OFFSETS: {**_MOVED, **_FENCED, **_LOST, **_UNKNOWN_PRODUCER, **_ABORTABLE},
    CoordinatorApi.COMMIT_OFFSETS: {
        **_MOVED,
        **_FENCED,
        **_ABORTABLE,
        _E.REQUEST_TIMED_OUT: ReplyAction.NEW_COORDINATOR,
        # The member was replaced, or its assignment is outdated: its offsets must not count. The
        # producer can continue.
        **dict.fromkeys(
            (
                _E.FENCED_INSTANCE_ID,
                _E.UNKNOWN_MEMBER_ID,
                _E.ILLEGAL_GENERATION,
                _E.STALE_MEMBER_EPOCH,
                _E.REBALANCE_IN_PROGRESS,
            ),
            ReplyAction.ABORTABLE,
        ),
        # The arguments of this call are wrong. Java fails the producer here; an abort is as safe.
        **dict.fromkeys(
            (
                _E.TOPIC_AUTHORIZATION_FAILED,
                _E.OFFSET_METADATA_TOO_LARGE,
                _E.INVALID_COMMIT_OFFSET_SIZE,
                _E.INVALID_GROUP_ID,
            ),
            ReplyAction.ABORTABLE,
        ),
    },
    CoordinatorApi.END: {
        **_MOVED,
        **_FENCED,
        **_LOST,
        **_UNKNOWN_PRODUCER,
        _E.TRANSACTION_ABORTABLE: ReplyAction.ABORTABLE,
    },
}
# Unexpected codes: for a partition they fail the transaction, for other requests the producer.
_OTHERWISE = {CoordinatorApi.ADD_PARTITIONS: ReplyAction.ABORTABLE}

_FATAL_FOR_A_BATCH = frozenset(
    {
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.PRODUCER_FENCED,
        _E.UNSUPPORTED_VERSION,
        _E.INVALID_PRODUCER_ID_MAPPING,
    }
)


def action_of_code(api: CoordinatorApi, code: ErrorCode) -> ReplyAction:
    """Return the action for one code of a reply."""
    if code == _E.NONE:
        return ReplyAction.DONE
    rule = _RULES[api].get(code)
    if rule is not None:
        return rule
    return ReplyAction.RETRY if code.retriable else _OTHERWISE.get(api, ReplyAction.FATAL)


def action_of_reply(
    api: CoordinatorApi, codes: Iterable[ErrorCode]
) -> tuple[ReplyAction, ErrorCode]:
    """Return the action for a reply with a code for each partition, and the code that decides."""
    wrong = [code for code in codes if code != _E.NONE]
    # "Not attempted" means that another partition has the reason.
    reasons = [code for code in wrong if code != _E.OPERATION_NOT_ATTEMPTED] or wrong
    return max(
        ((action_of_code(api, code), code) for code in reasons), default=(ReplyAction.DONE, _E.NONE)
    )


def batch_failure(where: str, error: KafkaError) -> AbortableTransactionError | FatalProducerError:
    """Return the error with which a failed record or batch fails its transaction."""
    if isinstance(error, FatalProducerError):
        return error
    code = error.code if isinstance(error, BrokerError) else _E.TRANSACTION_ABORTABLE
    if isinstance(error, UnsupportedVersionError):
        code = _E.UNSUPPORTED_VERSION
    failure: AbortableTransactionError | FatalProducerError
    if code not in _FATAL_FOR_A_BATCH:
        reason = "" if isinstance(error, BrokerError) else f" ({error})"
        failure = AbortableTransactionError(
            code, f"{where}: a record was not written{reason}; call abort_transaction()"
        )
    elif code == _E.PRODUCER_FENCED:
        failure = ProducerFencedError(
            code,
            (f"{where}: another producer uses the transactional id ({error}); close this producer"),
        )
    else:
        failure = FatalProducerError(code, f"{where}: {error}; close this producer")
    failure.__cause__ = error
    return failure
