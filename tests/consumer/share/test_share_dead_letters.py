"""Dead letters that the broker writes (KIP-1191): Apache Kafka 4.4, and the embedded broker."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import AcknowledgeType, Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from aioprod.admin import NewTopic
from tests.consumer.share.share_groups import ShareTopic, take

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT = AcknowledgeType.REJECT


async def create_dead_letter_topic(kafka: str, name: str, enabled: str = "true") -> None:
    configs = {"errors.deadletterqueue.group.enable": enabled}
    async with Admin(kafka) as admin:
        await admin.create_topics(NewTopic(name, 1, configs=configs))


async def configure(topic: ShareTopic, dead: str, copy: str) -> None:
    """Give the topic a group whose dead letters go to ``dead`` after two deliveries."""
    await topic.create(
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_copy_record_enable=copy,
    )


async def write(topic: ShareTopic) -> None:
    async with Producer(topic.kafka) as producer:
        for number in range(4):
            await producer.send(topic.topic, b"%d" % number, key=b"key-%d" % number)


async def process(topic: ShareTopic) -> None:
    """Reject record 1, fail with record 2 twice, and accept the others."""
    kinds = {b"1": REJECT, b"2": RELEASE}
    async with topic.consumer(**EXPLICIT) as consumer:
        for count in (4, 1):
            for record in await take(consumer, count):
                assert record.value is not None
                consumer.acknowledge(record, kinds.get(record.value, ACCEPT))
            assert set((await consumer.commit()).values()) == {None}


async def dead_letters(kafka: str, dead: str) -> list[ConsumerRecord]:
    """The two dead letters, in the order of their offsets in the source."""
    found: list[ConsumerRecord] = []
    async with Consumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(dead, 0)])
        async with asyncio.timeout(20):
            while len(found) < 2:
                found += await consumer.getmany()
    return sorted(found, key=lambda record: dict(record.headers)["__dlq.errors.offset"] or b"")


@pytest.mark.parametrize("copy", ["true", "false"])
async def test_the_broker_writes_what_is_rejected_or_delivered_too_often(
    share_broker: str, copy: str
) -> None:
    topic = ShareTopic(share_broker)
    dead = f"dlq.{topic.topic}"
    await create_dead_letter_topic(share_broker, dead)
    await configure(topic, dead, copy)
    await write(topic)
    await process(topic)
    letters = await dead_letters(share_broker, dead)
    copied = [(b"key-1", b"1"), (b"key-2", b"2")]
    expected = copied if copy == "true" else [(None, None)] * 2
    assert [(letter.key, letter.value) for letter in letters] == expected
    headers = [dict(letter.headers) for letter in letters]
    assert [each["__dlq.errors.offset"] for each in headers] == [b"1", b"2"]
    assert [each["__dlq.errors.delivery.count"] for each in headers] == [b"1", b"2"]
    assert [each["__dlq.errors.message"] for each in headers] == [
        b"Offset rejected by client.",
        b"Offset delivery count exceeded the threshold.",
    ]
    assert {each["__dlq.errors.partition"] for each in headers} == {b"0"}
    assert {each["__dlq.errors.topic"] for each in headers} == {topic.topic.encode()}
    assert {each["__dlq.errors.group"] for each in headers} == {topic.group.encode()}


@pytest.mark.parametrize(("prefix", "enabled"), [("dead.", "true"), ("dlq.", "false")])
async def test_dead_letters_for_a_topic_that_is_not_meant_for_them_are_lost(
    share_broker: str, prefix: str, enabled: str
) -> None:
    refused, served = ShareTopic(share_broker), ShareTopic(share_broker)
    lost, kept = f"{prefix}{refused.topic}", f"dlq.{served.topic}"
    await create_dead_letter_topic(share_broker, lost, enabled)
    await create_dead_letter_topic(share_broker, kept)
    for topic, dead in ((refused, lost), (served, kept)):
        await configure(topic, dead, "true")
        await write(topic)
        await process(topic)
    assert (
        len(await dead_letters(share_broker, kept)) == 2
    )  # those of the other group were due before
    async with Consumer(bootstrap_servers=share_broker) as consumer:
        partition = TopicPartition(lost, 0)
        assert await consumer.end_offsets([partition]) == {partition: 0}
