"""The schedule finds exactly the queues that a look at all of them would find, whatever happens to
them in between.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aioprod.codecs import Codec
from aioprod.producer.partition_queue import PartitionQueue, Schedule, Topic
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.sequences import ProducerState
from aioprod.producer.wakeup import NEVER

LINGER = 5.0
QUEUES = st.integers(0, 5)
LEADERS = st.integers(-1, 2)


def made_up(**state: Any) -> Any:
    """A batch with room."""
    return SimpleNamespace(
        **{"created_at": 0.0, "retry_at": 0.0, "attempts": 0, "closed": False, "grown": False}
        | state
    )


class ScheduleMachine(RuleBasedStateMachine):
    """Queues with made-up batches; a batch is due at a time of its own, or at once while
    ``hurry`` is set.
    """

    @initialize()
    def start(self) -> None:
        self.now = 100.0
        self.hurry = False
        self.woken_for = NEVER
        self.schedule = Schedule(LINGER, self.wake)
        topic = Topic("t", StickyPartition(100, random.Random(0)), Codec.NONE, None)
        self.queues = [
            PartitionQueue(topic, number, ProducerState("p"), self.schedule) for number in range(6)
        ]
        for queue in self.queues:
            queue.leader = 0

    def wake(self, at: float) -> None:
        self.woken_for = min(self.woken_for, at)

    def due_at(self, queue: PartitionQueue) -> float:
        first: Any = queue.batches[0]
        lingers = not self.hurry and len(queue.batches) == 1 and not first.attempts
        return float(max(first.retry_at, first.created_at + LINGER if lingers else 0.0))

    def is_due(self, queue: PartitionQueue) -> bool:
        return bool(queue.batches) and self.due_at(queue) <= self.now

    @rule(number=QUEUES)
    def open_a_batch(self, number: int) -> None:
        queue = self.queues[number]
        batch = made_up(created_at=self.now)
        queue.batches.append(batch)
        self.schedule.look_at(queue, self.now)

    @rule(number=QUEUES, pause=st.integers(0, 9))
    def put_one_back(self, number: int, pause: int) -> None:
        queue = self.queues[number]
        batch = made_up(created_at=self.now - 1, retry_at=self.now + pause, attempts=1)
        queue.batches.appendleft(batch)
        self.schedule.look_at(queue, self.now)

    @rule(number=QUEUES)
    def lose_a_batch(self, number: int) -> None:
        queue = self.queues[number]
        if queue.batches:
            queue.batches.popleft()
            self.schedule.look_at(queue, self.now)

    @rule(number=QUEUES, leader=LEADERS)
    def move_the_leader(self, number: int, leader: int) -> None:
        queue = self.queues[number]
        old, queue.leader = queue.leader, leader
        for batch in queue.batches:
            batch.retry_at = 0.0
        self.schedule.moved(queue, old)
        self.schedule.look_at(queue, self.now)

    @rule(seconds=st.integers(0, 12))
    def let_time_go_on(self, seconds: int) -> None:
        self.now += seconds

    @rule(hurry=st.booleans())
    def flush(self, hurry: bool) -> None:
        self.hurry = hurry

    @rule(leader=LEADERS, most=st.integers(0, 4))
    def serve(self, leader: int, most: int) -> None:
        self.advance()
        for taken, queue in enumerate(self.schedule.due(leader, self.now)):
            assert self.is_due(queue) and queue.leader == leader
            if taken == most:
                break
            queue.batches.popleft()
            self.schedule.served(queue, self.now)

    def advance(self) -> None:
        self.woken_for = NEVER
        self.woken_for = min(self.woken_for, self.schedule.advance(self.now, hurry=self.hurry))

    @invariant()
    def what_is_due_is_found(self) -> None:
        self.advance()
        for leader in range(-1, 3):
            expected = {
                queue.tp.partition
                for queue in self.queues
                if queue.leader == leader and self.is_due(queue)
            }
            assert {queue.tp.partition for queue in self.schedule.due(leader, self.now)} == expected
            assert not expected or leader in self.schedule.leaders()
        waiting = [
            self.due_at(queue) for queue in self.queues if queue.batches and not self.is_due(queue)
        ]
        # Looking too early is harmless, too late is not.
        assert self.woken_for <= min(waiting, default=NEVER)


ScheduleMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestSchedule = ScheduleMachine.TestCase


def made(count: int) -> tuple[Schedule, list[PartitionQueue], list[float]]:
    """Queues of leader 1 with two batches each, due at once; and when the schedule wanted to be
    asked again.
    """
    wakes: list[float] = []
    schedule = Schedule(0.0, wakes.append)
    topic = Topic("t", StickyPartition(100, random.Random(0)), Codec.NONE, None)
    queues = [
        PartitionQueue(topic, number, ProducerState("p"), schedule) for number in range(count)
    ]
    for queue in queues:
        queue.leader = 1
        queue.batches.extend([made_up(), made_up()])
        schedule.look_at(queue, 1.0)
    return schedule, queues, wakes


def test_who_was_served_goes_behind_the_others() -> None:
    schedule, queues, _ = made(3)
    order = []
    for _ in range(6):
        queue = next(schedule.due(1, 1.0))
        order.append(queue.tp.partition)
        queue.batches.popleft()
        schedule.served(queue, 1.0)
    assert order == [0, 1, 2, 0, 1, 2]
    assert schedule.leaders() == []
    assert not any(queue.batches for queue in queues)


def test_a_thousand_that_linger_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PartitionQueue] = []
    due_at = PartitionQueue.due_at

    def counted(queue: PartitionQueue, linger_s: float) -> float:
        asked.append(queue)
        return due_at(queue, linger_s)

    monkeypatch.setattr(PartitionQueue, "due_at", counted)
    schedule = Schedule(9.0, lambda at: None)
    topic = Topic("t", StickyPartition(100, random.Random(0)), Codec.NONE, None)
    for number in range(1_000):
        queue = PartitionQueue(topic, number, ProducerState("p"), schedule)
        queue.batches.append(made_up(created_at=1.0))
        schedule.look_at(queue, 1.0)
    assert len(asked) == 1_000
    asked.clear()
    assert schedule.advance(2.0, hurry=False) == 10.0
    assert schedule.leaders() == []
    assert len(asked) <= 1
