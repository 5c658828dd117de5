"""Batches whose transactions are old when the driver decides. A broker aborts an expired
transaction up to 10 s after its timeout: until then it looks open. No decided batch is lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest

from aioprod import Producer
from aioprod.error_codes import ErrorCode
from aioprod.spark.coordination import open_coordination
from aioprod.spark.errors import LostTransactionsError, SinkError, TransactionTimedOutError
from aioprod.spark.exactly_once import completing, driver, transactions
from aioprod.spark.exactly_once.ages import margin_ms
from aioprod.spark.exactly_once.decision_log import decide, read_decided
from aioprod.spark.exactly_once.ending import end_decided
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.testing import ApiKey, EmbeddedCluster, change_answer, delay, fail
from aioprod.testing.broker.transactions.coordinator import TransactionTimers
from aioprod.testing.simulation import run
from tests.spark.exactly_once.job import (
    Job,
    committed,
    killed_at,
    number_of,
    open_transactions,
    rows_of,
    split,
)

TIMEOUT_MS = 10_000
HOUR_S = 3_600
SCAN_S = 10.0  # transaction.abort.timed.out.transaction.cleanup.interval.ms
DECIDING = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


@pytest.fixture
def expire_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired transactions stay open until the next scan, as in Kafka."""
    rng = random.Random(1)
    start = TransactionTimers.start

    def start_later(self: TransactionTimers, name: str, timeout_ms: int) -> None:
        start(self, name, timeout_ms + int(rng.random() * SCAN_S * 1000))

    monkeypatch.setattr(TransactionTimers, "start", start_later)


async def written(job: Job, version: int, parts: int) -> list[TaskReport]:
    """Reports of tasks with a row each; they need no thread, so that time may be virtual."""
    reports = []
    for partition in range(parts):
        attempt = TaskAttempt(job.sink, job.run, version, partition, number_of(partition))
        settings = {**job.options.producer, "transactional_id": attempt.transactional_id}
        async with Producer(**settings) as producer:
            await producer.begin_transaction()
            await producer.send("t", f"{job.sink.sink_id}/{version}/{partition}".encode())
            prepared = await producer.prepare_transaction()
        reports.append(
            TaskReport(attempt, prepared, 1, 3, partition, frozenset({"t"}), time.time())
        )
    return reports


async def late_sink(job: Job, batches: int, rng: random.Random, counts: Counter[str]) -> list[str]:
    """Batches of a query that are decided up to 18 s after they began. Return the rows that must be
    visible.
    """
    visible: list[str] = []
    for version in range(batches):
        reports = await written(job, version, 3)
        await asyncio.sleep(rng.random() * 1.8 * TIMEOUT_MS / 1000)
        try:
            await job.commit(version, reports)
        except TransactionTimedOutError:
            counts["timed out"] += 1
            # As a restarted query does; it may be too slow again.
            job = job.again()
            again = await written(job, version, 2)
            try:
                await job.commit(version, again)
            except TransactionTimedOutError:
                counts["timed out again"] += 1
                continue
            visible += [f"{job.sink.sink_id}/{version}/{partition}" for partition in range(2)]
        else:
            counts["in time"] += 1
            visible += [f"{job.sink.sink_id}/{version}/{partition}" for partition in range(3)]
    return visible


def slow_down(cluster: EmbeddedCluster, rng: random.Random, most_s: float) -> None:
    """Make every request of a decision take up to that long."""
    for api in DECIDING:
        for node in cluster.node_ids:
            cluster.on_every(api, delay(most_s * rng.random()), node=node)


async def late_batches(sinks: int, batches: int, off_s: float, version: int) -> Counter[str]:
    """Run queries whose batches are late, over brokers that are slow, with a clock that is off."""
    rng = random.Random(batches)
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    begun = time.time() + off_s
    async with EmbeddedCluster(
        nodes=3, transaction_version=version, wall_clock=lambda: begun + loop.time()
    ) as cluster:
        # The clock that is off is the coordinators'.
        cluster.create_topic("t", 3, configs={"message.timestamp.after.max.ms": "999999999"})
        slow_down(cluster, rng, 0.5)
        jobs = [
            Job(
                cluster.bootstrap_servers,
                f"late-{number}",
                **{"kafka.transaction.timeout.ms": str(TIMEOUT_MS)},
            )
            for number in range(sinks)
        ]
        visible = await asyncio.gather(*(late_sink(job, batches, rng, counts) for job in jobs))
        assert committed(cluster) == sorted(row for rows in visible for row in rows)
    return counts


