"""Real Kafka nodes are killed, frozen, shut down and cut off under load: nothing acknowledged is
lost, doubled or out of order, nothing hangs, and gaps are no longer than those of other clients in
the same minute. Minutes long: runs only where it is asked for by ``-m faults``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.faults.harness import fault_courses as courses
from tests.faults.harness.fault_load import AioprodLoad
from tests.faults.harness.fault_planted import PLANTED_BUGS, PlantedBug
from tests.faults.harness.fault_report import Report
from tests.faults.harness.fault_stage import SESSION_SECONDS, Outcome, Stage, led_by
from tests.faults.harness.fault_timeline import Failure
from tests.faults.harness.fault_transactions import TransactionLoad

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

AS_GOOD_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
#: Settings under which records are given up after `PATIENCE_SECONDS`.
PATIENCE: dict[str, dict[str, Any]] = {
    "aioprod": {"delivery_timeout_ms": PATIENCE_SECONDS * 1000, "request_timeout_ms": 5_000},
    "aiokafka": {"request_timeout_ms": int(PATIENCE_SECONDS * 1000)},
    "confluent-kafka": {"message.timeout.ms": int(PATIENCE_SECONDS * 1000)},
}


def check_safety(outcome: Outcome, *, may_fail: bool = False) -> None:
    assert not outcome.findings, "\n".join(map(str, outcome.findings[:20]))
    timeline = outcome.timelines["aioprod"]
    assert timeline.open == 0
    assert timeline.count > 0
    assert may_fail or not timeline.failures, timeline.failures[:5]


def check_as_live_as_others(outcome: Outcome, within: float = AS_GOOD_SECONDS) -> None:
    assert outcome.median_gap("aioprod") <= outcome.best_anchor() + within, {
        client: outcome.gaps(client) for client in outcome.timelines
    }


def check_given_up_in_time(failures: list[Failure]) -> None:
    """A batch is given up when its first record is due, and not before; records that joined it
    later go with it (as in Java).
    """
    assert failures
    assert max(failure.after for failure in failures) <= PATIENCE_SECONDS + 1
    heard: dict[int, float] = {}
    for failure in failures:
        is_first_of_batch = failure.at - heard.get(failure.partition, 0.0) > 0.02
        assert failure.after >= PATIENCE_SECONDS - 0.1 or not is_first_of_batch, failure
        heard[failure.partition] = failure.at


async def test_quiet(stage: Stage, report: Report) -> None:
    outcome = await stage.play("quiet", courses.quiet)
    report(outcome)
    check_safety(outcome)


@pytest.mark.parametrize(
    "course",
    [courses.kill, courses.kill_controller, courses.roll, courses.move],
    ids=lambda course: course.__name__,
)
async def test_leaders_that_go(stage: Stage, report: Report, course: Any) -> None:
    outcome = await stage.play(course.__name__, course)
    report(outcome)
    check_safety(outcome)
    check_as_live_as_others(outcome)


async def test_a_frozen_leader_costs_no_more_than_its_session(stage: Stage, report: Report) -> None:
    outcome = await stage.play("freeze", courses.freeze)
    report(outcome)
    check_safety(outcome)
    assert outcome.median_gap("aioprod") <= SESSION_SECONDS + 2.0, outcome.gaps("aioprod")
    # The second of replica.fetch.backoff.ms may come on top: the new leader waits for a follower
    # that still asks the old one.
    assert max(outcome.gaps("aioprod")) <= SESSION_SECONDS + 3.0, outcome.gaps("aioprod")


async def test_short_freezes(stage: Stage, report: Report) -> None:
    outcome = await stage.play("nap", courses.nap)
    report(outcome)
    check_safety(outcome)
    check_as_live_as_others(outcome)


async def test_total_outage(stage: Stage, report: Report) -> None:
    outcome = await stage.play("outage", courses.outage)
    report(outcome)
    check_safety(outcome)
    # Trying again has reached its longest pauses by then: a second before a connection, one before
    # metadata.
    check_as_live_as_others(outcome, AS_GOOD_SECONDS + 2)


async def test_a_partition_without_a_leader_harms_no_other(stage: Stage, report: Report) -> None:
    outcome = await stage.play("hole", courses.hole, replication_factor=1, settings=PATIENCE)
    report(outcome)
    check_safety(outcome, may_fail=True)
    [fault] = outcome.faults
    timeline = outcome.timelines["aioprod"]
    others = [
        partition
        for node in (1, 2, 3)
        for partition in led_by(node)
        if partition not in (fault.partitions or [])
    ]
    # Of this machine as it is, gaps of a third of a second are nothing: it is measured before the
    # fault.
    ordinary = timeline.gap(fault.at - 2, fault.at, others)
    assert timeline.gap(fault.at, fault.at + PATIENCE_SECONDS + 5, others) <= 0.5 + ordinary
    assert {failure.error for failure in timeline.failures} == {"DeliveryTimeoutError"}
    assert {failure.partition for failure in timeline.failures} == set(fault.partitions or [])
    check_given_up_in_time(timeline.failures)


async def test_closing_in_the_dark(stage: Stage, report: Report) -> None:
    """All nodes are frozen: records are given up in time, and so is closing, which others may do
    when they have an answer.
    """
    stop, limit_ms = asyncio.Event(), 3_000
    settings = {**PATIENCE, "aioprod": {**PATIENCE["aioprod"], "close_timeout_ms": limit_ms}}
    settings["aiokafka"] = {**PATIENCE["aiokafka"], "close_timeout_s": 30}
    outcome = await stage.play("dark", courses.dark(stop), settings=settings, stop_in=stop)
    report(outcome)
    check_safety(outcome, may_fail=True)
    timeline = outcome.timelines["aioprod"]
    given_up = [failure for failure in timeline.failures if failure.error == "DeliveryTimeoutError"]
    check_given_up_in_time(given_up)
    assert timeline.close_seconds <= limit_ms / 1000 + 1


@pytest.mark.parametrize(
    "plan",
    [courses.cuts, courses.lost_acknowledgements, courses.stalls, courses.single_bytes],
    ids=lambda plan: plan.__name__,
)
async def test_a_network_that_does_harm(stage: Stage, report: Report, plan: Any) -> None:
    outcome = await stage.play(plan.__name__, courses.wait, plan=plan)
    report(outcome)
    check_safety(outcome)
    assert outcome.own_faults["aioprod"], "nothing was done: this proves nothing"
    check_as_live_as_others(outcome)


@pytest.mark.parametrize(
    "course", [courses.kill, courses.freeze, courses.roll], ids=lambda course: course.__name__
)
async def test_transactions(stage: Stage, report: Report, course: Any) -> None:
    outcome = await stage.play(f"txn-{course.__name__}", course, clients=[TransactionLoad])
    report(outcome)
    check_safety(outcome, may_fail=True)


@pytest.mark.parametrize(
    "plan", [courses.cuts, courses.lost_acknowledgements], ids=lambda plan: plan.__name__
)
async def test_transactions_over_a_network_that_does_harm(
    stage: Stage, report: Report, plan: Any
) -> None:
    outcome = await stage.play(
        f"txn-{plan.__name__}", courses.wait, plan=plan, clients=[TransactionLoad]
    )
    report(outcome)
    check_safety(outcome, may_fail=True)


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(
    stage: Stage, plant: PlantedBug, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the tests above prove nothing."""
    anomalies = plant(monkeypatch)
    settings = {
        "aioprod": {"batch_size": 300, "linger_ms": 0, "pace": 0.01}
    }  # so that batches queue up, too
    outcome = await stage.play(
        plant.__name__,
        courses.briefly,
        plan=courses.frequently_all,
        clients=[AioprodLoad],
        settings=settings,
    )
    assert outcome.anomalies & anomalies, outcome.findings
