"""Drivers, executors and brokers are killed at every step of the protocol and at random; each row
is there once, for a consumer of committed records.

It takes minutes: ``python -m pytest tests/spark/crash -m faults``. AIOPROD_CRASH_KILLS sets the
number of random kills (8), AIOPROD_CRASH_SEED the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.find_coordinator import FindCoordinatorRequest
from aioprod.testing.real_cluster import RealCluster

from .crash_report import ROWS, Campaign, Row
from .crash_spec import Event, Phase, Point
from .crash_stage import Life

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1_800)]

EXACTLY_ONCE = {"delivery": "exactly-once"}
RANDOM_KILLS = int(os.environ.get("AIOPROD_CRASH_KILLS", "8"))
SEED = int(os.environ.get("AIOPROD_CRASH_SEED", str(random.randrange(1 << 16))))
_TRANSACTION_COORDINATOR = 1

Report = Callable[[list[Row]], None]

TASK_STEPS = [
    Point("begin", "write"),
    Point("INIT_PRODUCER_ID:after", "write"),
    Point("PRODUCE:before", "write"),
    Point("PRODUCE:after", "write"),
    Point("end", "write"),  # one task's transaction is prepared, others may not
]
DECISION_STEPS = [
    Point("begin", "commit"),
    Point("INIT_PRODUCER_ID:after", "commit"),  # older drivers are fenced
    Point("OFFSET_FETCH:after", "commit"),
    Point("TXN_OFFSET_COMMIT:before", "commit"),
    Point("TXN_OFFSET_COMMIT:after", "commit"),  # the decision is written, its transaction open
    Point("END_TXN:before", "commit"),
]
ENDING_STEPS = [
    Point("END_TXN:after", "commit"),  # decided, no task's transaction is known to have ended
    Point("END_TXN:after", "commit", nth=2),
    Point("END_TXN:after", "commit", nth=3),
    # The first one shows how old the transactions are, before the decision.
    Point("LIST_TRANSACTIONS:before", "commit", nth=2),
    Point("LIST_TRANSACTIONS:after", "commit", nth=2),
    Point("end", "commit"),  # Spark has not noted the micro-batch yet
]
ABORT_STEPS = [
    Point("begin", "abort"),
    Point("INIT_PRODUCER_ID:after", "abort"),
    Point("end", "abort"),
]


@pytest.fixture
def life(kafka: str) -> Iterator[Life]:
    with Life(kafka, EXACTLY_ONCE, rows_per_batch=ROWS) as life:
        yield life


def check_exactly_once(rows: list[Row]) -> None:
    assert not [row for row in rows if row.duplicates or row.missing], rows


@pytest.mark.parametrize(
    "steps", [TASK_STEPS, DECISION_STEPS, ENDING_STEPS], ids=["tasks", "decision", "ending"]
)
def test_driver_killed_at_each_step(life: Life, steps: list[Point], report: Report) -> None:
    campaign = Campaign(life)
    for point in steps:
        assert campaign.crash(point).crashed, f"{point.name} was not reached"
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_the_same_harness_finds_rows_that_are_doubled(life: Life, report: Report) -> None:
    campaign = Campaign(life)
    assert campaign.crash(Point("end", "commit"), options={"delivery": "at-least-once"}).crashed
    rows = campaign.finish()
    report(rows)
    assert [(row.duplicates, row.missing, row.replayed) for row in rows] == [
        (ROWS, 0, 0),
        (0, 0, 1),
    ]


def test_driver_killed_while_it_sweeps_what_a_kill_has_left(life: Life, report: Report) -> None:
    campaign = Campaign(life)
    assert campaign.crash(Point("begin", "commit")).crashed
    # The first InitProducerId is for the driver's own id, the next aborts what is left.
    for point in (
        Point("LIST_TRANSACTIONS:after", "commit", nth=2),
        Point("INIT_PRODUCER_ID:after", "commit", nth=2),
    ):
        assert campaign.crash(point, fresh=False).crashed, f"{point.name} was not reached"
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_driver_killed_while_it_aborts(life: Life, report: Report) -> None:
    campaign = Campaign(life)
    for tasks, point in enumerate(ABORT_STEPS, start=2):
        # The first failure is the micro-batch's: there are no further attempts. On one core the
        # task before has reported by then, without whose report a stream's abort does not know the
        # query's id, and leaves all to the next run.
        outcome = campaign.crash(
            Point("end", "write", partition=1, action="fail"), point, master="local[1]", tasks=tasks
        )
        assert outcome.crashed, f"{point.name} was not reached: {outcome.error}"
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_driver_killed_at_random(life: Life, report: Report) -> None:
    chance, campaign, kills, longest_s = random.Random(SEED), Campaign(life), 0, 15.0
    for _ in range(2 * RANDOM_KILLS):
        if chance.random() < 0.5:
            outcome = campaign.crash(kill_after_s=chance.uniform(0, longest_s))
        else:
            phase: Phase = chance.choice(("write", "commit"))
            most = (
                max((event.requests for event in life.events() if event.phase == phase), default=0)
                or 10
            )
            point = Point(
                chance.choice(("*:before", "*:after")), phase, nth=chance.randint(1, most)
            )
            outcome = campaign.crash(point, fresh=chance.random() < 0.5)
        kills += outcome.kills
        longest_s = max(longest_s, outcome.seconds)
        assert outcome.error is None, f"seed {SEED}: {outcome.error}"
        if kills == RANDOM_KILLS:
            break
    rows = campaign.finish()
    report(rows)
    assert kills == RANDOM_KILLS, f"seed {SEED}: only {kills} kills"
    assert not [row for row in rows if row.duplicates or row.missing], f"seed {SEED}: {rows}"


def test_tasks_killed(life: Life, report: Report) -> None:
    """Python workers die alone, in the same micro-batch; Spark attempts their tasks again, and the
    query itself goes on.
    """
    campaign = Campaign(life)
    points = [
        Point(step, "write", action="kill worker")
        for step in ("INIT_PRODUCER_ID:after", "PRODUCE:after", "end")
    ]
    outcome = campaign.crash(*points, master="local[2,4]")
    assert outcome.error is None, outcome.error
    assert sorted(outcome.fired) == [0, 1, 2]
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_executors_killed(life: Life, report: Report) -> None:
    """One before its task has sent, one after that, and one when the task's transaction is
    prepared; the query itself continues.
    """
    campaign = Campaign(life)
    points = [
        Point(step, "write", from_batch=batch)
        for batch, step in enumerate(("begin", "PRODUCE:after", "end"))
    ]
    outcome = campaign.crash(*points, rows=3 * ROWS, master="local-cluster[2,1,1024]")
    assert outcome.error is None, outcome.error
    assert outcome.fired == [0, 1, 2]
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_an_orphan_of_a_lost_executor_harms_no_decided_transaction(
    life: Life, report: Report
) -> None:
    """Its worker lives on and comes to InitProducerId when the micro-batch is decided without it.
    With the shuffle's output on the lost executor Spark attempts the whole stage again, where
    attempts of tasks are numbered from 0 again.
    """

    def answer(event: Event) -> int:
        awaited = (
            ("commit", "END_TXN:after")
            if event.point == 0
            else ("write", "orphan INIT_PRODUCER_ID:after")
        )
        deadline = time.monotonic() + 150
        while awaited not in [(each.phase, each.step) for each in life.events()]:
            assert time.monotonic() < deadline, f"{awaited} was not reached"
            time.sleep(0.05)
        return 0

    campaign = Campaign(life)
    orphan = Point("INIT_PRODUCER_ID:before", "write", action="orphan")
    decided = Point("END_TXN:after", "commit", action="ask")
    outcome = campaign.crash(orphan, decided, master="local-cluster[2,1,1024]", answer=answer)
    assert outcome.error is None, outcome.error
    assert outcome.fired == [0, 1]
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


def test_brokers_killed(report: Report) -> None:
    """Coordinators of the sink's transactions go, one at each turn of the protocol; the query
    itself goes on.
    """
    with (
        RealCluster(3) as cluster,
        Life(cluster.bootstrap_servers, EXACTLY_ONCE, rows_per_batch=ROWS, replicas=3) as life,
    ):
        campaign, down = Campaign(life), list[int]()

        def kill_coordinator(_: Event) -> int:
            cluster.restart(*down)
            down[:] = [
                asyncio.run(
                    transaction_coordinator(
                        cluster.bootstrap_servers, f"aioprod-spark-{life.query_id()}"
                    )
                )
            ]
            cluster.kill(*down)
            return len(down)

        for step in (
            Point("PRODUCE:before", "write"),
            Point("TXN_OFFSET_COMMIT:before", "commit"),
            Point("END_TXN:after", "commit"),
        ):
            point = Point(step.step, step.phase, action="ask")
            outcome = campaign.crash(point, answer=kill_coordinator)
            assert outcome.error is None, outcome.error
            assert outcome.fired == [0], f"{step.name} was not reached"
        cluster.restart(*down)
        rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)


async def transaction_coordinator(servers: str, transactional_id: str) -> int:
    """The node that coordinates an id's transactions."""
    async with asyncio.timeout(30), ClusterClient(servers) as client:
        while True:
            request = FindCoordinatorRequest(
                key_type=_TRANSACTION_COORDINATOR, coordinator_keys=[transactional_id]
            )
            reply = await client.request(request)
            found = reply.coordinators[0]
            if found.error_code == 0:
                return found.node_id
            await asyncio.sleep(0.1)


