"""Dead letters are found, and sent again exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from aioprod import (
    ConfigError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    TopicPartition,
)
from aioprod.admin import Admin
from aioprod.processing import ProcessingError, Processor, Record, RetryPolicy
from aioprod.processing.dead_letters import (
    DeadLetterKind,
    Redrive,
    Selection,
    read_dead_letters,
)
from aioprod.testing import ApiKey, EmbeddedCluster, hold
from tests.waiting import until

pytestmark = pytest.mark.virtual_time

DEAD = "orders.dead"
WEEK_MS = 7 * 24 * 3_600_000


def letter(number: int, topic: str = "orders", error: str = "Timeout", **more: Any) -> Any:
    """A record as a processor sends it to its dead-letter topic."""
    headers = [
        ("trace", b"t%d" % number),
        ("aioprod.original-topic", topic.encode()),
        ("aioprod.original-partition", b"%d" % (number % 2)),
        ("aioprod.original-offset", b"%d" % number),
        ("aioprod.error-class", error.encode()),
        ("aioprod.error-message", b"message %d" % number),
        ("aioprod.attempts", b"3"),
    ]
    given = {"value": b"v%d" % number, "key": b"k%d" % (number % 5), "headers": headers}
    return ProducerRecord(DEAD, **given | more)


async def fill(broker: EmbeddedCluster, records: Sequence[ProducerRecord]) -> None:
    for topic in ("orders", "payments", "elsewhere", DEAD):
        if topic not in broker.topics:
            broker.create_topic(topic, 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for record in records:
            await (await producer.send(*record))


def redrive(broker: EmbeddedCluster, **given: Any) -> Redrive:
    return Redrive(DEAD, broker.bootstrap_servers, **given)


def values(broker: EmbeddedCluster, topic: str = "orders") -> list[bytes]:
    return sorted(record.value or b"" for record in broker.records(topic, committed_only=True))


def numbers(*given: int) -> list[bytes]:
    return sorted(b"v%d" % number for number in given)


def has_records(broker: EmbeddedCluster, topic: str, number: int) -> bool:
    return len(broker.records(topic)) == number


async def test_each_dead_letter_goes_to_its_place_once(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(number) for number in range(20)])
    counts = await redrive(broker).run()
    assert counts == {DeadLetterKind("orders", "Timeout", "selected"): 20}
    assert values(broker) == numbers(*range(20))
    for partition in (0, 1):
        found = broker.records("orders", partition, committed_only=True)
        assert {int((record.value or b"")[1:]) % 2 for record in found} == {partition}
    (first, *_) = found
    assert first.headers == (("trace", b"t" + (first.value or b"")[1:]), ("aioprod.redrives", b"1"))
    again = await redrive(broker).run()
    assert again == {}  # it continues at the end
    await fill(broker, [letter(20)])
    await redrive(broker).run()
    assert values(broker) == numbers(*range(21))


async def test_selections_that_overlap_send_each_record_once(broker: EmbeddedCluster) -> None:
    def record(number: int) -> Any:
        error = ("Timeout", "Refused", "NoStock")[number % 3]
        return letter(number, ("orders", "payments")[number % 2], error)

    await fill(broker, [record(number) for number in range(60)])
    sent = [number for number in range(60) if number % 3 == 0]
    await redrive(broker, selection=Selection(error="timeOUT")).run()
    assert sorted(values(broker) + values(broker, "payments")) == numbers(*sent)

    await redrive(broker, selection=Selection(original_topic="payments")).run()
    sent += [number for number in range(60) if number % 2 and number % 3]
    assert sorted(values(broker) + values(broker, "payments")) == numbers(*sent)

    await fill(broker, [record(number) for number in range(60, 66)])
    await redrive(broker, selection=Selection(error="timeout")).run()
    await redrive(broker, selection=Selection(key=b"k1")).run()
    counts = await redrive(broker).run()
    assert counts.total() == 66
    assert sorted(values(broker) + values(broker, "payments")) == numbers(*range(66))
    plan = await redrive(broker).plan()
    assert {kind.verdict for kind in plan} == {"done before"} and plan.total() == 66
    counts = await redrive(broker, group_id="another").run()
    assert {kind.verdict for kind in counts} == {"selected"}


async def test_conditions(broker: EmbeddedCluster) -> None:
    records = [letter(number, timestamp_ms=1_000 + number) for number in range(6)]
    records += [letter(6, "payments", timestamp_ms=1_006), letter(7, error="x", timestamp_ms=1_007)]
    await fill(broker, records)

    async def found(**conditions: Any) -> list[int]:
        letters = read_dead_letters(
            DEAD, broker.bootstrap_servers, selection=Selection(**conditions)
        )
        return sorted([int((each.value or b"")[1:]) async for each in letters])

    assert await found() == list(range(8))
    assert await found(since_ms=1_002, until_ms=1_004) == [2, 3]
    assert await found(key=b"k1") == [1, 6]
    assert await found(original_topic="payments") == [6]
    assert await found(error="X:") == [7]
    assert await found(error="message 3") == [3]


async def test_a_plan_changes_nothing(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(1), letter(2, error="Refused")])
    plan = await redrive(broker, selection=Selection(error="Refused")).plan()
    assert plan == {
        DeadLetterKind("orders", "Timeout", "filtered"): 1,
        DeadLetterKind("orders", "Refused", "selected"): 1,
    }
    async with Admin(broker.bootstrap_servers) as admin:
        assert not await admin.list_consumer_group_offsets(f"aioprod-redrive-{DEAD}")
    assert values(broker) == []


async def test_to_another_topic(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(1), ProducerRecord(DEAD, b"v2", b"k2", headers=[("trace", b"t")])])
    counts = await redrive(broker).run()
    assert counts[DeadLetterKind(None, "", "no origin")] == 1
    assert values(broker) == numbers(1)
    await redrive(broker, to_topic="elsewhere").run()
    assert values(broker, "elsewhere") == numbers(2)


async def test_a_record_that_fails_each_time_goes_round_three_times(
    broker: EmbeddedCluster,
) -> None:
    calls = 0

    async def fails(record: Record[bytes | None, bytes | None]) -> None:
        nonlocal calls
        calls += 1
        assert dict(record.headers)["trace"] == b"t1"
        raise ValueError("still")

    await fill(broker, [letter(1)])
    processor = Processor(
        fails,
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        dead_letter_topic=DEAD,
        retry=RetryPolicy(attempts=1),
    )
    async with processor:
        async with asyncio.timeout(60):
            for wanted in (2, 3, 4, 4):
                await redrive(broker).run()
                await until(partial(has_records, broker, DEAD, wanted))
    assert calls == 3
    counts = await redrive(broker).plan()
    assert counts[DeadLetterKind("orders", "builtins.ValueError", "too often")] == 1
    last = broker.records(DEAD, committed_only=True)
    found = [each async for each in read_dead_letters(DEAD, broker.bootstrap_servers)]
    assert sorted(each.redrives for each in found) == [0, 1, 2, 3] and len(last) == 4


async def test_drop_marks_and_deletes_what_is_done(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(n, error="xy"[n % 2], partition=0) for n in range(10)])
    await redrive(broker, selection=Selection(key=b"k0")).run()
    dropping = redrive(broker, selection=Selection(error="x"))
    await dropping.drop()
    assert [record.offset for record in broker.records(DEAD)] == list(range(1, 10))
    assert dropping.offsets_deleted == 1
    await redrive(broker).run()
    assert values(broker) == numbers(0, 5, 1, 3, 7, 9)
    last = redrive(broker)
    await last.drop()
    assert broker.records(DEAD) == [] and last.offsets_deleted == 9


async def test_what_an_older_redrive_may_have_sent_is_not_sent_by_chance(
    broker: EmbeddedCluster,
) -> None:
    old_ms = round(time.time() * 1000) - WEEK_MS - 1_000
    await fill(broker, [letter(0, partition=0), letter(1, partition=0, timestamp_ms=old_ms)])
    with pytest.raises(ProcessingError, match=r"offset 1 of orders.dead-0 is older than a week"):
        await redrive(broker).run()
    assert values(broker) == []
    await redrive(broker, selection=Selection(since_ms=old_ms + 500)).run()
    assert values(broker) == numbers(0)
    await redrive(broker).run()  # the group knows now what was sent
    assert values(broker) == numbers(0, 1)
    await redrive(broker, group_id="another").run(new=True)


async def test_offsets_without_metadata_cover_all_records(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(n, partition=0) for n in range(4)])
    group, place = f"aioprod-redrive-{DEAD}", TopicPartition(DEAD, 0)
    async with Admin(broker.bootstrap_servers) as admin:
        (await admin.alter_consumer_group_offsets(group, {place: 2})).check()
        await redrive(broker).run()
        assert values(broker) == numbers(2, 3)
        other = {place: OffsetAndMetadata(4, "of another program")}
        (await admin.alter_consumer_group_offsets(group, other)).check()
        with pytest.raises(KafkaError, match="metadata 'of another program'"):
            await redrive(broker).run()


async def test_a_topic_that_was_created_again_has_new_dead_letters(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, [letter(0)])
    await redrive(broker).run()
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.delete_topics(DEAD)
    await fill(broker, [letter(1)])
    await redrive(broker).run()
    assert values(broker) == numbers(0, 1)


async def test_too_many_selections_for_an_offset(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(0), letter(2)])
    with pytest.raises(KafkaError, match=r"selections of dead letters need .* give another group"):
        for number in range(10):
            await redrive(broker, selection=Selection(error=f"{number}" * 1_000)).run()
    await redrive(broker, selection=Selection(error="0" * 1_000)).run()


async def test_a_second_redrive_fences_the_first(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(n) for n in range(600)])
    release = asyncio.Event()
    rule = broker.on(ApiKey.END_TXN, hold(release))
    task = asyncio.create_task(redrive(broker).run())
    await rule.wait()
    await redrive(broker).run()
    release.set()
    with pytest.raises(KafkaError):
        await task
    assert values(broker) == numbers(*range(600))


async def test_cancelled_anywhere_each_record_is_sent_once(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(n) for n in range(1_200)])
    for turns in range(0, 400, 7):
        task = asyncio.create_task(redrive(broker).run())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await redrive(broker).run()
    assert values(broker) == numbers(*range(1_200))


async def test_a_record_that_can_not_be_sent_stops_the_redrive_at_it(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, [letter(0, partition=0), letter(1, "gone", partition=0)])
    with pytest.raises(ProcessingError, match=r"offset 1 of orders.dead-0 can't be sent to gone"):
        await redrive(broker).run()
    assert values(broker) == []
    await redrive(broker, selection=Selection(original_topic="orders")).run()
    assert values(broker) == numbers(0)


async def test_a_limit_of_records_per_second(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(n) for n in range(30)])
    begun = asyncio.get_running_loop().time()
    await redrive(broker, max_records_per_s=10).run()
    assert 2 <= asyncio.get_running_loop().time() - begun <= 4
    assert values(broker) == numbers(*range(30))


async def test_following(broker: EmbeddedCluster) -> None:
    await fill(broker, [letter(0)])
    task = asyncio.create_task(redrive(broker).run(follow=True))
    await until(lambda: values(broker) == numbers(0))
    await fill(broker, [letter(1)])
    await until(lambda: values(broker) == numbers(0, 1))
    task.cancel()
    await asyncio.wait([task])


async def test_arguments_that_contradict_each_other(broker: EmbeddedCluster) -> None:
    with pytest.raises(ConfigError, match=r"to_topic='orders.dead': is the dead-letter topic"):
        redrive(broker, to_topic=DEAD)
    with pytest.raises(ConfigError, match="max_records_per_s=0: must be above 0"):
        redrive(broker, max_records_per_s=0)
    with pytest.raises(ConfigError, match="max_redrives=0"):
        Selection(max_redrives=0)
    with pytest.raises(ConfigError, match="key of type str: must be bytes"):
        Selection(key="k")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="topic 'none' does not exist"):
        await Redrive("none", broker.bootstrap_servers).run()
