"""``aioprod copy`` killed at any time: no record is lost, none is copied twice."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator

import pytest

from aioprod import Consumer, Producer, ProducerRecord
from aioprod.testing import ApiKey, EmbeddedCluster, ThreadedCluster, hold, hold_answer
from aioprod.testing.broker.rules import ThreadedRule
from tests.cli.test_cli_copy import Run, between, content

LIMIT_S = 60
RECORDS = 20_000
APIS = (ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)


@pytest.fixture
def target() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread() as running:
        yield running


def records(topic: str, draw: random.Random, count: int) -> Iterable[ProducerRecord]:
    return [
        ProducerRecord(
            topic,
            draw.randbytes(draw.randrange(100)) + b"-%d" % number,
            draw.choice((None, b"", draw.randbytes(8))),
            draw.randrange(4),
            1_700_000_000_000 + draw.randrange(1_000_000),
            [("n", b"%d" % number)] if draw.random() < 0.3 else (),
        )
        for number in range(count)
    ]


def fill(servers: str, topic: str, draw: random.Random, count: int) -> None:
    """Committed and aborted transactions in turn."""

    async def send() -> None:
        async with Producer(servers, transactional_id=f"fill-{topic}") as producer:
            for part in range(10):
                async with producer.transaction():
                    await producer.send_many(topic, records(topic, draw, count // 10))
                await producer.begin_transaction()
                await producer.send_many(topic, records(topic, draw, 50 + part))
                await producer.flush()
                await producer.abort_transaction()

    asyncio.run(send())


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "aioprod", "copy", *arguments, "--once", "--quiet"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_request(threaded_broker: ThreadedCluster, target: ThreadedCluster) -> None:
    seed = int(os.environ.get("AIOPROD_COPY_SEED", random.randrange(1 << 32)))
    print(f"AIOPROD_COPY_SEED={seed}")
    draw = random.Random(seed)
    source = threaded_broker
    source.create_topic("orders", 4)
    fill(source.bootstrap_servers, "orders", draw, RECORDS)
    # Each request with which a record can be lost or doubled, before and after it takes effect.
    kills = [(api, action) for api in APIS for action in (hold, hold_answer)]
    draw.shuffle(kills)
    late: list[ThreadedRule] = []
    for api, action in kills:
        nth = 1 if api is ApiKey.INIT_PRODUCER_ID else draw.randrange(1, 12)
        rule = target.on(api, action(target.call(asyncio.Event)), nth=nth)
        process = start("orders", *between(source, target), "--transaction-records", "200")
        try:
            rule.wait(timeout_seconds=LIMIT_S)
        finally:
            process.kill()
            process.communicate()
        # A request of the killed process may arrive at once, or when the next one has begun.
        if draw.random() < 0.5:
            rule.release()
        late.append(rule)
    process = start("orders", *between(source, target))
    assert process.communicate(timeout=LIMIT_S)[1] == b"" and process.returncode == 0
    for rule in late:
        rule.release()
    assert len(target.records("orders")) > RECORDS, "no kill left records of an open transaction"
    copied = content(target, "orders")
    assert sum(map(len, copied)) == RECORDS
    assert copied == content(source, "orders")


def test_killed_in_its_first_transaction(
    run: Run, threaded_broker: ThreadedCluster, target: ThreadedCluster
) -> None:
    """The aborted records that it leaves are not taken for another program's."""
    source = threaded_broker
    source.create_topic("orders", 4)
    fill(source.bootstrap_servers, "orders", random.Random(1), 500)
    rule = target.on(ApiKey.PRODUCE, hold_answer(target.call(asyncio.Event)))
    process = start("orders", *between(source, target))
    try:
        rule.wait(timeout_seconds=LIMIT_S)
    finally:
        process.kill()
        process.communicate()
    rule.release()
    assert run("copy", "orders", "--once", *between(source, target))[0] == 0
    assert len(target.records("orders")) > 500
    assert content(target, "orders") == content(source, "orders")


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_killed_with_a_real_broker(kafka: str) -> None:
    topic, copy = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "copy"))
    arguments = (topic, "--to-topic", copy, "-b", kafka, "--transaction-records", "500")
    asyncio.run(create(kafka, (topic, copy), 4))
    fill(kafka, topic, random.Random(5), 5_000)
    kills = 0
    for wait_s in (0.6, 0.9, 1.2, 1.5, LIMIT_S):
        process = start(*arguments)
        try:
            _, errors = process.communicate(timeout=wait_s)
            assert (process.returncode, errors) == (0, b"")
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert process.returncode == 0 and kills
    original, copied = (asyncio.run(read(kafka, name)) for name in (topic, copy))
    assert len(original) == 5_000 and copied == original


async def create(servers: str, topics: Iterable[str], partitions: int) -> None:
    from aioprod import Admin
    from aioprod.admin import NewTopic

    async with Admin(servers) as admin:
        wanted = [NewTopic(name, partitions) for name in topics]
        (await admin.create_topics(wanted)).check()


async def read(servers: str, topic: str) -> list[tuple[object, ...]]:
    """The committed records, by partition and in order."""
    from aioprod import TopicPartition

    found: list[tuple[object, ...]] = []
    async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        for partition in sorted(await consumer.partitions_for_topic(topic)):
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            async with asyncio.timeout(LIMIT_S):
                while await consumer.position(place) < end:
                    found += [
                        (each.partition, each.key, each.value, each.timestamp, each.headers)
                        for each in await consumer.getmany(timeout_ms=500)
                    ]
    return found