def test_a_restart_clears_the_way_for_readers(life: Life, report: Report) -> None:
    """Transactions that a kill has left open hide later records; a restart's first micro-batch ends
    them, long before they time out.
    """
    campaign = Campaign(life)
    assert campaign.crash(Point("TXN_OFFSET_COMMIT:before", "commit")).crashed
    ends = life.ends()
    try:
        left_open, stable = ends.high(), ends.stable()
        assert any(here < there for here, there in zip(stable, left_open, strict=True)), (
            "nothing was hidden: this proves nothing"
        )
        with ThreadPoolExecutor(1) as thread:
            rows = thread.submit(campaign.finish)
            ends.wait_for(left_open, limit_s=120)
            open_at = time.time()
            report(rows.result())
        check_exactly_once(rows.result())
        committed_at = min(
            event.at
            for event in life.events()
            if event.run == 1 and event.phase == "commit" and event.step == "end"
        )
        assert open_at < committed_at + 1.0
    finally:
        ends.close()


def test_a_batch_of_which_nothing_was_committed_in_time_is_written_again(
    life: Life, report: Report
) -> None:
    """The brokers have aborted the transactions of a decision while the driver was down."""
    campaign, in_time = Campaign(life), {"kafka.transaction.timeout.ms": "12000"}
    assert campaign.crash(Point("END_TXN:after", "commit"), options=in_time).crashed
    ends = life.ends()
    try:
        ends.wait_for(ends.high(), limit_s=60)
    finally:
        ends.close()
    assert 0 < len(life.judge().missing) <= ROWS
    outcome = campaign.crash()
    assert outcome.error is not None and "the decision was taken back" in outcome.error, outcome
    rows = campaign.finish()
    report(rows)
    check_exactly_once(rows)
