"""Listing and describing transactions, and fencing producers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, overload

from aioprod.admin.answers import check, single
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver, gather_outcomes
from aioprod.admin.results import Results
from aioprod.arguments import check_choices, check_items, check_names
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.config.checks import check_string, in_range
from aioprod.errors import KafkaError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioprod.protocol.messages.list_transactions import ListTransactionsRequest
from aioprod.types import TopicPartition

_NO_DURATION = -1
TRANSACTION_STATES = (
    *("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"),
    *("PrepareEpochFence", "Dead"),
)
_check_duration = in_range(_NO_DURATION, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and its state, such as ``"Ongoing"``, ``"PrepareCommit"``,
    ``"CompleteAbort"`` or ``"Empty"``.
    """

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its last transaction.

    Attributes:
        state: such as ``"Ongoing"``, ``"PrepareCommit"``, ``"CompleteAbort"``, ``"Empty"``.
        producer_id, producer_epoch: the current producer.
        transaction_timeout_ms: time after which the coordinator aborts an open transaction.
        transaction_start_time_ms: milliseconds since 1970; None if there was no transaction.
        partitions: the partitions that the open transaction has written to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    partitions: frozenset[TopicPartition]


class FencedProducer(NamedTuple):
    """The new producer id and epoch of a transactional id; producers with older ones are fenced."""

    producer_id: int
    producer_epoch: int


class TransactionCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = _NO_DURATION,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> dict[str, TransactionListing]:
        """List all transactional ids (KIP-664; brokers since 3.0).

        Args:
            states: only ids in one of these states: ``"Ongoing"``, ``"PrepareCommit"``,
                ``"PrepareAbort"``, ``"CompleteCommit"``, ``"CompleteAbort"``, ``"Empty"``,
                ``"PrepareEpochFence"`` or ``"Dead"``.
            producer_ids: only transactional ids with one of these producer ids.
            duration_ms: only ids with a transaction that has been open for longer (KIP-994; brokers
                since 3.8).
            pattern: only ids that this regular expression (RE2/J) matches completely (brokers since
                4.1).
            timeout_ms: limit on the whole call.

        Raises:
            ConfigError: if a state is not one of these.
            KafkaTimeoutError: if a broker does not respond, so that its transactions are unknown.
            UnsupportedVersionError, ProtocolError: if a broker is too old for the call or one of
                the filters.
        """
        if pattern is not None:
            check_string("pattern", pattern)
        request = ListTransactionsRequest(
            check_choices("states", states, TRANSACTION_STATES),
            check_items("producer_ids", producer_ids, int, "producer ids"),
            _check_duration("duration_ms", duration_ms),
            pattern,
        )

        async def at(connection: Connection) -> list[TransactionListing]:
            reply = await connection.request(request)
            check(reply.error_code, f"transactions of {connection.address}")
            return [
                TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
                for each in reply.transaction_states
            ]

        found = await self._driver.from_every_broker("list_transactions", at, timeout_ms)
        return {
            each.transactional_id: each
            for each in sorted(found, key=lambda each: each.transactional_id)
        }

    @overload
    async def describe_transactions(  # type: ignore[overload-overlap]
        self, transactional_ids: str, *, timeout_ms: float | None = ...
    ) -> TransactionDescription: ...

    @overload
    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = ...
    ) -> Results[str, TransactionDescription]: ...

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> TransactionDescription | Results[str, TransactionDescription]:
        """Describe transactional ids: their state, and the partitions that their open transactions
        have written to (KIP-664; brokers since 3.0).

        Args:
            transactional_ids: one, whose error is raised, or several, each with a separate result.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as TRANSACTIONAL_ID_NOT_FOUND.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, TransactionDescription | KafkaError]:
            async def describe(transactional_id: str) -> TransactionDescription:
                def prepare(connection: Connection) -> tuple[DescribeTransactionsRequest, int]:
                    return DescribeTransactionsRequest([transactional_id]), connection.pick_version(
                        DescribeTransactionsRequest
                    )

                reply: DescribeTransactionsResponse = await self._driver.from_coordinator(
                    CoordinatorType.TRANSACTION, transactional_id, attempt, prepare
                )
                return _described(transactional_id, reply)

            return await gather_outcomes(attempt.items, describe)

        if isinstance(transactional_ids, str):
            return (
                await self._driver.each(
                    "describe_transactions", [transactional_ids], ask, timeout_ms
                )
            )[transactional_ids]
        names = check_names("transactional_ids", transactional_ids)
        return await self._driver.each("describe_transactions", names, ask, timeout_ms)

    @overload
    async def fence_producers(  # type: ignore[overload-overlap]
        self, transactional_ids: str, *, timeout_ms: float | None = ...
    ) -> FencedProducer: ...

    @overload
    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = ...
    ) -> Results[str, FencedProducer]: ...

    async def fence_producers(
        self, transactional_ids: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> FencedProducer | Results[str, FencedProducer]:
        """Fence the current producers of transactional ids, and abort their open transactions.

        Args:
            transactional_ids: one, whose error is raised, or several, each with a separate result.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """

        async def ask(attempt: Attempt[str]) -> Mapping[str, FencedProducer | KafkaError]:
            async def fence(transactional_id: str) -> FencedProducer:
                def prepare(connection: Connection) -> tuple[InitProducerIdRequest, int]:
                    # The timeout does not matter, as no transaction follows.
                    request = InitProducerIdRequest(
                        transactional_id=transactional_id, transaction_timeout_ms=attempt.timeout_ms
                    )
                    return request, connection.pick_version(InitProducerIdRequest)

                reply: InitProducerIdResponse = await self._driver.from_coordinator(
                    CoordinatorType.TRANSACTION, transactional_id, attempt, prepare
                )
                check(reply.error_code, f"transactional id {transactional_id!r}")
                return FencedProducer(reply.producer_id, reply.producer_epoch)

            return await gather_outcomes(attempt.items, fence)

        if isinstance(transactional_ids, str):
            return (
                await self._driver.each("fence_producers", [transactional_ids], ask, timeout_ms)
            )[transactional_ids]
        names = check_names("transactional_ids", transactional_ids)
        return await self._driver.each("fence_producers", names, ask, timeout_ms)


def _described(
    transactional_id: str, reply: DescribeTransactionsResponse
) -> TransactionDescription:
    answer = single(reply.transaction_states, f"transactional id {transactional_id!r}")
    check(answer.error_code, f"transactional id {transactional_id!r}")
    return TransactionDescription(
        transactional_id,
        answer.transaction_state,
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_timeout_ms,
        answer.transaction_start_time_ms if answer.transaction_start_time_ms >= 0 else None,
        frozenset(
            TopicPartition(each.topic, number)
            for each in answer.topics
            for number in each.partitions
        ),
    )
