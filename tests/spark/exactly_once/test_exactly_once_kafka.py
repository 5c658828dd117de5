"""The protocol against real Kafka 4.4 (second transaction protocol) and 3.9 (first one), read back
by a foreign client.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.spark.coordination import open_coordination
from aioprod.spark.errors import LostTransactionsError, NewerDecisionError, TransactionTimedOutError
from aioprod.spark.exactly_once import (
    ages,
    completing,
    decision_log,
    driver,
    task,
    transactions,
)
from aioprod.spark.exactly_once.decision_log import read_decided
from tests.spark.exactly_once.job import Job, killed_at, number_of, rows_of, split

LIMIT_S = 30.0


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.kafka) for name in ("kafka", "kafka_3_9")]
)
def servers(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of Kafka 4.4, then of 3.9."""
    found: str = request.getfixturevalue(request.param)
    return found


async def new_job(servers: str, **options: str) -> Job:
    """A query with a topic of its own."""
    name = f"once-{os.getpid()}-{time.time_ns()}"
    async with ClusterClient(servers) as client:
        await client.request(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=1)]
            )
        )
    return Job(servers, name, **{"topic": name, "kafka.max.block.ms": "30000"} | options)


async def committed(job: Job, count: int) -> list[str]:
    """Read committed records with aiokafka, until there are ``count`` of them, and for another
    second. Return them sorted.
    """
    topic = job.options.topic
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=job.given["kafka.bootstrap.servers"],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    found: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value.decode() for record in records]
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += [record.value.decode() for record in records]
    finally:
        await consumer.stop()
    return sorted(found)


async def test_batches_are_visible_once_they_are_committed(servers: str) -> None:
    job = await new_job(servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    assert await committed(job, 0) == []
    assert await job.commit(0, reports)
    assert await job.batch(1, split(rows_of(1), 2))
    assert not await job.again().batch(1, split(rows_of(1), 3)), "it was written before"
    assert await committed(job, 24) == sorted(rows_of(0) + rows_of(1))
    async with open_coordination(job.options.producer, "test") as coordination:
        decision = await read_decided(coordination, job.sink, stable=True)
        assert decision is not None and decision.version == 1 and decision.rows == 12
        assert (
            await transactions.list_transactions(
                coordination, lambda name: job.sink.parse(name) is not None
            )
            == []
        )


CRASHES: list[tuple[Any, str, str, int]] = [
    (task, "prepare", "after", 1),
    (driver, "decide", "before", 1),
    (Producer, "commit_transaction", "before", 1),
    (completing, "end_decided", "before", 1),
    (transactions, "end_transaction", "after", 1),
    (completing, "end_decided", "after", 1),
]


@pytest.mark.parametrize("step", CRASHES, ids=lambda step: f"{step[2]} {step[1]}")
async def test_a_query_that_dies_and_starts_again_with_other_tasks(
    servers: str, step: tuple[Any, str, str, int]
) -> None:
    job = await new_job(servers)
    await job.batch(0, split(rows_of(0), 2))
    with killed_at(*step):
        await job.batch(1, split(rows_of(1), 2))
    job = job.again()
    await job.batch(1, split(rows_of(1), 3))
    assert await committed(job, 24) == sorted(rows_of(0) + rows_of(1))


async def test_a_transaction_that_is_aborted_before_the_decision_fails_the_batch(
    servers: str,
) -> None:
    job = await new_job(servers)
    reports = await job.tasks(0, split(rows_of(0), 2))
    async with open_coordination(job.options.producer, "test") as coordination:
        await transactions.abort_transaction(coordination, reports[1].attempt.transactional_id)
    with pytest.raises(
        TransactionTimedOutError,
        match=r"batch 0: the transaction of task 1 .* is not open any more",
    ):
        await job.commit(0, reports)
    await job.again().batch(0, split(rows_of(0), 3))
    assert await committed(job, 12) == sorted(rows_of(0))


async def test_a_transaction_that_is_aborted_after_the_decision_is_lost_loudly(
    servers: str,
) -> None:
    job = await new_job(servers)
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 3))
    async with open_coordination(job.options.producer, "test") as coordination:
        await transactions.abort_transaction(
            coordination, job.sink.transactional_id(job.run, 0, number_of(1))
        )
    with pytest.raises(LostTransactionsError, match="4 of 12 rows are lost"):
        await job.again().batch(0, split(rows_of(0), 3))
    assert not await job.again(skipLostBatch="0").batch(0, split(rows_of(0), 2))
    assert await committed(job, 8) == sorted(
        row for part in split(rows_of(0), 3)[::2] for row in part
    )


async def test_a_checkpoint_that_is_older_than_the_topic_is_refused(servers: str) -> None:
    job = await new_job(servers)
    await job.batch(0, split(rows_of(0), 2))
    await job.batch(1, split(rows_of(1), 2))
    with pytest.raises(NewerDecisionError, match="batch 1 was written already"):
        await job.again().batch(0, split(rows_of(0), 2))
    assert await committed(job, 24) == sorted(rows_of(0) + rows_of(1))


async def test_a_decision_that_is_too_long_for_an_offset_goes_to_its_topic(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "METADATA_LIMIT", 40)
    job = await new_job(servers, decisionTopic=f"decisions-{time.time_ns()}")
    await job.batch(0, split(rows_of(0), 2))
    with killed_at(transactions, "end_transaction", "after", 1):
        await job.batch(1, split(rows_of(1), 3))
    assert not await job.again().batch(1, split(rows_of(1), 2)), "the decision is found again"
    assert await committed(job, 24) == sorted(rows_of(0) + rows_of(1))


async def test_a_decision_of_which_nothing_was_committed_is_taken_back(servers: str) -> None:
    job = await new_job(servers)
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 3))
    async with open_coordination(job.options.producer, "test") as coordination:
        decision = await read_decided(coordination, job.sink, stable=True)
        assert decision is not None
        # As a coordinator does when the timeout has passed.
        aborted = decision.prepared(job.sink)[1]
        await transactions.end_transaction(coordination, aborted, commit=False)
    with pytest.raises(TransactionTimedOutError, match="the decision was taken back"):
        await job.again().batch(0, split(rows_of(0), 2))
    assert await committed(job, 0) == []
    assert await job.again().batch(0, split(rows_of(0), 2))
    assert await committed(job, 12) == sorted(rows_of(0))


async def test_a_transaction_that_is_too_old_is_not_decided_about(servers: str) -> None:
    """Kafka aborts it up to 10 s after its timeout; until then it looks open."""
    job = await new_job(servers, **{"kafka.transaction.timeout.ms": "1000"})
    reports = await job.tasks(0, split(rows_of(0), 3))
    await asyncio.sleep(0.6)  # the margin is half of the timeout
    with pytest.raises(
        TransactionTimedOutError, match=r"has been open for more than 0\.5 s|not open"
    ):
        await job.commit(0, reports)
    assert await committed(job, 0) == []


async def test_a_transaction_that_begins_shows_the_clock_of_its_coordinator(servers: str) -> None:
    job = await new_job(servers)
    await job.batch(0, [rows_of(0)])
    async with open_coordination(job.options.producer, "test") as coordination:
        (node,) = coordination.client.snapshot.nodes
        for _ in range(2):  # its id is used again
            before = time.time() * 1000
            now = await ages._clock_of(coordination, node, job.sink)
            assert before - 1 <= now <= time.time() * 1000 + 1
        left = await transactions.list_transactions(coordination, lambda name: "-clock-" in name)
        assert left == []
