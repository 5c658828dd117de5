"""Commits the transactions of a decided batch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.spark.coordination import Coordination, together
from aioprod.spark.errors import LostTransactionsError, SinkError
from aioprod.spark.exactly_once import transactions
from aioprod.spark.exactly_once.decision import DecidedTransaction, Decision
from aioprod.spark.exactly_once.ids import Sink
from aioprod.types import PreparedTransaction

log: Logger = get_logger(__name__)

# Error codes of a coordinator that has aborted a transaction, or does not know it any more.
_LOST = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
AT_ONCE = 64
"""The number of transactions that are committed at the same time."""


async def end_decided(
    coordination: Coordination,
    sink: Sink,
    decision: Decision,
    *,
    skip_lost: int | None = None,
    only: Collection[str] | None = None,
) -> None:
    """Commit the transactions of a decision that are not committed yet.

    Finding coordinators takes at most `Coordination.limit_s`, and so does each group of 64
    transactions, which are committed at the same time.

    Args:
        skip_lost: the option ``skipLostBatch``: the number of a batch whose lost transactions are
            only logged.
        only: the transactional ids to commit; None for all.

    Raises:
        LostTransactionsError: if some were already aborted; all others are committed.
        SinkError: if some are not committed yet, but still can be.
    """
    chosen = [
        (transaction, decided)
        for transaction, decided in zip(decision.prepared(sink), decision.transactions, strict=True)
        if only is None or transaction.transactional_id in only
    ]
    if not chosen:
        return
    await coordination.find_coordinators(
        [transaction.transactional_id for transaction, _ in chosen]
    )
    gate = asyncio.Semaphore(AT_ONCE)
    outcomes = await together(
        (_commit(coordination, gate, transaction) for transaction, _ in chosen)
    )
    lost = [
        (decided, code)
        for (_, decided), code in zip(chosen, outcomes, strict=True)
        if code in _LOST
    ]
    pending = [error for error in outcomes if isinstance(error, KafkaError)]
    if lost:
        error = _lost_error(decision, lost, len(chosen))
        if skip_lost != decision.version:
            raise error
        log.error("skipLostBatch=%d: %s", skip_lost, error)
    if pending:
        raise SinkError(
            f"batch {decision.version} is decided, but {len(pending)} of {len(chosen)} "
            f"transactions are not committed yet: {pending[0]}. "
            "Start the query again before they time out (kafka.transaction.timeout.ms): it "
            "will commit them"
        )


async def _commit(
    coordination: Coordination, gate: asyncio.Semaphore, transaction: PreparedTransaction
) -> ErrorCode | KafkaError:
    """Return NONE, or the reason why the transaction is lost or not committed yet."""
    async with gate:
        try:
            code = await transactions.end_transaction(coordination, transaction, commit=True)
        except KafkaError as error:
            return error
    return (
        code
        if not code or code in _LOST
        else BrokerError(code, f"transactional id {transaction.transactional_id!r}")
    )


def _lost_error(
    decision: Decision, lost: list[tuple[DecidedTransaction, ErrorCode]], asked: int
) -> LostTransactionsError:
    rows = sum(each.rows for each, _ in lost)
    partitions = ", ".join(str(each.partition) for each, _ in lost[:10]) + (
        ", ..." if len(lost) > 10 else ""
    )
    codes = ", ".join(sorted({code.name for _, code in lost}))
    return LostTransactionsError(
        f"batch {decision.version} was decided, but {len(lost)} of {asked} transactions had "
        f"been aborted before they could be committed ({codes}): "
        f"{rows} of {decision.rows} rows are lost (tasks {partitions}), the others are "
        "visible. The usual reason: between the decision and now the "
        "driver was down for longer than kafka.transaction.timeout.ms. To continue without "
        f"these rows set the option skipLostBatch={decision.version}",
        decision.version,
        rows,
    )
