"""Transactions of other producers: end, describe, list and abort them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.error_codes import COORDINATOR_MOVED, ErrorCode
from aioprod.errors import AuthenticationError, BrokerError, KafkaError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.producer.transactions import requests
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.spark.coordination import Coordination, together
from aioprod.spark.exactly_once.ages import LIST_LIMIT_MS, AgeLimit, IsOld, age_test
from aioprod.types import PreparedTransaction

log: Logger = get_logger(__name__)

ONGOING = "Ongoing"
_ABORTED = ("PrepareAbort", "CompleteAbort")
_TRANSACTION = CoordinatorType.TRANSACTION
# The request only aborts the id's transaction; the next producer with the id sets its own timeout.
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """The state of a transactional id according to its coordinator.

    Attributes:
        state: Kafka's name of the state, such as ``Ongoing``, or the error code's name if the id is
            unknown.
        timeout_ms: the maximum duration of a transaction.
        is_old: True if the open transaction is older than the caller's age limit.
    """

    state: str
    producer_id: int = -1
    epoch: int = -1
    timeout_ms: int = -1
    is_old: bool = False

    def is_open(self, transaction: PreparedTransaction) -> bool:
        """Return whether this exact transaction is open."""
        return (self.state, self.producer_id, self.epoch) == (
            ONGOING,
            transaction.producer_id,
            transaction.epoch,
        )

    def was_aborted(self, transaction: PreparedTransaction) -> bool:
        """Return whether this exact transaction was certainly aborted. Its transactional id is not
        used again before its batch is finished, so it is the last one of this producer id.
        """
        return (
            self.state in _ABORTED
            and self.producer_id == transaction.producer_id
            and self.epoch >= transaction.epoch
        )


async def end_transaction(
    coordination: Coordination, transaction: PreparedTransaction, *, commit: bool
) -> ErrorCode:
    """Commit or abort, within `Coordination.limit_s`; a retry is harmless (KIP-98, KIP-890).

    Returns:
        NONE, or the coordinator's permanent error.

    Raises:
        KafkaError: if no final response arrived within the limit.
    """

    def prepare(peer: Connection) -> tuple[EndTxnRequest, int]:
        identity = ProducerIdAndEpoch((transaction.producer_id, transaction.epoch))
        return requests.end(
            peer, transaction.transactional_id, identity, commit=commit, v2=transaction.v2
        )

    reply = await coordination.ask(
        _TRANSACTION,
        transaction.transactional_id,
        prepare,
        lambda reply: ErrorCode.of(reply.error_code),
    )
    return ErrorCode.of(reply.error_code)


async def abort_transaction(coordination: Coordination, transactional_id: str) -> None:
    """Abort the open transaction of an id, within `Coordination.limit_s`, and fence its producer.

    Raises:
        KafkaError: if the request is refused, or not complete within the limit.
    """

    def prepare(peer: Connection) -> tuple[InitProducerIdRequest, int]:
        return requests.init_producer_id(peer, transactional_id, _TIMEOUT_MS, None)

    reply = await coordination.ask(
        _TRANSACTION, transactional_id, prepare, lambda reply: ErrorCode.of(reply.error_code)
    )
    code = ErrorCode.of(reply.error_code)
    if code:
        raise BrokerError(
            code,
            (
                f"transactional id {transactional_id!r} could not be taken over to abort its "
                "transaction"
            ),
        )


async def describe_transactions(
    coordination: Coordination,
    transactional_ids: Collection[str],
    age_limit: AgeLimit | None = None,
) -> dict[str, TransactionStatus]:
    """Return the state of transactions from their coordinators (KIP-664, Kafka 3.0), within
    `Coordination.limit_s`.

    Args:
        age_limit: the limit for `TransactionStatus.is_old`; None if it is not needed.

    Raises:
        KafkaError: if they do not respond within the limit, or the brokers are older.
    """
    found: dict[str, TransactionStatus] = {}

    async def attempt() -> None:
        missing = [each for each in transactional_ids if each not in found]
        by_node: dict[int, list[str]] = {}
        nodes = await coordination.client.coordinators.nodes(_TRANSACTION, missing)
        for each, node in nodes.items():
            by_node.setdefault(node, []).append(each)
        failures = await together(
            _describe_at(coordination, node, ids, found, age_limit) for node, ids in by_node.items()
        )
        for failure in failures:
            if failure is not None:
                raise failure

    await coordination.retry(attempt, "describing transactions")
    return found


async def _describe_at(
    coordination: Coordination,
    node: int,
    ids: list[str],
    found: dict[str, TransactionStatus],
    age_limit: AgeLimit | None,
) -> KafkaError | None:
    coordinators = coordination.client.coordinators
    is_old: IsOld = _never
    try:
        if age_limit is not None:
            # Listed first: a broker that takes over these ids in between is loading them, and
            # responds with an error.
            connection = await coordinators.connection(_TRANSACTION, ids[0])
            is_old = await age_test(coordination, connection, node, age_limit)
        reply = await coordination.client.request(
            DescribeTransactionsRequest(transactional_ids=ids), node
        )
    except UnsupportedVersionError:
        raise
    except KafkaError as error:
        for each in ids:
            coordinators.forget(_TRANSACTION, each)
        return error
    failure: KafkaError | None = None
    for described in reply.transaction_states:
        name, code = described.transactional_id, ErrorCode.of(described.error_code)
        if code.retriable:
            if code in COORDINATOR_MOVED:
                coordinators.forget(_TRANSACTION, name)
            failure = BrokerError(code, f"transactional id {name!r}")
        elif code:
            found[name] = TransactionStatus(code.name)
        else:
            found[name] = TransactionStatus(
                described.transaction_state,
                described.producer_id,
                described.producer_epoch,
                described.transaction_timeout_ms,
                is_old(name, described.transaction_start_time_ms),
            )
    return failure


def _never(transactional_id: str, started_at_ms: int) -> bool:
    return False


async def list_transactions(coordination: Coordination, accept: Callable[[str], bool]) -> list[str]:
    """List the transactional ids with an open transaction (KIP-664, Kafka 3.0).

    Asks all brokers and waits 3 seconds for each, or 6 if it first responds with errors.

    Raises:
        UnsupportedVersionError: if the brokers are older.
        AuthenticationError: if they don't accept this client.
    """
    client = coordination.client
    answers = await together(_list_at(coordination, node) for node in client.snapshot.nodes)
    return sorted({each for listed in answers for each in listed if accept(each)})


async def _list_at(coordination: Coordination, node: int) -> list[str]:
    async def attempt() -> list[str]:
        # In a separate task: the same step's EndTxn is sent first, and does not wait behind this
        # request on a broker that is slow to list.
        request = coordination.client.request(
            ListTransactionsRequest(state_filters=[ONGOING]), node
        )
        reply = await asyncio.wait_for(request, LIST_LIMIT_MS / 1000)
        code = ErrorCode.of(reply.error_code)
        if code:
            raise BrokerError(code, f"ListTransactions of broker {node}")
        return [listed.transactional_id for listed in reply.transaction_states]

    try:
        return await coordination.retry(
            attempt,
            "listing transactions",
            lambda error: isinstance(error, BrokerError),
            limit_s=LIST_LIMIT_MS / 1000,
        )
    except (UnsupportedVersionError, AuthenticationError):
        raise
    except (KafkaError, TimeoutError) as error:
        # A broker that is down coordinates no transactions: another one has them, or will.
        log.warning("open transactions of broker %d are not known: %s", node, error)
        return []
