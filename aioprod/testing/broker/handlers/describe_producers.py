"""DescribeProducers (KIP-664): the idempotent and transactional producers of a partition."""

from __future__ import annotations

from aioprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.handlers.registry import handles
from aioprod.testing.broker.leaders import check_leader
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.request_context import RequestContext


@handles(DescribeProducersRequest)
async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe each partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [_describe(topic.name, index, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(name: str, index: int, context: RequestContext) -> PartitionResponse:
    try:
        if code := context.failure(name, index):
            raise RequestError(code, code.description)
        partition = context.store.get_partition(name, index)
        check_leader(partition, context)
    except RequestError as error:
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
