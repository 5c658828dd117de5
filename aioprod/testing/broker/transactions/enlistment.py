"""Adds writes to transactions: either the producer adds partitions first and the broker verifies
them, or the write itself adds them (KIP-890).
"""

from __future__ import annotations

from enum import Enum
from typing import Self

from aioprod.error_codes import ErrorCode
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.transactions.coordinator import TransactionCoordinator
from aioprod.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aioprod.types import TopicPartition


class Support(Enum):
    """The transaction protocol of a client, by the version of its request."""

    OLD = "adds partitions with AddPartitionsToTxn and handles INVALID_TXN_STATE"
    ABORTABLE = "also handles TRANSACTION_ABORTABLE"
    ADDS = "adds partitions by writing to them: transaction protocol v2"

    @classmethod
    def of(cls, version: int, *, abortable_from: int, adds_from: int) -> Self:
        """Return the support of a client by its request's version."""
        return cls(
            cls.ADDS
            if version >= adds_from
            else cls.ABORTABLE
            if version >= abortable_from
            else cls.OLD
        )


def enlist_partition(
    coordinator: TransactionCoordinator,
    support: Support,
    name: str,
    identity: ProducerIdAndEpoch,
    partition: TopicPartition,
) -> None:
    """Add a partition to the producer's transaction or verify it; raise RequestError with a code
    that the client supports.
    """
    try:
        if support is Support.ADDS:
            coordinator.add(name, identity, [partition])
        else:
            coordinator.verify(name, identity, partition)
    except RequestError as error:
        raise RequestError(_known_code(error.code, support), error.text) from None


def enlist_group(
    coordinator: TransactionCoordinator,
    support: Support,
    name: str,
    identity: ProducerIdAndEpoch,
    group: str,
) -> None:
    """Add the offsets of a consumer group to the producer's transaction or verify them."""
    try:
        if support is Support.ADDS:
            coordinator.add(name, identity, group=group)
        else:
            coordinator.verify(name, identity, group=group)
    except RequestError as error:
        code = _known_code(error.code, support)
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_ENOUGH_REPLICAS else code,
            error.text,
        ) from None


def _known_code(code: ErrorCode, support: Support) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # the code that Produce and TxnOffsetCommit use
    if support is Support.OLD and code is ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if support is not Support.ADDS and code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # older clients retry after it
    return code
