"""The exactly-once sink when no process dies: replays, mismatches, several drivers, zombies,
timeouts, brokers that move and refuse.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from _pytest.mark.structures import ParameterSet

from aioprod import (
    BrokerError,
    ErrorCode,
    KafkaError,
    PreparedTransaction,
    Producer,
    UnsupportedVersionError,
)
from aioprod.net.connection import Connection
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.describe_transactions import DescribeTransactionsRequest
from aioprod.spark.coordination import open_coordination
from aioprod.spark.errors import (
    CopiedCheckpointError,
    LostTransactionsError,
    NewerDecisionError,
    ReplayMismatchError,
    SinkError,
    TransactionTimedOutError,
)
from aioprod.spark.exactly_once import ages, completing, driver, transactions
from aioprod.spark.exactly_once.decision_log import decide, read_decided
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.testing import ApiKey, EmbeddedCluster, cut_answer, drop_after, drop_before, fail, hold
from tests.selection import by_default_each
from tests.spark.exactly_once.job import (
    Job,
    committed,
    killed_at,
    number_of,
    open_transactions,
    rows_of,
    split,
    write_alone,
)

E = ErrorCode
LIMIT_S = 10


def of(transactional_id: str) -> Callable[[Message], bool]:
    """Return whether a request is about this id."""
    return lambda request: getattr(request, "transactional_id", None) == transactional_id


async def test_batches_follow_each_other_and_are_seen_at_once(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    expected: list[str] = []
    tasks = 0
    for version in range(10):
        tasks += 1 + version % 3
        assert await job.batch(version, split(rows_of(version), 1 + version % 3))
        expected += rows_of(version)
        assert committed(broker) == sorted(expected)
    attempts = [name for name in broker.transactions if job.sink.parse(name)]
    assert len(attempts) < tasks, "ids are used again"


async def test_nothing_is_visible_before_the_driver_commits(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    assert committed(broker) == [] and len(broker.records("t")) == 12
    assert len(open_transactions(broker)) == 3
    assert [(report.rows, report.topics) for report in reports] == [(4, frozenset({"t"}))] * 3
    assert sum(report.payload_bytes for report in reports) == sum(map(len, rows_of(0)))
    await job.commit(0, reports)
    assert committed(broker) == sorted(rows_of(0))


async def test_a_replay_of_a_decided_batch_writes_nothing(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    stored = len(broker.records("t"))
    again = job.again()
    reports = await again.tasks(0, split(rows_of(0), 3))
    assert all(report.decided and report.transaction is None for report in reports)
    assert not await again.commit(0, reports)
    assert len(broker.records("t")) == stored


async def test_a_batch_without_rows_needs_no_decision(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    assert not await job.batch(0, [[], []])
    assert not await job.commit(0, [])
    assert [name for name in broker.transactions if job.sink.parse(name)] == []
    assert await job.batch(1, [[], rows_of(1)])
    async with open_coordination(job.options.producer, "test") as coordination:
        decision = await read_decided(coordination, job.sink)
    assert decision is not None and [each.partition for each in decision.transactions] == [1]


async def test_a_replay_with_other_rows_is_refused(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    for rows in (rows_of(0)[1:], [*rows_of(0)[1:], "other"], []):
        with pytest.raises(
            ReplayMismatchError,
            match=rf"with 12 rows .* gives {len(rows)} rows .* onReplayMismatch=warn",
        ):
            await job.again().batch(0, split(rows, 2))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_replay_with_other_rows_goes_on_where_that_is_wanted(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    with caplog.at_level(logging.WARNING):
        assert not await job.again(onReplayMismatch="warn").batch(0, split(["other"], 1))
    assert "batch 0 was written before, with 12 rows" in caplog.text
    assert committed(broker) == sorted(rows_of(0))


async def test_a_checkpoint_that_is_older_than_the_topic_is_refused(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(3, split(rows_of(3), 2))
    await job.batch(4, split(rows_of(4), 2))
    with pytest.raises(
        NewerDecisionError, match=r"batch 3 can't be written: .* batch 4 was written already"
    ):
        await job.task(3, 0, rows_of(3))
    with pytest.raises(NewerDecisionError, match="batch 4 was written already"):
        await job.commit(3, reports)
    assert committed(broker) == sorted(rows_of(4))
    assert open_transactions(broker) == []


def with_checkpoint(job: Job, directory: Path, ends: Sequence[str]) -> Job:
    """Write offsets of batches as Spark does."""
    (directory / "offsets").mkdir(exist_ok=True)
    for version, end in enumerate(ends):
        (directory / "offsets" / str(version)).write_text(f"v1\n{{}}\n{end}", encoding="utf-8")
    return job.again(checkpointLocation=str(directory))


async def test_a_restored_checkpoint_is_distinguished_from_where_to_continue(
    broker: EmbeddedCluster, tmp_path: Path
) -> None:
    ends = [
        json.dumps({"in": {"0": 10 * number, "1": 7}, f"in#{uuid.UUID(int=5)}": {}})
        for number in range(3)
    ]
    job = with_checkpoint(Job(broker.bootstrap_servers), tmp_path, ends)
    for version in range(3):
        await job.batch(version, split(rows_of(version), 2))
    for later in (job.again(), job.again(checkpointLocation="")):  # the last batch's is lost
        with pytest.raises(
            NewerDecisionError,
            match=(
                r"batch 2 was written already.*Batch 2 ended at \{\"in\":\{\"0\":20,\"1\":7\}\}: "
                r"to continue after it, begin a new checkpoint with these as startingOffsets"
            ),
        ):
            await later.task(1, 0, rows_of(1))


async def test_offsets_that_are_not_known_are_described(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers, checkpointLocation="s3://bucket/checkpoint")
    await job.batch(2, [rows_of(2)])
    with pytest.raises(NewerDecisionError, match=r"file offsets/2 of the newest checkpoint"):
        await job.task(1, 0, rows_of(1))


async def test_a_copied_checkpoint_that_writes_elsewhere_is_named(broker: EmbeddedCluster) -> None:
    broker.create_topic("elsewhere", 1)
    job = Job(broker.bootstrap_servers)
    await job.batch(0, [rows_of(0)])
    await job.batch(1, [rows_of(1)])
    for version in (0, 1):
        for given in ({}, {"onReplayMismatch": "warn"}):
            copy = job.again(topic="elsewhere", **given)
            with pytest.raises(
                CopiedCheckpointError,
                match=(
                    rf"batch {version} can't be written to topic 'elsewhere': the checkpoint was "
                    r"copied from a query that wrote batch 1 to topic 't'.*transactionalIdPrefix"
                ),
            ):
                await copy.batch(version, [["other rows"]])
    assert broker.records("elsewhere", committed_only=True) == []
    copy = job.again(topic="elsewhere", transactionalIdPrefix="copy")
    assert await copy.batch(1, [["other rows"]]), "the cure"
    assert len(broker.records("elsewhere", committed_only=True)) == 1
    assert await job.again(topic="elsewhere").batch(2, [["x"]]), (
        "a topic may change between batches"
    )


async def test_two_outputs_with_one_app_id_are_named(broker: EmbeddedCluster) -> None:
    broker.create_topic("elsewhere", 1)
    job = Job(broker.bootstrap_servers, txnAppId="app", txnVersion="3")
    await job.batch(3, [rows_of(3)])
    with pytest.raises(
        CopiedCheckpointError,
        match=r"with txnAppId 'app' version 3 was written to topic 't'.*needs its own txnAppId",
    ):
        await job.again(topic="elsewhere").batch(3, [rows_of(3)])


async def test_rows_go_to_several_topics_in_one_batch(broker: EmbeddedCluster) -> None:
    broker.create_topic("u", 1)
    job = Job(broker.bootstrap_servers, topic="")
    columns = {"topic": pa.array(["u", "t"] * 3), "key": pa.array([b"k"] * 6)}
    with killed_at(completing, "end_decided", "before"):
        await job.commit(
            0,
            [
                await job.task(0, 0, rows_of(0, 6), columns=columns),
                await job.task(0, 1, ["x"], columns={"topic": pa.array(["u"])}),
            ],
        )
    assert committed(broker) == []
    again = job.again()
    columns = {"topic": pa.array([*["u", "t"] * 3, "u"]), "key": pa.array([b"k"] * 6 + [None])}
    await again.commit(0, [await again.task(0, 0, [*rows_of(0, 6), "x"], columns=columns)])
    assert len(broker.records("u", committed_only=True)) == 4 and len(committed(broker)) == 3


async def test_the_newest_decision_counts_whatever_topic_it_is_kept_with(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("a", 1)
    job = Job(broker.bootstrap_servers)
    await job.batch(0, [rows_of(0)])
    other = job.again(topic="a")
    await other.batch(1, [rows_of(1)])
    with pytest.raises(NewerDecisionError):
        await job.batch(0, [rows_of(0)])
    await job.again().batch(2, [rows_of(2)])
    assert committed(broker) == sorted(rows_of(0) + rows_of(2))


# -- several drivers, zombies, orphans -------------------------------------------------------------


async def test_of_two_drivers_one_writes_the_batch(broker: EmbeddedCluster) -> None:
    first, second = Job(broker.bootstrap_servers), Job(broker.bootstrap_servers)
    reports = (
        await first.tasks(0, split(rows_of(0), 2)),
        await second.tasks(0, split(rows_of(0), 2)),
    )
    assert len(open_transactions(broker)) == 4
    assert await first.commit(0, reports[0])
    assert not await second.commit(0, reports[1])
    assert committed(broker) == sorted(rows_of(0))
    assert open_transactions(broker) == []


async def test_two_drivers_at_the_same_time(broker: EmbeddedCluster) -> None:
    for version in range(5):
        jobs = [Job(broker.bootstrap_servers), Job(broker.bootstrap_servers)]
        outcomes = await asyncio.gather(
            *(job.batch(version, split(rows_of(version), 2)) for job in jobs),
            return_exceptions=True,
        )
        assert all(isinstance(each, bool | KafkaError) for each in outcomes), outcomes
        if True not in outcomes:
            await jobs[0].again().batch(version, split(rows_of(version), 3))
        expected = sorted(row for done in range(version + 1) for row in rows_of(done))
        assert committed(broker) == expected, outcomes


async def test_a_driver_that_another_took_over_from_decides_nothing(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Job(broker.bootstrap_servers), Job(broker.bootstrap_servers)
    reports = await old.tasks(0, split(rows_of(0), 2))
    commit = Producer.commit_transaction

    async def overtaken(producer: Producer) -> None:
        monkeypatch.setattr(Producer, "commit_transaction", commit)
        assert await new.batch(0, split(rows_of(0), 3))
        await commit(producer)

    monkeypatch.setattr(Producer, "commit_transaction", overtaken)
    with pytest.raises(
        SinkError,
        match="another driver writes as 'aioprod-spark-query', "
        "with the same checkpoint or txnAppId",
    ):
        await old.commit(0, reports)
    assert committed(broker) == sorted(rows_of(0))


async def test_an_attempt_that_was_given_up_writes_nothing_that_is_seen(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    going_on = asyncio.Event()

    def slow_rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": rows_of(0)})
        loop.call_soon_threadsafe(gate.set_result, None)
        asyncio.run_coroutine_threadsafe(going_on.wait(), loop).result(LIMIT_S)
        yield pa.record_batch({"value": rows_of(0)})

    loop = asyncio.get_running_loop()
    zombie = asyncio.create_task(
        write_alone(job.options, TaskAttempt(job.sink, job.run, 0, 0, 0), slow_rows())
    )
    await gate
    assert await job.commit(0, [await job.task(0, 0, rows_of(0), attempt=1)])
    going_on.set()
    with pytest.raises(SinkError):
        await zombie
    assert await job.batch(1, [rows_of(1)])
    assert committed(broker) == sorted(rows_of(0) + rows_of(1))


async def test_an_attempt_that_begins_after_the_decision_harms_nothing(
    broker: EmbeddedCluster,
) -> None:
    """Attempts of a stage that Spark runs a second time may do this."""
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 2))
    late = TaskAttempt(job.sink, job.run, 0, 1, number_of(1, attempt=1))
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    await write_alone(
        job.options, late, iter([pa.record_batch({"value": split(rows_of(0), 2)[1]})])
    )
    assert not await job.again().batch(0, split(rows_of(0), 3))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_zombie_of_an_earlier_batch_is_reported(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, [rows_of(0)])
    await job.batch(1, [rows_of(1)])
    with pytest.raises(NewerDecisionError):
        await job.task(0, 0, rows_of(0), attempt=1)
    assert open_transactions(broker) == []


async def test_what_a_dead_run_left_open_is_swept_with_the_first_commit_of_the_next(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.tasks(0, split(rows_of(0), 3))
    bystander = Job(broker.bootstrap_servers, "query-2")
    await bystander.tasks(0, split(rows_of(0), 2))
    await job.again().batch(0, [rows_of(0)])
    assert [name for name in open_transactions(broker) if job.sink.parse(name)] == []
    assert len(open_transactions(broker)) == 2, "other sinks' transactions are left alone"


async def test_a_sweep_spares_what_another_driver_may_still_decide(broker: EmbeddedCluster) -> None:
    lost_touch, job = Job(broker.bootstrap_servers), Job(broker.bootstrap_servers)
    await lost_touch.batch(0, [rows_of(0)])
    reports = await lost_touch.tasks(1, split(rows_of(1), 2))
    assert not await job.batch(0, [rows_of(0)])
    assert len(open_transactions(broker)) == 2
    assert await lost_touch.commit(1, reports)
    assert committed(broker) == sorted(rows_of(0) + rows_of(1))


async def test_what_an_earlier_write_decided_and_did_not_finish_is_finished_by_the_next(
    broker: EmbeddedCluster,
) -> None:
    """With txnAppId, the same write may never be repeated."""
    job = Job(broker.bootstrap_servers)
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 3))
    await job.again().commit(1, [await job.again().task(1, 5, rows_of(1))])
    assert committed(broker) == sorted(rows_of(0) + rows_of(1))


async def test_abort_leaves_nothing_open(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, [rows_of(0)])
    await job.tasks(1, split(rows_of(1), 3))
    await job.abort(1)
    assert open_transactions(broker) == []
    assert committed(broker) == sorted(rows_of(0))


async def test_abort_finds_what_stray_tasks_open_afterwards(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark does not wait for the tasks of a write that has failed."""
    job = Job(broker.bootstrap_servers)
    await job.task(0, 0, ["early"])

    async def stray() -> None:
        assert open_transactions(broker) == []
        await job.task(0, 1, ["late"])

    monkeypatch.setattr(driver, "wait_for_strays", stray)
    await job.abort(0, strays=True)
    assert len(broker.records("t")) == 2
    assert open_transactions(broker) == []
    assert committed(broker) == []


