"""``aioprod dlq redrive`` killed at any time: no dead letter is lost, none is sent twice."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Sequence

import pytest

from aioprod import Producer, ProducerRecord
from aioprod.admin import Admin, NewTopic
from aioprod.testing import ApiKey, EmbeddedCluster, ThreadedCluster, hold, hold_answer
from aioprod.testing.broker.rules import ThreadedRule
from tests.cli.test_cli_copy_killed import read

LIMIT_S = 60
APIS = (ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
# Each request with which a record can be lost or doubled, before and after it takes effect.
KILLS = [(api, action) for api in APIS for action in (hold, hold_answer)]
ERRORS = ("Timeout", "Refused", "NoStock")


def letters(topic: str, numbers: range) -> list[ProducerRecord]:
    """Dead letters of four partitions, a third of them with each error."""
    return [
        ProducerRecord(
            f"{topic}.dead",
            b"%d" % number,
            b"k%d" % (number % 7),
            headers=[
                ("aioprod.original-topic", topic.encode()),
                ("aioprod.original-partition", b"%d" % (number % 4)),
                ("aioprod.error-class", ERRORS[number % 3].encode()),
            ],
        )
        for number in numbers
    ]


async def fill(servers: str, topic: str, count: int) -> None:
    """Committed and aborted transactions in turn."""
    async with Producer(servers, transactional_id=f"fill-{topic}") as producer:
        for part in range(0, count, count // 5):
            async with producer.transaction():
                sent = letters(topic, range(part, min(part + count // 5, count)))
                await producer.send_many(f"{topic}.dead", sent)
            await producer.begin_transaction()
            await producer.send_many(f"{topic}.dead", letters(topic, range(count, count + 20)))
            await producer.flush()
            await producer.abort_transaction()


def start(topic: str, servers: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "aioprod", "dlq", "redrive", f"{topic}.dead", "--yes"),
            *("-b", servers, *arguments),
        ],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors


def check(cluster: ThreadedCluster, topic: str, count: int) -> None:
    """Each record is there once for readers of committed records, in order within its key and
    original partition.
    """
    for partition in range(4):
        found = [
            int(each.value or b"")
            for each in cluster.records(topic, partition, committed_only=True)
        ]
        assert sorted(found) == [number for number in range(count) if number % 4 == partition]


def kill_in_turn(
    cluster: ThreadedCluster, kills: Sequence[tuple[ApiKey, object]], draw: random.Random
) -> list[ThreadedRule]:
    """Kill a redrive at each of these requests. A request of the killed process may arrive at once,
    or when the next one has begun.
    """
    late: list[ThreadedRule] = []
    for api, action in kills:
        nth = 1 if api is ApiKey.INIT_PRODUCER_ID else draw.randrange(1, 4)
        rule = cluster.on(api, action(cluster.call(asyncio.Event)), nth=nth)  # type: ignore[operator]
        process = start(
            "orders", cluster.bootstrap_servers, "--error", draw.choice(("t", "e", "s"))
        )
        try:
            rule.wait(timeout_seconds=LIMIT_S)
        finally:
            process.kill()
            process.communicate()
        if draw.random() < 0.5:
            rule.release()
        late.append(rule)
    return late


@pytest.fixture
def draw() -> random.Random:
    seed = int(os.environ.get("AIOPROD_DLQ_SEED", random.randrange(1 << 32)))
    print(f"AIOPROD_DLQ_SEED={seed}")
    return random.Random(seed)


def test_killed_in_the_middle(threaded_broker: ThreadedCluster, draw: random.Random) -> None:
    cluster, count = threaded_broker, 4_000
    for topic in ("orders", "orders.dead"):
        cluster.create_topic(topic, 4)
    asyncio.run(fill(cluster.bootstrap_servers, "orders", count))
    # After the first commit: what it does not have with the records is repeated. Then before the
    # second offsets: what was sent alone is lost or repeated.
    for api, action, nth in ((ApiKey.END_TXN, hold_answer, 1), (ApiKey.TXN_OFFSET_COMMIT, hold, 2)):
        rule = cluster.on(api, action(cluster.call(asyncio.Event)), nth=nth)
        process = start("orders", cluster.bootstrap_servers)
        try:
            rule.wait(timeout_seconds=LIMIT_S)
        finally:
            process.kill()
            process.communicate()
        rule.release()
    sent = len(cluster.records("orders", committed_only=True))
    assert 0 < sent < count
    finish(start("orders", cluster.bootstrap_servers))
    check(cluster, "orders", count)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_request(threaded_broker: ThreadedCluster, draw: random.Random) -> None:
    """Also with selections that overlap: one more run without a selection sends the rest."""
    cluster, count = threaded_broker, 12_000
    for topic in ("orders", "orders.dead"):
        cluster.create_topic(topic, 4)
    asyncio.run(fill(cluster.bootstrap_servers, "orders", count))
    kills = list(KILLS)
    draw.shuffle(kills)
    late = kill_in_turn(cluster, kills, draw)
    finish(start("orders", cluster.bootstrap_servers))
    for rule in late:
        rule.release()
    assert len(cluster.records("orders")) > count, "no kill left records of an open transaction"
    check(cluster, "orders", count)


@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_100_000_dead_letters_through_kills(draw: random.Random) -> None:
    count, kills = 100_000, 0
    with EmbeddedCluster.in_thread() as cluster:
        for topic in ("orders", "orders.dead"):
            cluster.create_topic(topic, 4)
        asyncio.run(fill(cluster.bootstrap_servers, "orders", count))
        while True:
            process = start("orders", cluster.bootstrap_servers)
            try:
                process.communicate(timeout=draw.uniform(0.5, 4))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
                continue
            assert process.returncode == 0
            break
        print(f"{kills} kills")
        assert kills > 2
        check(cluster, "orders", count)


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_killed_with_a_real_broker(kafka: str) -> None:
    topic, count, kills = f"orders-{uuid.uuid4().hex[:8]}", 20_000, 0

    async def create() -> None:
        async with Admin(kafka) as admin:
            (await admin.create_topics([NewTopic(topic, 4), NewTopic(f"{topic}.dead", 4)])).check()

    asyncio.run(create())
    asyncio.run(fill(kafka, topic, count))
    for wait_s in (0.8, 1.2, 1.6, 2.0, LIMIT_S):
        process = start(topic, kafka)
        try:
            _, errors = process.communicate(timeout=wait_s)
            assert process.returncode == 0, errors
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert process.returncode == 0 and kills
    found = asyncio.run(read(kafka, topic))
    assert sorted(int(value) for _, _, value, _, _ in found) == list(range(count))  # type: ignore[call-overload]
