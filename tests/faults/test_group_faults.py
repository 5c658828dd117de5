"""Groups of consumers on a real cluster, while nodes, members and the network fail.

Each record is processed, no member owns partitions with records and stays idle, and gaps are no
longer than those of other clients. Takes minutes: runs only with ``-m faults``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.harness.cluster_control import PARTITIONS
from tests.faults.harness.groups import scenarios
from tests.faults.harness.groups.member import Settings
from tests.faults.harness.groups.runner import PROTOCOLS, GroupControl, GroupOutcome
from tests.faults.harness.groups.writer import PACE_SECONDS
from tests.faults.harness.report import GroupReport

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

TOLERANCE_SECONDS = 0.5
#: The session of a member ends up to a heartbeat earlier or later after a fault.
MEMBER_TOLERANCE_SECONDS = TOLERANCE_SECONDS + Settings.heartbeat_interval_ms / 1000
#: A session of a member, one of a node, and what a rebalance takes on a busy machine.
MOST_IDLE_SECONDS = 12.0


#: What a member has read since its last commit, and a second for what was on its way.
MOST_REPEATED = round(2 * PARTITIONS / PACE_SECONDS)


def check(outcome: GroupOutcome, within: float = TOLERANCE_SECONDS) -> None:
    for result in outcome.results:
        if result.client != "aioprod":
            continue
        findings = result.verdict.findings(MOST_IDLE_SECONDS)
        assert not findings, (result.protocol, findings[:20], result.verdict.errors[:20])
        assert result.verdict.written > 0
        assert result.verdict.duplicates <= MOST_REPEATED * result.faults, result.protocol
        assert result.gaps
        assert result.median_own_gap <= outcome.best_other(result.protocol) + within, (
            result.protocol,
            sorted(result.own_gaps),
        )


async def test_quiet(groups: GroupControl, group_report: GroupReport) -> None:
    outcome = await groups.run("quiet", scenarios.quiet)
    group_report(outcome)
    check(outcome)


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.kill_leader,
        scenarios.promote_follower,
        scenarios.kill_coordinator,
        scenarios.freeze_coordinator,
        scenarios.roll,
        scenarios.storm,
        scenarios.recreate_topics,
    ],
    ids=lambda scenario: scenario.__name__,
)
async def test_nodes_and_topics(
    groups: GroupControl, group_report: GroupReport, scenario: Any
) -> None:
    outcome = await groups.run(scenario.__name__, scenario)
    group_report(outcome)
    check(outcome)


@pytest.mark.parametrize(
    "scenario",
    [scenarios.kill_members, scenarios.freeze_members],
    ids=lambda scenario: scenario.__name__,
)
async def test_members(groups: GroupControl, group_report: GroupReport, scenario: Any) -> None:
    outcome = await groups.run(scenario.__name__, scenario)
    group_report(outcome)
    check(outcome, within=MEMBER_TOLERANCE_SECONDS)


async def test_added_partitions(groups: GroupControl, group_report: GroupReport) -> None:
    outcome = await groups.run("add_partitions", scenarios.add_partitions)
    group_report(outcome)
    # Members find them when they refresh their metadata, each at another moment.
    check(outcome, within=Settings.metadata_max_age_ms / 1000)


async def test_a_busy_handler(groups: GroupControl, group_report: GroupReport) -> None:
    outcome = await groups.run(
        "busy_members",
        scenarios.busy_members,
        settings={
            "max_poll_interval_ms": int(scenarios.MAX_POLL_SECONDS * 1000),
            "busy_seconds": scenarios.BUSY_SECONDS,
        },
    )
    group_report(outcome)
    check(outcome, within=MEMBER_TOLERANCE_SECONDS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_connections_are_cut(
    groups: GroupControl, group_report: GroupReport, protocol: str
) -> None:
    outcome = await groups.run(
        "cuts", scenarios.come_and_go, protocols=[protocol], plan=scenarios.cuts
    )
    group_report(outcome)
    check(outcome)


@pytest.mark.parametrize("seconds", [scenarios.CUT_SECONDS, scenarios.LONG_CUT_SECONDS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_network_is_cut(
    groups: GroupControl, group_report: GroupReport, protocol: str, seconds: float
) -> None:
    cut = scenarios.NetworkCut(seconds)
    name = f"network_cut_{seconds:.0f}"
    outcome = await groups.run(name, cut.run, protocols=[protocol], plan=cut.plan)
    group_report(outcome)
    # The sessions have ended: members join again with a heartbeat, each at another moment.
    check(outcome, within=MEMBER_TOLERANCE_SECONDS)