async def test_an_orphan_that_can_not_be_aborted_fails_nothing(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.tasks(0, [[], ["left"]])
    orphan = open_transactions(broker)[0]
    broker.on(
        ApiKey.INIT_PRODUCER_ID,
        fail(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        times=None,
        where=of(orphan),
    )
    with caplog.at_level(logging.WARNING):
        assert await job.again().batch(0, [rows_of(0)])
    assert f"the open transaction of {orphan!r} could not be aborted" in caplog.text


# -- transactions that time out --------------------------------------------------------------------


async def test_a_task_that_takes_too_long_is_reported_what_to_do(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers, **{"kafka.transaction.timeout.ms": "200"})
    attempt = TaskAttempt(job.sink, job.run, 0, 0, 0)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["1"]})
        while broker.transactions[attempt.transactional_id].state.value != "CompleteAbort":
            pass
        yield pa.record_batch({"value": ["2"]})

    with pytest.raises(
        TransactionTimedOutError,
        match=r"longer than kafka\.transaction\.timeout\.ms=200, .*delivery=at-least-once",
    ):
        await asyncio.wait_for(write_alone(job.options, attempt, rows()), LIMIT_S)
    assert committed(broker) == []


async def test_a_transaction_that_timed_out_before_the_decision_fails_the_batch_whole(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    broker.expire_transaction(reports[1].attempt.transactional_id)
    with pytest.raises(
        TransactionTimedOutError,
        match=(
            r"batch 0: the transaction of task 1 .* "
            r"kafka.transaction.timeout.ms=900000.*at-least-once"
        ),
    ):
        await job.commit(0, reports)
    assert committed(broker) == [] and open_transactions(broker) == []
    await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))


