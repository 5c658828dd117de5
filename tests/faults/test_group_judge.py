"""The judge of groups finds planted faults, and nothing in a group without any; members of each
client note what they read.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from aioprod import Producer, TopicPartition
from aioprod.testing import EmbeddedCluster
from tests.faults.harness.groups.judge import (
    Written,
    acknowledgements,
    first_processed,
    judge,
    merge,
    timeline,
)
from tests.faults.harness.groups.ledger import (
    ASSIGNED,
    CLOSED,
    ERROR,
    REVOKED,
    Ledger,
    LedgerWriter,
    Ownership,
    Processed,
)
from tests.faults.harness.groups.member import EAGER, Settings
from tests.faults.harness.groups.members import Group
from tests.faults.harness.groups.runner import group_id, missing
from tests.waiting import until

WRITTEN = [Written(float(number), 0, number) for number in range(10)]


def reader(
    numbers: range | list[int] = range(10), name: str = "a", start: float = 0.0, end: float = 20.0
) -> Ledger:
    """A member that owned the partition and processed each record 0.1 s after it was written."""
    return Ledger(
        name,
        [Processed(number + 0.1, 0, number) for number in numbers],
        [Ownership(0, start, end)],
        ended_at=end,
    )


class TestJudge:
    def test_all_is_well(self) -> None:
        verdict = judge(WRITTEN, [reader()])
        assert verdict.findings(0.2) == []
        assert verdict.written == 10
        assert verdict.duplicates == 0
        assert verdict.idle_seconds == pytest.approx(0.1)

    def test_a_skipped_record_is_lost(self) -> None:
        verdict = judge(WRITTEN, [reader([0, 1, 2, 4, 5]), reader([6, 7, 8, 9], "b")])
        assert verdict.lost == [WRITTEN[3]]
        assert verdict.stuck == []
        assert "is lost" in verdict.findings(100)[0]

    def test_records_at_the_end_are_not_processed(self) -> None:
        verdict = judge(WRITTEN, [reader(range(8))])
        assert verdict.stuck == WRITTEN[8:]
        assert verdict.lost == []
        assert len(verdict.findings(100)) == 2

    def test_a_partition_that_no_member_reads(self) -> None:
        other = Written(3.0, 1, 3)
        assert judge([*WRITTEN, other], [reader()]).stuck == [other]

    def test_duplicates_are_counted(self) -> None:
        assert judge(WRITTEN, [reader(), reader(range(6, 9), "b")]).duplicates == 3

    def test_an_owner_that_reads_nothing(self) -> None:
        late = reader(range(4))
        late.processed += [Processed(15.0, 0, number) for number in range(4, 10)]
        idle = judge(WRITTEN, [late]).idle
        assert idle is not None
        assert idle.seconds == pytest.approx(11.0)
        assert (idle.member, idle.partition, idle.since) == ("a", 0, 4.0)
        assert judge(WRITTEN, [late]).findings(10) != []

    def test_an_owner_that_waits_for_records_is_not_idle(self) -> None:
        written = [WRITTEN[0], Written(9.0, 0, 9)]
        assert judge(written, [reader([0, 9])]).findings(0.2) == []

    def test_one_owner_is_idle_while_another_member_has_no_partitions(self) -> None:
        other = Ledger("b", [], [])
        late = reader(range(4), end=12.0)
        late.processed += [Processed(11.0, 0, number) for number in range(4, 10)]
        idle = judge(WRITTEN, [other, late]).idle
        assert idle is not None
        assert idle.member == "a"

    @pytest.mark.parametrize("absence", ["frozen", "killed", "network", "revoked"])
    def test_absent_members_are_not_idle(self, absence: str) -> None:
        gone = reader(range(4))
        successor = reader([], "b", start=12.0)
        successor.processed += [Processed(12.1, 0, number) for number in range(4, 10)]
        excused: list[tuple[float, float]] = []
        match absence:
            case "frozen":
                gone.away = [(3.5, float("inf"))]
            case "killed":
                gone.ended_at = 3.5
            case "network":
                excused = [(3.5, 12.0)]
                gone.ended_at = 12.0
            case _:
                gone.owned = [Ownership(0, 0.0, 3.5)]
        verdict = judge(WRITTEN, [gone, successor], excused)
        assert verdict.findings(0.5) == []

    def test_a_member_that_returns_and_reads_nothing(self) -> None:
        back = reader(range(4))
        back.away = [(3.5, 9.0)]
        idle = judge(WRITTEN, [back]).idle
        assert idle is not None
        assert idle.since == 9.0
        assert idle.seconds == pytest.approx(11.0)

    def test_spans_are_joined(self) -> None:
        assert merge([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]

    def test_gaps_count_first_readings_only(self) -> None:
        again = reader([0, 1], "b")
        again.processed = [Processed(5.0, 0, 0), Processed(6.0, 0, 1)]
        times = timeline([reader([0, 1, 9]), again])
        assert times.gap(0, 10, [0]) == pytest.approx(8.0)

    def test_the_gap_of_the_cluster_is_that_of_acknowledgements(self) -> None:
        times = acknowledgements([Written(9.0, 0, 2), Written(1.0, 0, 0), Written(2.0, 1, 1)])
        assert times.gap(0, 10, [0]) == pytest.approx(8.0)


class TestLedger:
    def test_a_ledger_is_read_as_written(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger"
        writer = LedgerWriter(path)
        writer.partitions(ASSIGNED, [0, 2])
        writer.records([(0, b"7"), (2, b"8")])
        writer.partitions(REVOKED, [2])
        writer.note(ERROR, "line\nand\ttab")
        ledger = Ledger.read("a", path)
        assert [(each.partition, each.number) for each in ledger.processed] == [(0, 7), (2, 8)]
        assert ledger.owned_at(time.monotonic()) == [0]
        assert ledger.errors[0].endswith("line and tab")
        writer.note(CLOSED)
        closed = Ledger.read("a", path)
        assert closed.closed_at is not None
        assert closed.owned_at(time.monotonic()) == []
        assert {owned.partition for owned in closed.owned} == {0, 2}

    def test_a_line_that_was_cut_does_not_count(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger"
        path.write_text("assigned\t1.0\t0\nrecord\t2.0\t0 1\nrecord\t3.0\t0 2")
        ledger = Ledger.read("a", path, ended_at=4.0)
        assert first_processed([ledger]) == {(0, 1): 2.0}
        assert ledger.owned == [Ownership(0, 1.0, 4.0)]

    def test_groups_have_the_same_coordinator(self) -> None:
        # In Java "a-0".hashCode() is 94660, and that of "b-4" 95625.
        assert group_id("a") == "a-0"
        assert group_id("b") == "b-4"


async def test_members_of_each_client_note_what_they_process(tmp_path: Path) -> None:
    """Members read, commit what they read when they leave, and note both."""
    async with EmbeddedCluster() as broker:
        groups = []
        for client in ("aioprod", "aiokafka", "confluent-kafka"):
            broker.create_topic(client, 1)
            settings = Settings(client, EAGER, broker.bootstrap_servers, client, client, "")
            groups.append(Group(client, settings, tmp_path))
        try:
            for group in groups:
                group.start_member()
            written: dict[str, list[Written]] = {}
            async with Producer(broker.bootstrap_servers) as producer:
                for group in groups:
                    for number in range(20):
                        await producer.send(group.topic, b"%d" % number)
                    written[group.topic] = [
                        Written(time.monotonic(), 0, number) for number in range(20)
                    ]
            await until(
                lambda: not any(missing(written[g.topic], g.ledgers()) for g in groups), 120
            )
            await asyncio.gather(*(group.members[0].leave() for group in groups))
            for group in groups:
                [ledger] = group.ledgers()
                assert judge(written[group.topic], [ledger]).findings(30) == []
                assert ledger.closed_at is not None, ledger.errors
                assert [owned.partition for owned in ledger.owned] == [0]
                assert broker.committed_offsets(group.topic) == {TopicPartition(group.topic, 0): 20}
        finally:
            for group in groups:
                for member in group.members:
                    member.kill()
