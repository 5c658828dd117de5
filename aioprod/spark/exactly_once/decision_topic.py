"""Stores decisions that are too long for an offset's metadata as records of a compacted topic, one
per sink.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aioprod.consumer.partition_reader import FetchSettings, PartitionReader
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.producer.producer import Producer
from aioprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioprod.spark.coordination import Coordination
from aioprod.spark.exactly_once.decision import DecisionError
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.waiting import named_wait
from aioprod.types import TopicPartition

_PARTITIONS = 1
_BROKERS_DEFAULT = -1
_CREATED = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS  # brokers get it a moment later


class Place(NamedTuple):
    """The place of a decision's record."""

    topic: str
    partition: int
    offset: int


def place_of(text: str) -> Place | None:
    """Parse an offset's metadata that refers to a record; return None if it is the decision
    itself.
    """
    found = re.fullmatch(r"aioprod1@([\w.-]+)/(\d+)/(\d+)", text)
    return Place(found[1], int(found[2]), int(found[3])) if found else None


async def write(
    coordination: Coordination, producer: Producer, topic: str, sink: Sink, text: str
) -> str:
    """Write a decision to the topic, as part of the producer's open transaction.

    Creating the topic takes at most `Coordination.limit_s`; sending the record is limited by
    `max_block_ms` and `delivery_timeout_ms`.

    Returns:
        The text that refers to the record.

    Raises:
        BrokerError: if the topic is missing and this client is not authorized to create it.
        KafkaError: if the record could not be written.
    """
    await _ensure(coordination, topic)
    with named_wait(f"writing a decision to {topic}", "kafka.delivery.timeout.ms"):
        metadata = await producer.send_and_wait(topic, text.encode(), key=sink.driver_id.encode())
    return f"aioprod1@{metadata.topic}/{metadata.partition}/{metadata.offset}"


async def read(coordination: Coordination, place: Place) -> str:
    """Read a decision, within twice `Coordination.limit_s`.

    Raises:
        DecisionError: if the record does not exist any more.
        KafkaError: if it can't be read.
    """
    settings = FetchSettings(retry_limit_ms=max(1, int(coordination.limit_s * 1000)))
    reader = PartitionReader(
        coordination.client,
        TopicPartition(place.topic, place.partition),
        place.offset,
        place.offset + 1,
        settings,
    )
    what = f"reading the decision at offset {place.offset} of {place.topic}-{place.partition}"
    with named_wait(what, "kafka.max.block.ms without progress"):
        async for fetched in reader:
            for record in fetched.records():
                return (record.value or b"").decode()
    raise DecisionError(
        f"the decision at offset {place.offset} of {place.topic}-{place.partition} is gone; "
        "does it have cleanup.policy=compact?"
    )


async def _ensure(coordination: Coordination, topic: str) -> None:
    """Create the topic if it is missing."""
    await coordination.retry(
        lambda: _create_if_missing(coordination, topic),
        f"creating decisionTopic {topic}",
        lambda error: (
            isinstance(error, BrokerError) and (error.code.retriable or error.code in _CREATED)
        ),
    )


async def _create_if_missing(coordination: Coordination, topic: str) -> None:
    snapshot = await coordination.client.refresh_topics([topic])
    if not (code := snapshot.topics[topic].error):
        return
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise BrokerError(code, f"decisionTopic {topic}")
    wanted = CreatableTopic(
        name=topic,
        num_partitions=_PARTITIONS,
        replication_factor=_BROKERS_DEFAULT,
        configs=[CreatableTopicConfig("cleanup.policy", "compact")],
    )
    reply = await coordination.client.request(
        CreateTopicsRequest(topics=[wanted]), snapshot.controller_id
    )
    code = ErrorCode.of(reply.topics[0].error_code)
    if code and code is not ErrorCode.TOPIC_ALREADY_EXISTS and not code.retriable:
        raise BrokerError(
            code,
            (
                f"decisionTopic {topic} is missing and can't be created; create it with "
                "cleanup.policy=compact"
            ),
        )
    raise BrokerError(code, f"decisionTopic {topic} is not there yet")