async def end(job: Job, version: int, partitions: list[int], *, commit: bool = True) -> None:
    """End some transactions of the newest decision, as a driver that has died meanwhile."""
    async with open_coordination(job.options.producer, "test") as coordination:
        decision = await read_decided(coordination, job.sink)
        assert decision is not None and decision.version == version
        for partition in partitions:
            await transactions.end_transaction(
                coordination, decision.prepared(job.sink)[partition], commit=commit
            )


async def test_a_transaction_that_timed_out_after_the_decision_is_lost_loudly(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(broker.bootstrap_servers)
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 3))
    await end(job, 0, partitions=[0])
    broker.expire_transaction(job.sink.transactional_id(job.run, 0, number_of(2)))
    for _ in range(2):
        with pytest.raises(
            LostTransactionsError,
            match=r"1 of 3 transactions .* 4 of 12 rows are lost \(tasks 2\).*skipLostBatch=0",
        ) as raised:
            await job.again().batch(0, split(rows_of(0), 2))
        assert (raised.value.version, raised.value.rows) == (0, 4)
    with pytest.raises(LostTransactionsError):
        await job.again(skipLostBatch="1").batch(0, split(rows_of(0), 2))
    with caplog.at_level(logging.ERROR):
        assert not await job.again(skipLostBatch="0").batch(0, split(rows_of(0), 2))
    assert "skipLostBatch=0: batch 0 was decided" in caplog.text
    assert committed(broker) == sorted(row for part in split(rows_of(0), 3)[:2] for row in part)


