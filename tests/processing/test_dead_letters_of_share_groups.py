"""Dead letters that the broker writes for share groups have their content, and are sent again."""

from __future__ import annotations

import pytest

from aioprod import Admin, Producer, TopicPartition
from aioprod.admin import ConfigResource, NewTopic
from aioprod.processing import Record, RetryPolicy, ShareProcessor
from aioprod.processing.dead_letters import DeadLetter, Redrive, Selection, read_dead_letters
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

DEAD = "dlq.mails"


async def reject(broker: EmbeddedCluster, number: int, *, copies: bool) -> None:
    """Write records that a member of a share group rejects."""
    servers = broker.bootstrap_servers
    if "mails" not in broker.topics:
        async with Admin(servers) as admin:
            configs = {"errors.deadletterqueue.group.enable": "true"}
            topics = [NewTopic("mails", 1), NewTopic(DEAD, 1, configs=configs)]
            (await admin.create_topics(topics)).check()
            settings = {
                "errors.deadletterqueue.topic.name": DEAD,
                "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
                "share.auto.offset.reset": "earliest",
            }
            (await admin.incremental_alter_configs({ConfigResource.group("g"): settings})).check()
    wanted = len(broker.records(DEAD)) + number
    async with Producer(servers) as producer:
        for each in range(number):
            headers = [("trace", b"%d" % each)]
            await producer.send("mails", b"v%d" % each, key=b"k%d" % each, headers=headers)
    await handled(broker, wanted)


async def handled(broker: EmbeddedCluster, wanted: int) -> None:
    async def fails(record: Record[bytes | None, bytes | None]) -> None:
        raise ValueError("bounced")

    policy = RetryPolicy(attempts=1, not_retriable=(ValueError,))
    async with ShareProcessor(
        fails,
        "mails",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        reject_failed=True,
        retry=policy,
    ):
        await until(lambda: len(broker.records(DEAD)) == wanted)


async def letters(broker: EmbeddedCluster) -> list[DeadLetter]:
    return [each async for each in read_dead_letters(DEAD, broker.bootstrap_servers)]


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "not-copied"])
async def test_the_content_is_that_of_the_original(broker: EmbeddedCluster, copies: bool) -> None:
    await reject(broker, 3, copies=copies)
    assert [record.value for record in broker.records(DEAD)] == [
        b"v%d" % number if copies else None for number in range(3)
    ]
    found = await letters(broker)
    assert [each.value for each in found] == [b"v0", b"v1", b"v2"]
    assert {each.group_id for each in found} == {"g"}
    assert {each.message for each in found} == {"Offset rejected by client."}
    chosen = Selection(key=b"k1")
    await Redrive(DEAD, broker.bootstrap_servers, selection=chosen).run()
    last = broker.records("mails")[-1]
    assert (last.key, last.value) == (b"k1", b"v1")
    assert last.headers == (("trace", b"1"), ("aioprod.redrives", b"1"))


async def test_the_count_of_redrives_goes_round(broker: EmbeddedCluster) -> None:
    await reject(broker, 1, copies=False)
    for turn in range(1, 6):
        await Redrive(DEAD, broker.bootstrap_servers).run()
        await handled(broker, min(turn, 3) + 1)
    assert [each.redrives for each in await letters(broker)] == [0, 1, 2, 3]


@pytest.mark.parametrize("copies", [True, False], ids=["copied", "not-copied"])
async def test_a_deleted_original(
    broker: EmbeddedCluster, copies: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await reject(broker, 2, copies=copies)
    async with Admin(broker.bootstrap_servers) as admin:
        (await admin.delete_records({TopicPartition("mails", 0): 1})).check()
    first, second = await letters(broker)
    assert (first.missing, second.missing) == (not copies, False)
    redrive = Redrive(DEAD, broker.bootstrap_servers)
    counts = await redrive.run()
    assert redrive.records_sent == 1 + copies
    lost = sum(number for kind, number in counts.items() if kind.verdict == "missing")
    assert lost == (not copies)
    assert ("offset 0 of mails-0 is deleted" in caplog.text.replace("\n", " ")) is not copies


async def test_an_original_of_a_topic_that_was_created_again(broker: EmbeddedCluster) -> None:
    await reject(broker, 2, copies=True)
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.delete_topics("mails")
        await admin.create_topics(NewTopic("mails", 1))
    async with Producer(broker.bootstrap_servers) as producer:
        for _ in range(2):
            await producer.send("mails", b"another")
    assert [each.value for each in await letters(broker)] == [b"v0", b"v1"]
