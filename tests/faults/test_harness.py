"""The harness of the fault scenarios, tested with the embedded broker: it finds planted bugs, and
nothing without them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from aioprod import TopicPartition
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, close, delay, drop_after, drop_before
from tests.faults.harness.cluster_control import PARTITIONS
from tests.faults.harness.loads import AioprodLoad
from tests.faults.harness.planted_bugs import PLANTED_BUGS, PlantedBug
from tests.faults.harness.timeline import Timeline, median_gap
from tests.simulation.checkers import check
from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Content, Finding, Reading

SECONDS = 0.6


async def run_load() -> tuple[AioprodLoad, list[Finding]]:
    """Send with lost requests and responses and with delays; then read back and check."""
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", PARTITIONS)
        settings = {
            "batch_size": 300,
            "linger_ms": 0,
            "retry_backoff_ms": 5,
            "retry_backoff_max_ms": 10,
            "reconnect_backoff_ms": 5,
        }
        load = AioprodLoad(
            broker.bootstrap_servers, "t", pace=0.004, close_timeout_ms=2_000, **settings
        )
        stop = asyncio.Event()
        running = asyncio.create_task(load.run(stop))
        for _ in range(6):
            for action in (drop_after(), delay(0.02), drop_before(), close()):
                broker.on(ApiKey.PRODUCE, action)
            await asyncio.sleep(SECONDS / 6)
        stop.set()
        await running
        for partition in range(PARTITIONS):
            for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
                reading = Reading("broker", TopicPartition("t", partition), isolation, final=True)
                load.history.readings.append(reading)
                for record in broker.records("t", partition):
                    load.history.read(reading, record.offset, Content.of(None, record.value, ()))
    return load, check(load.history)


async def test_no_findings_without_a_bug() -> None:
    load, findings = await run_load()
    assert load.anomalies(findings) == set(), findings
    assert load.timeline.count == load.timeline.sent > 100
    assert load.timeline.open == 0


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(plant: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    anomalies = plant(monkeypatch)
    load, findings = await run_load()
    assert load.anomalies(findings) & anomalies, findings


class TestTimeline:
    def test_the_gap_is_the_longest_of_all_partitions(self) -> None:
        timeline = Timeline(
            acknowledged=defaultdict(list, {0: [1.0, 2.0, 3.0, 9.0], 1: [1.5, 4.5, 8.5]})
        )
        assert timeline.gap(1, 9) == 6
        assert timeline.gap(1, 9, [1]) == 4
        assert timeline.gap(1, 3, [0]) == 1

    def test_silence_at_either_end_counts(self) -> None:
        timeline = Timeline(acknowledged=defaultdict(list, {0: [5.0]}))
        assert timeline.gap(0, 7) == 5
        assert timeline.gap(4, 10) == 5
        assert timeline.gap(6, 10) == 4

    def test_a_partition_without_acknowledgements_is_one_gap(self) -> None:
        assert Timeline().gap(1, 4, [0]) == 3
        assert Timeline().gap(1, 4) == 3

    def test_each_fault_has_its_gap(self) -> None:
        timeline = Timeline(acknowledged=defaultdict(list, {0: [1.0, 2.0, 4.0, 5.0, 10.0]}))
        assert timeline.gaps([2.0, 5.0], 11.0) == [2, 5]
        assert median_gap([2, 5, 9]) == 5
        assert median_gap([]) == 0