async def test_a_transaction_that_is_getting_old_is_warned_of(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 1))
    old = TaskReport(
        **{
            **{name: getattr(reports[0], name) for name in TaskReport.__slots__},
            "started_at": reports[0].started_at - 600,
        }
    )
    with caplog.at_level(logging.WARNING):
        assert await job.commit(0, [old])
    # 10 s less than the timeout: twice kafka.max.block.ms.
    assert "has been open for 600 s of 890 s; older ones are not committed" in caplog.text


async def test_a_decision_that_was_deleted_is_noticed(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, [rows_of(0)])
    reports = await job.again().tasks(0, [rows_of(0)])
    gone = Job(broker.bootstrap_servers, "another")
    moved = [
        TaskReport(
            TaskAttempt(gone.sink, gone.run, 0, 0, 0),
            rows=report.rows,
            digest=report.digest,
            decided=True,
        )
        for report in reports
    ]
    with pytest.raises(SinkError, match="no longer has its decision: was the group deleted"):
        await gone.commit(0, moved)


# -- brokers that move, refuse and are gone --------------------------------------------------------

APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


NOT_READY = {
    code.name: code
    for code in (
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE,
    )
}
LOST = {
    "request lost": drop_before,
    "answer lost": drop_after,
    "answer cut": lambda: cut_answer(6),
}