@pytest.mark.usefixtures("expire_late")
@pytest.mark.parametrize("version", [0, 2], ids=["v1", "v2"])
def test_no_late_batch_is_lost(version: int) -> None:
    counts = run(late_batches(5, 5, HOUR_S, version))
    assert counts["in time"] and counts["timed out"]


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("expire_late")
@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S, 0])
def test_none_of_a_thousand_late_batches_is_lost(off_s: float) -> None:
    counts = run(late_batches(25, 40, off_s, 2))
    print(dict(counts))
    assert counts["timed out"] > 500


# -- between the decision and the commits ----------------------------------------------------------


async def expire(broker: EmbeddedCluster, reports: list[TaskReport], partitions: list[int]) -> None:
    for partition in partitions:
        broker.expire_transaction(reports[partition].attempt.transactional_id)


async def decision_of(job: Job) -> Any:
    async with open_coordination(job.options.producer, "test") as coordination:
        return await read_decided(coordination, job.sink, stable=True)


async def test_a_batch_that_expires_right_after_its_decision_is_written_again(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    reports = await job.tasks(1, split(rows_of(1), 3))

    async def then_expire(*args: Any) -> None:
        await decide(*args)
        await expire(broker, reports, [0, 1, 2])

    with monkeypatch.context() as patch:
        patch.setattr(driver, "decide", then_expire)
        with pytest.raises(
            TransactionTimedOutError,
            match=r"batch 1: it was decided, .* taken back .*no row is lost",
        ):
            await job.commit(1, reports)
    assert committed(broker) == sorted(rows_of(0)) and open_transactions(broker) == []
    job = job.again()
    assert await job.batch(1, split(rows_of(1), 2))
    assert await job.batch(2, split(rows_of(2), 2))
    assert committed(broker) == sorted(rows_of(0) + rows_of(1) + rows_of(2))


@pytest.mark.parametrize("expired", [[0], [1, 2], [0, 1, 2]], ids=str)
async def test_a_batch_of_which_nothing_was_committed_is_written_again_by_the_next_run(
    broker: EmbeddedCluster, expired: list[int]
) -> None:
    """The driver died after the decision, and was down for longer than the timeout."""
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    await expire(broker, reports, expired)
    job = job.again()
    with pytest.raises(TransactionTimedOutError, match="the decision was taken back"):
        await job.batch(0, split(rows_of(0), 2))
    assert committed(broker) == [] and open_transactions(broker) == []
    assert await job.again().batch(0, split(rows_of(0), 4))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_decision_is_taken_back_although_the_next_one_is_kept_with_another_topic(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("a", 1)
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, [rows_of(0)])
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    await expire(broker, reports, [0])
    with pytest.raises(TransactionTimedOutError):
        await job.again().batch(0, [rows_of(0)])
    other = job.again(topic="a")
    assert await other.batch(0, [rows_of(0)])
    assert not await other.again().batch(0, [rows_of(0)]), "the decision counts, not the other one"
    assert len(broker.records("a", committed_only=True)) == 12


async def test_a_driver_that_wakes_up_later_commits_nothing_of_a_decision_that_was_taken_back(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    decision = await decision_of(job)
    await expire(broker, reports, [1])
    with pytest.raises(TransactionTimedOutError):
        await job.again().batch(0, split(rows_of(0), 2))
    async with open_coordination(job.options.producer, "test") as coordination:
        with pytest.raises(LostTransactionsError):
            await end_decided(coordination, job.sink, decision)
    assert committed(broker) == []


async def test_a_decision_is_completed_if_another_driver_commits_while_it_is_taken_back(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(broker.bootstrap_servers)
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 3))
    decision = await decision_of(job)
    take_back = completing.take_back

    async def too_late(*args: Any) -> None:
        async with open_coordination(job.options.producer, "test") as coordination:
            first = decision.prepared(job.sink)[0]
            await transactions.end_transaction(coordination, first, commit=True)
        await take_back(*args)

    monkeypatch.setattr(completing.Look, "in_time", False)
    monkeypatch.setattr(completing, "take_back", too_late)
    assert not await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_driver_that_dies_while_it_takes_a_decision_back(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    await expire(broker, reports, [0])
    for step in (
        (transactions, "end_transaction", "after", 2),
        (completing, "decide", "before", 1),
        (completing, "decide", "after", 1),
    ):
        with killed_at(*step):
            await job.again().batch(0, split(rows_of(0), 2))
    assert (await decision_of(job)).is_taken_back
    assert await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_decision_that_came_late_is_completed_if_the_transactions_are_young(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(broker.bootstrap_servers)
    monkeypatch.setattr(completing.Look, "in_time", False)
    completed = []

    async def seen(*args: Any) -> None:
        completed.append(args[-1].version)
        monkeypatch.undo()
        await completing.complete(*args)

    monkeypatch.setattr(driver, "complete", seen)
    assert await job.batch(0, split(rows_of(0), 2))
    assert completed == [0] and committed(broker) == sorted(rows_of(0))


async def test_an_earlier_batch_that_was_not_finished_is_not_forgotten(
    broker: EmbeddedCluster,
) -> None:
    """A write that is never repeated: brokers that do not list transactions must not hide it."""
    job = Job(broker.bootstrap_servers, txnAppId="app", txnVersion="1")
    with killed_at(completing, "end_decided", "before"):
        await job.batch(1, split(rows_of(1), 3))
    broker.on_every(ApiKey.LIST_TRANSACTIONS, fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert await job.again(txnVersion="2").batch(2, split(rows_of(2), 2))
    assert committed(broker) == sorted(rows_of(1) + rows_of(2))


async def test_an_earlier_batch_that_was_lost_stops_the_next_one(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers, txnAppId="app", txnVersion="1")
    reports = await job.tasks(1, split(rows_of(1), 3))
    with killed_at(completing, "end_decided", "before"):
        await job.commit(1, reports)
    await expire(broker, reports, [0, 1, 2])
    with pytest.raises(LostTransactionsError, match=r"batch 1 .*skipLostBatch=1"):
        await job.again(txnVersion="2").batch(2, split(rows_of(2), 2))
    assert await job.again(txnVersion="2", skipLostBatch="1").batch(2, split(rows_of(2), 2))
    assert committed(broker) == sorted(rows_of(2))


# -- whose clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_clocks_of_executors_and_driver_do_not_matter(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 2))
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + off_s)
    assert await job.commit(0, reports)
    assert committed(broker) == sorted(rows_of(0))


def without_durations(reply: Any) -> None:
    """Change a response to that of brokers before Kafka 3.8: ListTransactions has no filter by
    duration (KIP-994).
    """
    for api in reply.api_keys:
        if api.api_key == ApiKey.LIST_TRANSACTIONS:
            api.max_version = 0


@pytest.mark.parametrize("older", [False, True], ids=["listed", "from its clock"])
async def test_a_transaction_is_as_old_as_its_coordinator_says(older: bool) -> None:
    passed = 0.0
    async with EmbeddedCluster(
        nodes=3, transaction_version=0, wall_clock=lambda: time.time() + passed
    ) as broker:
        broker.create_topic("t", 3)
        if older:
            broker.on_every(ApiKey.API_VERSIONS, change_answer(without_durations))
        job = Job(broker.bootstrap_servers, **{"kafka.transaction.timeout.ms": "60000"})
        limit_s = 60 - margin_ms(60_000, job.options.producer["max_block_ms"] / 1000) / 1000
        assert limit_s == 50
        reports = await job.tasks(0, split(rows_of(0), 3))
        passed = limit_s - 5
        assert await job.commit(0, reports)
        reports = await job.tasks(1, split(rows_of(1), 3))
        passed += limit_s + 5
        with pytest.raises(
            TransactionTimedOutError,
            match=(
                r"batch 1: the transaction of task \d \(one of 3\) has been open for more than 50 s"
                r" of 60 s\. Committing it needs up to 10 s: .*transaction\.timeout\.ms=60000"
                r".*no row is lost.*maxOffsetsPerTrigger"
            ),
        ):
            await job.commit(1, reports)
        assert open_transactions(broker) == []
        assert await job.again().batch(1, split(rows_of(1), 2))
        assert committed(broker) == sorted(rows_of(0) + rows_of(1))


async def test_a_task_whose_transaction_may_not_be_described_says_which_right_is_missing(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 1))
    name = reports[0].attempt.transactional_id

    def refuse(reply: Any) -> None:
        for state in reply.transaction_states:
            state.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    broker.on(ApiKey.DESCRIBE_TRANSACTIONS, change_answer(refuse))
    with pytest.raises(
        SinkError, match=rf"{name}.* can't be described: .*grant Describe and Write"
    ):
        await job.commit(0, reports)
    assert committed(broker) == [] and open_transactions(broker) == []


@pytest.mark.parametrize(
    ("timeout_ms", "limit_s", "expected"), [(900_000, 60, 120_000), (4_000, 60, 2_000)]
)
def test_the_margin_is_two_retries_but_not_more_than_half_of_the_timeout(
    timeout_ms: int, limit_s: float, expected: int
) -> None:
    assert margin_ms(timeout_ms, limit_s) == expected
