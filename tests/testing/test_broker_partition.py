"""A partition on several replicas behaves as if each had a separate log: compared with a model in
random histories.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.protocol.record_batch import read_header
from aioprod.testing.broker.cluster import NO_NODE, Leadership
from aioprod.testing.broker.log import MemoryUse
from aioprod.testing.broker.markers import build_marker
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.producer_state import ProducerStates
from aioprod.testing.broker.settings.topic_settings import TopicConfig
from tests.testing.raw_client import make_batch

NODES = (1, 2, 3)
PID = 7
STEPS = st.one_of(
    st.just(("append", 0)),
    st.tuples(
        st.sampled_from(["kill", "start", "pause", "resume", "move", "lag"]), st.sampled_from(NODES)
    ),
)


def partition(min_insync_replicas: int = 1, *, unclean: bool = False) -> Partition:
    config = TopicConfig(
        1 << 20, min_insync_replicas=min_insync_replicas, unclean_leader_election=unclean
    )
    return Partition(Leadership(NODES, NODES, NODES[0]), config, MemoryUse())


@dataclass
class Model:
    """A simple model in which each replica has a separate log."""

    min_insync_replicas: int
    logs: dict[int, list[int]] = field(default_factory=lambda: {node: [] for node in NODES})
    running: set[int] = field(default_factory=lambda: set(NODES))
    paused: set[int] = field(default_factory=set)
    in_sync: set[int] = field(default_factory=lambda: set(NODES))
    leader: int = NODES[0]
    epoch: int = 0
    high_watermark: int = 0

    def step(self, what: str, node: int, value: int) -> bool:
        """Apply a step, and return whether it was possible."""
        if what == "append":
            if self.leader == NO_NODE:
                return False
            self.logs[self.leader].append(value)
        elif what == "move":
            if node not in self.running & self.in_sync or self.leader == NO_NODE:
                return False
            self.elect(node)
        elif what == "lag":
            if node == self.leader or node not in self.in_sync or len(self.logs[node]) == self.end:
                return False
            self.in_sync.discard(node)
        else:
            self.running = (
                self.running - {node}
                if what == "kill"
                else self.running | {node}
                if what == "start"
                else self.running
            )
            self.paused = (
                self.paused | {node}
                if what == "pause"
                else self.paused - {node}
                if what == "resume"
                else self.paused
            )
        self.adapt()
        return True

    @property
    def end(self) -> int:
        return 0 if self.leader == NO_NODE else len(self.logs[self.leader])

    def elect(self, node: int) -> None:
        if node != self.leader:
            self.leader, self.epoch = node, self.epoch + 1

    def adapt(self) -> None:
        self.in_sync = self.in_sync & self.running or self.in_sync
        if self.leader not in self.running:
            self.elect(min(self.in_sync & self.running, default=NO_NODE))
        if self.leader == NO_NODE:
            return
        for node in self.running:
            known = self.logs[self.leader]
            if node not in self.paused:
                self.logs[node] = known.copy()
                self.in_sync.add(node)
            elif self.logs[node] != known[: len(self.logs[node])]:
                # A paused follower of a new leader drops what the leader lacks.
                self.logs[node] = [
                    own for own, other in zip(self.logs[node], known, strict=False) if own == other
                ]
        if len(self.in_sync) >= self.min_insync_replicas:
            self.high_watermark = max(
                self.high_watermark, min(len(self.logs[node]) for node in self.in_sync)
            )


@settings(max_examples=120)
@given(steps=st.lists(STEPS, max_size=40), min_insync_replicas=st.integers(1, 3))
def test_replicas_behave_as_if_each_had_a_log_of_its_own(
    steps: list[tuple[str, int]], min_insync_replicas: int
) -> None:
    model, found = Model(min_insync_replicas), partition(min_insync_replicas)
    committed: list[int] = []
    for number, (what, node) in enumerate(steps):
        if not model.step(what, node, number):
            continue
        if what == "append":
            append(found, number)
        elif what == "move":
            found.move_leader(node, model.running, model.paused)
        elif what == "lag":
            found.drop_from_in_sync(node)
        else:
            found.adapt(model.running, model.paused)
        leadership = found.leadership
        assert (leadership.leader, set(leadership.in_sync), found.log.leader_epoch) == (
            model.leader,
            model.in_sync,
            model.epoch,
        )
        assert found.high_watermark == model.high_watermark
        if model.leader != NO_NODE:
            values = [int(record.value or b"") for record in found.records()]
            assert values == model.logs[model.leader]
            assert [found.end_offsets[each] for each in sorted(model.in_sync & model.running)] == [
                len(model.logs[each]) for each in sorted(model.in_sync & model.running)
            ]
            assert values[: len(committed)] == committed  # what consumers saw is never lost
            committed = values[: found.high_watermark]
        check_bookkeeping(found)


def append(found: Partition, number: int) -> int:
    """Append a batch of one record by an idempotent producer, with the next sequence."""
    sequence = (
        max((entry.last_sequence for entry in found.producers._entries.values()), default=-1) + 1
    )
    batch = make_batch([b"%d" % number], producer=(PID, 0, sequence))
    found.producers.check(PID, 0, sequence)
    return found.append(read_header(batch), batch, 1000)


def check_bookkeeping(found: Partition) -> None:
    """Check that the state agrees with the log."""
    log = found.log
    batches = list(log.batches())
    assert log.size == log._memory.size == sum(len(batch) for _, batch in batches)
    assert log.record_count == len(found.records())
    expected = ProducerStates()
    for header, _ in batches:
        expected.record(
            PID,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            header.base_offset,
            1000,
        )
        assert log.epochs.find(header.base_offset) == header.partition_leader_epoch
    assert found.producers._entries == expected._entries


def transactional(found: Partition, producer_id: int, sequence: int) -> int:
    batch = make_batch([b"x"], producer=(producer_id, 0, sequence), transactional=True)
    return found.append(read_header(batch), batch, 1000)


def test_truncation_rebuilds_transactions_and_writes_markers_again() -> None:
    found = partition()
    transactional(found, 1, 0)
    found.write_marker(build_marker(1, 0, commit=False, timestamp_ms=1000))
    transactional(found, 2, 0)
    found.adapt(NODES, paused=(2, 3))
    found.write_marker(build_marker(2, 0, commit=True, timestamp_ms=1000))
    transactional(found, 3, 0)
    assert (found.end_offsets, found.last_stable_offset) == ({1: 5, 2: 3, 3: 3}, 2)
    found.adapt((2, 3))
    assert (found.leadership.leader, found.end_offsets, found.last_stable_offset) == (
        2,
        {1: 3, 2: 4, 3: 4},
        4,
    )
    assert [header.is_control for header, _ in found.log.batches()] == [False, True, False, True]
    assert [record.offset for record in found.records(committed_only=True)] == [2]
    assert list(found.transactions.aborted_between(0, 4)) == [(1, 0, 1)]
    assert not found.has_open_transaction(3, 0)
    assert found.producers.epoch(3) == -1


def test_what_is_known_of_deleted_records_survives_a_truncation() -> None:
    found = partition()
    for number in range(3):
        append(found, number)
    transactional(found, 9, 0)
    found.log.advance_start(4)
    found.adapt(NODES, paused=(2, 3))
    transactional(found, 8, 0)
    found.adapt((2, 3))
    assert (found.log.start_offset, found.log.end_offset) == (4, 4)
    known = found.producers.find_duplicate(PID, 0, 2, 1)
    assert known is not None and known.base_offset == 2
    assert found.has_open_transaction(9, 0)
    assert not found.has_open_transaction(8, 0)


class TestReassignment:
    def test_new_replicas_have_everything_before_the_old_ones_go(self) -> None:
        found = Partition(Leadership((1, 2), (1, 2), 1), TopicConfig(1 << 20))
        append(found, 0)
        found.reassign((3, 4), {1, 2, 3, 4})
        assert (found.leadership.leader, found.leadership.replicas, found.leadership.in_sync) == (
            3,
            (3, 4),
            (3, 4),
        )
        assert (found.end_offsets, found.high_watermark, len(found.records())) == (
            {3: 1, 4: 1},
            1,
            1,
        )
        assert found.log.leader_epoch == 1

    def test_the_leader_stays_if_it_is_one_of_the_new_ones(self) -> None:
        found = Partition(Leadership((1, 2), (1, 2), 1), TopicConfig(1 << 20))
        found.reassign((3, 1), {1, 2, 3})
        assert (found.leadership.leader, found.leadership.in_sync, found.log.leader_epoch) == (
            1,
            (3, 1),
            0,
        )


@pytest.mark.parametrize("unclean", [False, True])
def test_unclean_election_is_a_choice(unclean: bool) -> None:
    found = partition(unclean=unclean)
    found.adapt({1})
    append(found, 0)
    found.adapt({2, 3})
    assert found.leadership.leader == (2 if unclean else NO_NODE)
    assert found.leadership.in_sync == ((2, 3) if unclean else (1,))
    assert found.log.end_offset == (0 if unclean else 1)
    found.config = TopicConfig(1 << 20, unclean_leader_election=True)
    found.adapt({2, 3})
    assert found.leadership.leader == 2