def each_api_with(kinds: Mapping[str, Any]) -> Iterator[ParameterSet]:
    """Yield each API with each kind of a fault; without ``-m faults`` each API runs with one."""
    for row, api in enumerate(APIS):
        for column, (name, kind) in enumerate(kinds.items()):
            marks = by_default_each(len(kinds), row + column)
            yield pytest.param(api, kind, id=f"{api.name}-{name}", marks=marks)


@pytest.mark.parametrize(("api", "code"), list(each_api_with(NOT_READY)))
async def test_coordinators_that_are_not_ready_get_another_request(
    broker: EmbeddedCluster, api: ApiKey, code: ErrorCode
) -> None:
    job = Job(broker.bootstrap_servers)
    await job.batch(0, split(rows_of(0), 2))
    broker.on(api, fail(code), times=3)
    await job.batch(1, split(rows_of(1), 2))
    assert committed(broker) == sorted(rows_of(0) + rows_of(1))


@pytest.mark.parametrize(("api", "fault"), list(each_api_with(LOST)))
async def test_lost_connections_are_made_again(
    broker: EmbeddedCluster, api: ApiKey, fault: Any
) -> None:
    job = Job(broker.bootstrap_servers, **{"kafka.reconnect.backoff.ms": "5"})
    for version in range(3):
        broker.on(api, fault(), nth=1 + version)
        try:
            await job.batch(version, split(rows_of(version), 2))
        except KafkaError:
            # It is not certain then whether the batch was decided: a replay shows.
            await job.again().batch(version, split(rows_of(version), 3))
    assert committed(broker) == sorted(row for version in range(3) for row in rows_of(version))


