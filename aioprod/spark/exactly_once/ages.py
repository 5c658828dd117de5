"""Determines how long transactions have been open, by the clock of their coordinator.

A coordinator aborts a transaction that is older than its timeout, but checks only every 10 seconds
(``transaction.abort.timed.out.transaction.cleanup.interval.ms``): an open transaction may be
aborted at any moment. Coordinators do not use the clocks of executors and driver, so those are not
used here either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, RequestTimedOutError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.producer.batch import ProducerIdAndEpoch
from aioprod.producer.transactions import requests
from aioprod.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from aioprod.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.spark.coordination import Coordination
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.ids import Sink

log: Logger = get_logger(__name__)

_TRANSACTION = CoordinatorType.TRANSACTION
_ONGOING = "Ongoing"
# Transactional ids to choose from: for each broker, there is one that it coordinates.
_CLOCK_IDS = 512
# The timeout of a transaction that only reads the clock; normally it is aborted at once.
_CLOCK_TIMEOUT_MS = 10_000
LIST_LIMIT_MS = 3_000
"""A broker that does not list transactions delays a batch by at most this time."""

IsOld = Callable[[str, int], bool]
"""Returns whether a transaction is too old, from its transactional id and its start in milliseconds
by the coordinator's clock.
"""


class AgeLimit(NamedTuple):
    """The age above which transactions are old.

    Attributes:
        sink: the sink that the transactions belong to.
        limit_ms: the age, by the clock of the coordinator.
    """

    sink: Sink
    limit_ms: float


def margin_ms(timeout_ms: float, limit_s: float) -> float:
    """Return how long before its timeout a transaction is too old for a decision.

    The decision and the commits after it take milliseconds. If brokers fail meanwhile, requests are
    retried for ``limit_s`` each (``max.block.ms``). With a short timeout the margin is smaller, to
    leave time for batches.
    """
    return min(timeout_ms / 2, 2 * limit_s * 1000)


async def age_test(
    coordination: Coordination, connection: Connection, node: int, limit: AgeLimit
) -> IsOld:
    """Ask a coordinator which transactions have been open for longer than a limit.

    Kafka 3.8 and newer list them (KIP-994). Older ones, and those that do not list them within 3
    seconds, only return the start time of a transaction. A new transaction then shows their clock,
    with four requests within `Coordination.limit_s` each.

    Raises:
        KafkaError: if the broker does not respond.
    """
    if connection.versions.get(ListTransactionsRequest.API_KEY, (0, 0))[1] >= 1:
        request = ListTransactionsRequest(
            state_filters=[_ONGOING], duration_filter=max(0, int(limit.limit_ms))
        )
        try:
            reply = await connection.request(request, timeout_ms=LIST_LIMIT_MS)
            if code := ErrorCode.of(reply.error_code):
                raise BrokerError(code, "ListTransactions")
        except (RequestTimedOutError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code.retriable:
                raise
            log.warning("broker %d lists no transactions, asking for its time: %s", node, error)
        else:
            old = {listed.transactional_id for listed in reply.transaction_states}
            return lambda name, started_at_ms: name in old
    now_ms = await _clock_of(coordination, node, limit.sink)
    return lambda name, started_at_ms: now_ms - started_at_ms > limit.limit_ms


async def _clock_of(coordination: Coordination, node: int, sink: Sink) -> int:
    """Return a coordinator's time in milliseconds: the start time of a new transaction."""
    names = [sink.clock_id(number) for number in range(_CLOCK_IDS)]
    nodes = await coordination.client.coordinators.nodes(_TRANSACTION, names)
    name = next((name for name in names if nodes[name] == node), None)
    if name is None:
        raise SinkError(
            f"the clock of broker {node} is not known: it coordinates none of {_CLOCK_IDS} "
            "transactional ids; use brokers of Kafka 3.8 or newer, or delivery=at-least-once"
        )

    def init(peer: Connection) -> tuple[InitProducerIdRequest, int]:
        return requests.init_producer_id(peer, name, _CLOCK_TIMEOUT_MS, None)

    begun = await coordination.ask(_TRANSACTION, name, init, _code)
    _check(begun.error_code, name)
    identity = ProducerIdAndEpoch((begun.producer_id, begun.producer_epoch))

    def add(peer: Connection) -> tuple[AddOffsetsToTxnRequest, int]:
        return requests.add_offsets(peer, name, identity, sink.group)

    _check((await coordination.ask(_TRANSACTION, name, add, _code)).error_code, name)

    def describe(peer: Connection) -> tuple[DescribeTransactionsRequest, int]:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return request, peer.pick_version(DescribeTransactionsRequest)

    described = await coordination.ask(
        _TRANSACTION,
        name,
        describe,
        lambda reply: ErrorCode.of(reply.transaction_states[0].error_code),
    )
    _check(described.transaction_states[0].error_code, name)

    def abort(peer: Connection) -> tuple[EndTxnRequest, int]:
        return requests.end(peer, name, identity, commit=False, v2=False)

    await coordination.ask(_TRANSACTION, name, abort, _code)
    return described.transaction_states[0].transaction_start_time_ms


def _code(
    reply: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse,
) -> ErrorCode:
    return ErrorCode.of(reply.error_code)


def _check(code: int, name: str) -> None:
    if found := ErrorCode.of(code):
        raise BrokerError(found, f"transactional id {name!r}, which reads a coordinator's clock")
