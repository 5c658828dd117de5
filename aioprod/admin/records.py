"""Deleting records, and describing the producers of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioprod.admin.answers import outcome, partition_name
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver
from aioprod.admin.results import Results
from aioprod.arguments import check_by_number, check_partitions
from aioprod.errors import KafkaError
from aioprod.protocol.consumer_protocol import group_by_topic
from aioprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aioprod.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from aioprod.protocol.messages.describe_producers import ProducerState as DescribedProducer
from aioprod.types import TopicPartition

#: Use instead of an offset: stands for the high watermark.
TO_THE_END = -1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer in a partition.

    Attributes:
        producer_id, producer_epoch: id and epoch of the producer.
        last_sequence: the sequence number of its last record in the partition.
        last_timestamp: timestamp of its last record in the partition, in milliseconds since 1970.
        coordinator_epoch: epoch of the coordinator that ended its last transaction; None if no
            transaction has ended.
        transaction_start_offset: the first offset of its open transaction; None if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class RecordCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset (KIP-107), and return the first remaining offset
        of each partition.

        Args:
            before: for each partition the first offset to keep; -1 (``TO_THE_END``) deletes all
                records.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as OFFSET_OUT_OF_RANGE,
                POLICY_VIOLATION (``cleanup.policy`` is not ``delete``). Raised by
                ``results[partition]`` or ``results.check()``.
        """
        wanted = check_by_number(
            "before", before, TO_THE_END, "an offset of at least 0, or TO_THE_END"
        )

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, int | KafkaError]:
            async def at(
                node_id: int, partitions: list[TopicPartition]
            ) -> Mapping[TopicPartition, int | KafkaError]:
                connection = await self._driver.node(node_id)
                topics = [
                    DeleteRecordsTopic(
                        topic,
                        [
                            DeleteRecordsPartition(number, wanted[TopicPartition(topic, number)])
                            for number in numbers
                        ],
                    )
                    for topic, numbers in group_by_topic(partitions).items()
                ]
                reply = await connection.request(DeleteRecordsRequest(topics, attempt.timeout_ms))
                return {
                    tp: outcome(
                        each.error_code,
                        f"records of {partition_name(tp)} before offset {wanted[tp]}",
                        None,
                        each.low_watermark,
                    )
                    for topic in reply.topics
                    for each in topic.partitions
                    for tp in (TopicPartition(topic.name, each.partition_index),)
                }

            return await self._driver.from_leaders(attempt.items, at)

        return await self._driver.each("delete_records", wanted, ask, timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the idempotent and transactional producers of partitions (KIP-664).

        Args:
            partitions: the partitions.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as UNKNOWN_TOPIC_OR_PARTITION. Raised
                by ``results[partition]`` or ``results.check()``.
        """

        async def ask(
            attempt: Attempt[TopicPartition],
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            async def at(
                node_id: int, wanted: list[TopicPartition]
            ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
                connection = await self._driver.node(node_id)
                reply = await connection.request(
                    DescribeProducersRequest(
                        [
                            TopicRequest(topic, numbers)
                            for topic, numbers in group_by_topic(wanted).items()
                        ]
                    )
                )
                return {
                    tp: outcome(
                        each.error_code,
                        f"producers of {partition_name(tp)}",
                        each.error_message,
                        tuple(map(_producer, each.active_producers)),
                    )
                    for topic in reply.topics
                    for each in topic.partitions
                    for tp in (TopicPartition(topic.name, each.partition_index),)
                }

            return await self._driver.from_leaders(attempt.items, at)

        return await self._driver.each(
            "describe_producers", check_partitions(partitions), ask, timeout_ms
        )


def _producer(answer: DescribedProducer) -> ProducerState:
    return ProducerState(
        answer.producer_id,
        answer.producer_epoch,
        answer.last_sequence,
        answer.last_timestamp,
        answer.coordinator_epoch if answer.coordinator_epoch >= 0 else None,
        answer.current_txn_start_offset if answer.current_txn_start_offset >= 0 else None,
    )