async def test_coordinators_that_move_between_the_steps_are_found_again(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 3))
    for number, report in enumerate(reports):
        broker.move_coordinator("transaction", report.attempt.transactional_id, 1 + number % 3)
    with killed_at(completing, "end_decided", "before"):
        await job.commit(0, reports)
    for number, report in enumerate(reports):
        broker.move_coordinator(
            "transaction", report.attempt.transactional_id, 1 + (number + 1) % 3
        )
    broker.move_coordinator("group", job.sink.group, 3)
    assert not await job.again().batch(0, split(rows_of(0), 2))
    assert committed(broker) == sorted(rows_of(0))


async def test_a_broker_that_is_down_delays_nothing(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers, **{"kafka.reconnect.backoff.ms": "5"})
    await job.batch(0, split(rows_of(0), 2))
    await broker.stop_node(3)
    async with asyncio.timeout(LIMIT_S):
        await job.batch(1, split(rows_of(1), 2))
    assert committed(broker) == sorted(rows_of(0) + rows_of(1))


async def test_a_silent_broker_delays_the_sweep_for_seconds_only(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LIST_LIMIT_MS", 100)
    monkeypatch.setattr(ages, "LIST_LIMIT_MS", 100)
    job = Job(broker.bootstrap_servers)
    broker.on(ApiKey.LIST_TRANSACTIONS, hold(), times=None, node=2)
    async with asyncio.timeout(LIMIT_S):
        assert await job.batch(0, split(rows_of(0), 2))


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.INIT_PRODUCER_ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ApiKey.OFFSET_FETCH, E.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.FIND_COORDINATOR, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
    ids=lambda each: each.name,
)
async def test_a_right_that_is_missing_is_reported_by_the_task(
    broker: EmbeddedCluster, api: ApiKey, code: ErrorCode
) -> None:
    broker.on(api, fail(code), times=None)
    with pytest.raises(BrokerError, match=code.name):
        await Job(broker.bootstrap_servers).task(0, 0, rows_of(0))
    assert open_transactions(broker) == []


@pytest.mark.parametrize(
    "code", [E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED], ids=str
)
async def test_a_decision_that_is_refused_leaves_nothing_visible(
    broker: EmbeddedCluster, code: ErrorCode
) -> None:
    job = Job(broker.bootstrap_servers)
    broker.on(ApiKey.TXN_OFFSET_COMMIT, fail(code), times=1)
    with pytest.raises(KafkaError, match=code.name):
        await job.batch(0, split(rows_of(0), 2))
    assert committed(broker) == [] and open_transactions(broker) == []


