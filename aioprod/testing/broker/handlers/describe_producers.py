"""DescribeProducers (KIP-664): which idempotent and transactional producers a partition knows."""

from __future__ import annotations

from aioprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from aioprod.testing.broker.exchange import Exchange
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leaders import check_leader
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.store import StoreError


@handles(DescribeProducersRequest)
async def handle(
    request: DescribeProducersRequest, exchange: Exchange
) -> DescribeProducersResponse:
    """Describe each partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_describe(topic.name, index, exchange) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(name: str, index: int, exchange: Exchange) -> PartitionResponse:
    try:
        if code := exchange.failure(name, index):
            raise StoreError(code, code.description)
        partition = exchange.store.get_partition(name, index)
        check_leader(partition, exchange)
    except StoreError as error:
        return PartitionResponse(index, error.code, error.text)
    return PartitionResponse(index, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.newest_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=partition.transactions.first_offset(producer_id),
        )
        for producer_id, entry in partition.producers.entries.items()
    ]
