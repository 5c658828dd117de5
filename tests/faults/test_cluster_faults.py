"""Real Kafka nodes are killed, frozen, shut down and disconnected under load.

No acknowledged record is lost, duplicated or out of order, nothing hangs, and gaps are no longer
than those of other clients. Takes minutes: runs only with ``-m faults``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.faults.harness import scenarios
from tests.faults.harness.cluster_control import SESSION_SECONDS, partitions_of
from tests.faults.harness.loads import AioprodLoad
from tests.faults.harness.planted_bugs import PLANTED_BUGS, PlantedBug
from tests.faults.harness.report import Report
from tests.faults.harness.runner import Outcome, ScenarioRunner
from tests.faults.harness.timeline import Failure
from tests.faults.harness.transactions import TransactionLoad

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

TOLERANCE_SECONDS = 0.5
TIMEOUT_SECONDS = 10.0
#: Settings with which records fail after `TIMEOUT_SECONDS`.
TIMEOUTS: dict[str, dict[str, Any]] = {
    "aioprod": {"delivery_timeout_ms": TIMEOUT_SECONDS * 1000, "request_timeout_ms": 5_000},
    "aiokafka": {"request_timeout_ms": int(TIMEOUT_SECONDS * 1000)},
    "confluent-kafka": {"message.timeout.ms": int(TIMEOUT_SECONDS * 1000)},
}


def check_safety(outcome: Outcome, *, may_fail: bool = False) -> None:
    assert not outcome.findings, "\n".join(map(str, outcome.findings[:20]))
    timeline = outcome.timelines["aioprod"]
    assert timeline.open == 0
    assert timeline.count > 0
    assert may_fail or not timeline.failures, timeline.failures[:5]


def check_gaps(outcome: Outcome, within: float = TOLERANCE_SECONDS) -> None:
    assert outcome.median_gap("aioprod") <= outcome.best_other_median() + within, {
        client: outcome.gaps(client) for client in outcome.timelines
    }


def check_timeouts(failures: list[Failure]) -> None:
    """Check that batches fail when the timeout of their first record expires; later records of the
    batch fail with it, as in Java.
    """
    assert failures
    assert max(failure.after for failure in failures) <= TIMEOUT_SECONDS + 1
    latest: dict[int, float] = {}
    for failure in failures:
        is_first_of_batch = failure.at - latest.get(failure.partition, 0.0) > 0.02
        assert failure.after >= TIMEOUT_SECONDS - 0.1 or not is_first_of_batch, failure
        latest[failure.partition] = failure.at


async def test_quiet(runner: ScenarioRunner, report: Report) -> None:
    outcome = await runner.run("quiet", scenarios.quiet)
    report(outcome)
    check_safety(outcome)


@pytest.mark.parametrize(
    "scenario",
    [scenarios.kill, scenarios.kill_controller, scenarios.roll, scenarios.move],
    ids=lambda scenario: scenario.__name__,
)
async def test_leader_changes(runner: ScenarioRunner, report: Report, scenario: Any) -> None:
    outcome = await runner.run(scenario.__name__, scenario)
    report(outcome)
    check_safety(outcome)
    check_gaps(outcome)


async def test_a_frozen_leader_causes_gaps_of_its_session_timeout(
    runner: ScenarioRunner, report: Report
) -> None:
    outcome = await runner.run("freeze", scenarios.freeze)
    report(outcome)
    check_safety(outcome)
    assert outcome.median_gap("aioprod") <= SESSION_SECONDS + 2.0, outcome.gaps("aioprod")
    # replica.fetch.backoff.ms may add a second: the new leader waits for a follower that still
    # fetches from the old one.
    assert max(outcome.gaps("aioprod")) <= SESSION_SECONDS + 3.0, outcome.gaps("aioprod")


async def test_short_freezes(runner: ScenarioRunner, report: Report) -> None:
    outcome = await runner.run("nap", scenarios.nap)
    report(outcome)
    check_safety(outcome)
    check_gaps(outcome)


async def test_total_outage(runner: ScenarioRunner, report: Report) -> None:
    outcome = await runner.run("outage", scenarios.outage)
    report(outcome)
    check_safety(outcome)
    # Both backoffs, of connections and of metadata, have reached their maximum of a second by then.
    check_gaps(outcome, TOLERANCE_SECONDS + 2)


async def test_a_partition_without_a_leader_does_not_affect_others(
    runner: ScenarioRunner, report: Report
) -> None:
    outcome = await runner.run("hole", scenarios.hole, replication_factor=1, settings=TIMEOUTS)
    report(outcome)
    check_safety(outcome, may_fail=True)
    [fault] = outcome.faults
    timeline = outcome.timelines["aioprod"]
    others = [
        partition
        for node in (1, 2, 3)
        for partition in partitions_of(node)
        if partition not in (fault.partitions or [])
    ]
    # This machine may have gaps without faults, so measure them before the fault.
    gap_without_fault = timeline.gap(fault.at - 2, fault.at, others)
    assert timeline.gap(fault.at, fault.at + TIMEOUT_SECONDS + 5, others) <= 0.5 + gap_without_fault
    assert {failure.error for failure in timeline.failures} == {"DeliveryTimeoutError"}
    assert {failure.partition for failure in timeline.failures} == set(fault.partitions or [])
    check_timeouts(timeline.failures)


async def test_closing_while_all_nodes_are_frozen(runner: ScenarioRunner, report: Report) -> None:
    """All nodes are frozen: records fail and `close` returns in time."""
    stop, limit_ms = asyncio.Event(), 3_000
    settings = {
        **TIMEOUTS,
        "aioprod": {**TIMEOUTS["aioprod"], "close_timeout_ms": limit_ms},
    }
    settings["aiokafka"] = {**TIMEOUTS["aiokafka"], "close_timeout_s": 30}
    outcome = await runner.run("dark", scenarios.dark(stop), settings=settings, stop_load=stop)
    report(outcome)
    check_safety(outcome, may_fail=True)
    timeline = outcome.timelines["aioprod"]
    timed_out = [
        failure for failure in timeline.failures if failure.error == "DeliveryTimeoutError"
    ]
    check_timeouts(timed_out)
    assert timeline.close_seconds <= limit_ms / 1000 + 1


@pytest.mark.parametrize(
    "plan",
    [scenarios.cuts, scenarios.lost_acknowledgements, scenarios.stalls, scenarios.single_bytes],
    ids=lambda plan: plan.__name__,
)
async def test_network_faults(runner: ScenarioRunner, report: Report, plan: Any) -> None:
    outcome = await runner.run(plan.__name__, scenarios.wait, plan=plan)
    report(outcome)
    check_safety(outcome)
    assert outcome.proxy_faults["aioprod"], "no fault was injected"
    check_gaps(outcome)


@pytest.mark.parametrize(
    "scenario",
    [scenarios.kill, scenarios.freeze, scenarios.roll],
    ids=lambda scenario: scenario.__name__,
)
async def test_transactions(runner: ScenarioRunner, report: Report, scenario: Any) -> None:
    outcome = await runner.run(f"txn-{scenario.__name__}", scenario, clients=[TransactionLoad])
    report(outcome)
    check_safety(outcome, may_fail=True)


@pytest.mark.parametrize(
    "plan", [scenarios.cuts, scenarios.lost_acknowledgements], ids=lambda plan: plan.__name__
)
async def test_transactions_with_network_faults(
    runner: ScenarioRunner, report: Report, plan: Any
) -> None:
    outcome = await runner.run(
        f"txn-{plan.__name__}", scenarios.wait, plan=plan, clients=[TransactionLoad]
    )
    report(outcome)
    check_safety(outcome, may_fail=True)


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(
    runner: ScenarioRunner, plant: PlantedBug, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show that the checks above can fail."""
    anomalies = plant(monkeypatch)
    # Small batches, so that they queue up.
    settings = {"aioprod": {"batch_size": 300, "linger_ms": 0, "pace": 0.01}}
    outcome = await runner.run(
        plant.__name__,
        scenarios.briefly,
        plan=scenarios.frequent_faults,
        clients=[AioprodLoad],
        settings=settings,
    )
    assert outcome.anomalies & anomalies, outcome.findings