async def test_a_transaction_that_can_not_be_ended_yet_is_reported_and_finished_by_the_replay(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await job.tasks(0, split(rows_of(0), 2))
    refused = reports[0].attempt.transactional_id
    broker.on(ApiKey.END_TXN, fail(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), where=of(refused))
    with pytest.raises(
        SinkError,
        match=(
            r"batch 0 is decided, but 1 of 2 transactions are not committed yet.*Start the query "
            r"again"
        ),
    ):
        await driver.commit_batch(job.options, reports, 0)
    assert not await job.again().batch(0, split(rows_of(0), 3))
    assert committed(broker) == sorted(rows_of(0))


async def test_brokers_that_are_too_old_are_reported(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = Connection.pick_version

    def older(
        connection: Connection, request: type[Request[Any]], newest: int | None = None
    ) -> int:
        if request is DescribeTransactionsRequest:
            raise UnsupportedVersionError("no version of DescribeTransactions in common")
        return pick(connection, request, newest)

    monkeypatch.setattr(Connection, "pick_version", older)
    with pytest.raises(
        SinkError, match=r"needs brokers of Kafka 3.0 or newer; use delivery=at-least-once"
    ):
        await driver.commit_batch(
            Job(broker.bootstrap_servers).options,
            await Job(broker.bootstrap_servers).tasks(0, [rows_of(0)]),
            0,
        )
    assert committed(broker) == []


# -- many tasks ------------------------------------------------------------------------------------


async def begun(broker: EmbeddedCluster, job: Job, version: int, count: int) -> list[TaskReport]:
    """Reports of many tasks with a row each, without a producer for each of them."""
    reports = []
    for partition in range(count):
        attempt = TaskAttempt(job.sink, job.run, version, partition, partition)
        async with Producer(
            broker.bootstrap_servers, transactional_id=attempt.transactional_id
        ) as producer:
            await producer.begin_transaction()
            await producer.send("t", f"{version}/{partition}".encode())
            prepared = await producer.prepare_transaction()
        reports.append(TaskReport(attempt, prepared, 1, 3, partition, frozenset({"t"})))
    return reports


async def test_a_decision_that_is_too_long_for_an_offset_goes_to_its_topic(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers, decisionTopic="decisions")
    prepared = PreparedTransaction("", 0, 0, True)
    many = [
        TaskReport(
            TaskAttempt(job.sink, job.run, 0, n, n + 77),
            prepared._replace(producer_id=n * n * n),
            n,
            0,
            n,
        )
        for n in range(1000)
    ]
    decision = driver.decision_of(many, job.run, 0)
    async with driver._open(job.options, job.sink) as part:
        await decide(part, replace(decision, topic="t"))
        assert await read_decided(part.coordination, job.sink, stable=True) == decision
    assert [record.key for record in broker.records("decisions", committed_only=True)] == [
        b"aioprod-spark-query"
    ]


async def test_where_brokers_allow_less_metadata_the_decision_goes_to_its_topic(
    broker: EmbeddedCluster,
) -> None:
    job = Job(broker.bootstrap_servers, decisionTopic="decisions")
    broker.on(ApiKey.TXN_OFFSET_COMMIT, fail(E.OFFSET_METADATA_TOO_LARGE))
    with killed_at(completing, "end_decided", "before"):
        await job.batch(0, split(rows_of(0), 2))
    assert len(broker.records("decisions", committed_only=True)) == 1
    assert not await job.again().batch(0, split(rows_of(0), 3))
    assert committed(broker) == sorted(rows_of(0))


async def test_two_tasks_with_one_transactional_id_are_refused(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    tasks = [TaskAttempt(job.sink, job.run, 0, partition, 7) for partition in range(2)]
    reports = [
        await write_alone(job.options, task, iter([pa.record_batch({"value": ["x"]})]))
        for task in tasks
    ]
    with pytest.raises(SinkError, match=r"batch 0: 2 tasks have only 1 transactional ids"):
        await job.commit(0, reports)
    assert committed(broker) == [] and open_transactions(broker) == []


async def test_a_batch_of_many_tasks(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers)
    reports = await begun(broker, job, 0, 60)
    assert await job.commit(0, reports)
    assert committed(broker) == sorted(f"0/{n}" for n in range(60))


async def test_the_decision_topic_can_not_be_made(broker: EmbeddedCluster) -> None:
    job = Job(broker.bootstrap_servers, decisionTopic="decisions")
    broker.on(ApiKey.CREATE_TOPICS, fail(E.TOPIC_AUTHORIZATION_FAILED), times=None)
    many = [
        TaskReport(
            TaskAttempt(job.sink, job.run, 0, n, n * n), PreparedTransaction("", n**3, 0, True), 1
        )
        for n in range(900)
    ]
    decision = driver.decision_of(many, job.run, 0)
    async with driver._open(job.options, job.sink) as part:
        with pytest.raises(
            BrokerError,
            match=(
                r"decisionTopic decisions is missing and can't be created; create it with "
                r"cleanup.policy=compact"
            ),
        ):
            await decide(part, replace(decision, topic="t"))
    assert "decisions" not in broker.topics
