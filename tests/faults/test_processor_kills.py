"""Processors on a real cluster, whose processes are killed at random: the order of keys, no record
lost, positions without holes, and outputs exactly once.

Takes a minute, or the seconds of ``AIOPROD_FAULT_SECONDS``: runs only with ``-m faults``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness.cluster_control import SECONDS, ClusterControl
from tests.faults.harness.processors.kill_rounds import PROCESSES, ProcessorGroup, run
from tests.faults.harness.processors.member import Settings

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(SECONDS + 300)]

_CLASSIC = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
_COOPERATIVE = {**_CLASSIC, "partition_assignment_strategy": ("cooperative-sticky",)}
_KIP_848 = {"group_protocol": "consumer"}
_LEAST, _EXACTLY = {"guarantee": "at_least_once"}, {"guarantee": "exactly_once"}


def _static(consumer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"consumer": {**consumer, "group_instance_id": f"slot-{slot}"}} for slot in range(PROCESSES)
    ]


def _dynamic(consumer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"consumer": consumer}] * PROCESSES


GROUPS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "least-cooperative": (_LEAST, _dynamic(_COOPERATIVE)),
    "least-KIP-848": (_LEAST, _dynamic(_KIP_848)),
    "exactly-cooperative": (_EXACTLY, _dynamic(_COOPERATIVE)),
    # Their transactional ids stay the same, too.
    "exactly-static": (_EXACTLY, _static(_COOPERATIVE)),
    "exactly-KIP-848": (_EXACTLY, _dynamic(_KIP_848)),
}


async def test_processes_are_killed(
    groups: ClusterControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = groups.cluster.bootstrap_servers
    killed = []
    for name, (settings, slots) in GROUPS.items():
        topic = f"kills-{name}-{time.time_ns()}"
        for each in (topic, f"{topic}-output"):
            await groups.create_topic(each, 3)
        member = Settings(servers, topic, f"{topic}-output", topic, "", settings)
        killed.append(ProcessorGroup(name, member, slots, tmp_path))
    findings = await run(servers, killed, SECONDS, seed=time.time_ns())
    with capsys.disabled():
        for group in killed:
            print(
                f"\n{group.name}: {group.kills} kills, {len(group.values)} records, "
                f"{group.repeated()} handled again",
                end="",
            )
    assert not findings, "\n".join(findings[:30])
    assert all(group.kills and group.values for group in killed)
