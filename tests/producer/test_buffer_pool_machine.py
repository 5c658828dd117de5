"""The buffer pool against a model: allocate, give back, cancel, time out and close in any order,
also several within one turn of the loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioprod.errors import BufferExhaustedError, ProducerClosedError, RecordTooLargeError
from aioprod.producer.buffer_pool import BufferPool, _Waiter
from tests.producer.collaborators import Waits, make_pool


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when asked."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        """Run what is ready, once."""
        self.call_soon(self.stop)
        self.run_forever()

    def until_idle(self) -> None:
        # A timeout takes the most turns: timer, cancelled future, task, and the next waiter's
        # future and task.
        for _ in range(8):
            self.turn()


@dataclass(eq=False)
class Caller:
    """One call of ``allocate`` in the model."""

    number: int
    size: int
    deadline: float
    started: float
    task: asyncio.Task[None]
    collected: int = 0
    cancelled: bool = False
    waited: bool = False


@dataclass
class Model:
    """The specification of the pool: a number of free bytes, and a line of callers."""

    free: int
    line: list[Caller] = field(default_factory=list)
    served: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)

    def arrive(self, caller: Caller) -> None:
        self.line.append(caller)
        self.give()

    def give_back(self, size: int) -> None:
        self.free += size
        self.give()

    def leave(self, leaving: list[Caller]) -> None:
        """All of them at once, so that nothing goes from one to the other."""
        for caller in leaving:
            if caller in self.line:
                self.line.remove(caller)
            self.served.discard(caller.number)
            self.free += caller.collected
            caller.collected = 0
        self.give()

    def give(self) -> None:
        while self.line and self.free:
            first = self.line[0]
            part = min(first.size - first.collected, self.free)
            first.collected += part
            self.free -= part
            if first.collected == first.size:
                self.served.add(self.line.pop(0).number)


class PoolMachine(RuleBasedStateMachine):
    @initialize(total=st.integers(1, 60), block=st.integers(0, 25))
    def make(self, total: int, block: int) -> None:
        self.loop = ClockedLoop()
        self.waits = Waits()
        self.pool = BufferPool(total, block, self.waits)
        self.model = Model(total)
        self.callers: list[Caller] = []
        self.pending: list[Caller] = []  # those whose task has not been seen to end
        self.lent: list[int] = []
        self.served_in_order: list[int] = []
        self.closed = False

    # -- what callers do, and what happens to them -------------------------------------------------

    def size_from(self, draw: int) -> int:
        # Blocks are what is asked for most.
        return (
            min(self.pool.block_size or 1, self.pool.total)
            if draw > 60
            else 1 + draw % self.pool.total
        )

    @rule(draw=st.integers(0, 120), limit_s=st.sampled_from([0.0, 1.0, 5.0, 60.0]))
    def allocate(self, draw: int, limit_s: float) -> None:
        self._start(self.size_from(draw), limit_s)

    @rule(draws=st.lists(st.integers(0, 120), min_size=2, max_size=6))
    def many_allocate(self, draws: list[int]) -> None:
        for draw in draws:
            self._start(self.size_from(draw), 60.0)

    def _start(self, size: int, limit_s: float) -> None:
        self._until_idle()  # so that the order of arriving is the order of starting
        caller = Caller(
            len(self.callers),
            size,
            self.loop.now + limit_s,
            self.loop.now,
            self.loop.create_task(self._call(size, limit_s)),
        )
        self.callers.append(caller)
        self.pending.append(caller)
        if not self.closed:
            caller.waited = bool(self.model.line) or self.model.free < size
            self.model.arrive(caller)
        self.loop.turn()
        if limit_s == 0:
            self._until_idle()

    async def _call(self, size: int, limit_s: float) -> None:
        number = len(self.callers) - 1
        await self.pool.allocate(size, limit_s)
        self.lent.append(size)
        self.served_in_order.append(number)

    @precondition(lambda self: not self.closed)
    @rule(size=st.integers(0, 120))
    def try_allocate(self, size: int) -> None:
        self._until_idle()
        expected = size <= self.model.free and not self.model.line
        if size > self.pool.total:
            with pytest.raises(RecordTooLargeError):
                self.pool.try_allocate(size)
        elif size:
            assert self.pool.try_allocate(size) is expected
            if expected:
                self.model.free -= size
                self.lent.append(size)

    @rule(excess=st.integers(1, 100))
    def ask_for_too_much(self, excess: int) -> None:
        with pytest.raises(RecordTooLargeError, match=f"buffer_memory={self.pool.total}"):
            self.pool.try_allocate(self.pool.total + excess)

    @precondition(lambda self: self.lent)
    @rule(index=st.integers(0, 100))
    def give_back(self, index: int) -> None:
        size = self.lent.pop(index % len(self.lent))
        self.pool.deallocate(size)
        self.model.give_back(size)

    @precondition(lambda self: self.pending)
    @rule(index=st.integers(0, 100))
    def cancel(self, index: int) -> None:
        self._cancel(self.pending[index % len(self.pending)])

    @precondition(lambda self: self.lent and self.pending)
    @rule(index=st.integers(0, 100))
    def cancel_in_the_moment_of_being_served(self, index: int) -> None:
        first = self.pending[0]
        self.give_back(index)
        self._cancel(first)

    def _cancel(self, caller: Caller) -> None:
        if not caller.task.done() and not caller.cancelled:
            caller.task.cancel()
            caller.cancelled = True
            self.model.leave([caller])

    @rule(seconds=st.sampled_from([0.5, 1.0, 6.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self._until_idle()
        self.loop.now += seconds
        late = [caller for caller in self.model.line if caller.deadline <= self.loop.now]
        self.model.expired.update(caller.number for caller in late)
        self.model.leave(late)
        self._until_idle()

    @rule()
    def one_turn(self) -> None:
        self.loop.turn()

    @rule()
    def until_idle(self) -> None:
        self._until_idle()

    @precondition(lambda self: not self.closed and len(self.callers) > 8)
    @rule()
    def close(self) -> None:
        if any(caller.cancelled for caller in self.pending):
            # what a cancelled one gives back in its next turn would come too late for the next
            self._until_idle()
        self.pool.close(ProducerClosedError("closed"))
        self.closed = True
        self.model.leave(list(self.model.line))

    # -- what must be true -------------------------------------------------------------------------

    def _until_idle(self) -> None:
        late = [caller for caller in self.model.line if caller.deadline <= self.loop.now]
        self.model.expired.update(caller.number for caller in late)
        self.model.leave(late)
        self.loop.until_idle()
        for caller in [caller for caller in self.pending if caller.task.done()]:
            self.pending.remove(caller)
            self._check_outcome(caller)
        assert [caller.number for caller in self.pending] == [
            caller.number for caller in self.model.line
        ]
        assert self.pool.available == self.model.free
        assert self.pool.reserved == sum(caller.collected for caller in self.model.line)
        assert self.pool.waiting == len(self.model.line)
        assert sum(self.waits) == pytest.approx(self.pool.waited_s)

    def _check_outcome(self, caller: Caller) -> None:
        if caller.cancelled:
            assert caller.task.cancelled()
            return
        error = caller.task.exception()
        if error is None:
            assert caller.number in self.model.served
        elif isinstance(error, BufferExhaustedError):
            assert caller.number in self.model.expired and caller.deadline <= self.loop.now
            assert f"no {caller.size} bytes" in str(
                error
            ) and f"buffer_memory={self.pool.total}" in str(error)
        else:
            assert isinstance(error, ProducerClosedError) and self.closed
            assert caller.number not in self.model.served

    @invariant()
    def free_and_lent_and_reserved_is_all(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.available + self.pool.reserved + sum(self.lent) == self.pool.total
            assert self.pool.available >= 0 and self.pool.reserved >= 0

    @invariant()
    def no_call_waits_while_there_is_room(self) -> None:
        if hasattr(self, "pool"):
            assert not (self.pool.waiting and self.pool.available)

    @invariant()
    def first_come_first_served(self) -> None:
        if hasattr(self, "pool"):
            assert self.served_in_order == sorted(self.served_in_order)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        try:
            self._until_idle()
            # Waiting callers are served when memory is given back; nothing else is needed.
            while self.lent:
                self.give_back(0)
                self._until_idle()
            assert not self.pending, "a caller waits although all memory is free"
            assert self.pool.available == self.pool.total and self.pool.waiting == 0
            assert len(self.waits) == sum(caller.waited for caller in self.callers)
        finally:
            for caller in self.pending:
                caller.task.cancel()
            self.loop.until_idle()
            self.loop.close()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_leaving_the_line_does_not_walk_along_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand who are cancelled, the last first: none is compared with those before it."""
    compared = 0

    def counted(self: object, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(_Waiter, "__eq__", counted)
    monkeypatch.setattr(_Waiter, "__hash__", object.__hash__)
    loop = ClockedLoop()
    pool = make_pool(10, 10)
    try:
        assert pool.try_allocate(10)
        tasks = [loop.create_task(pool.allocate(5, 60)) for _ in range(10_000)]
        loop.until_idle()
        assert pool.waiting == 10_000
        for task in reversed(tasks):
            task.cancel()
        loop.until_idle()
        assert pool.waiting == 0 and all(task.cancelled() for task in tasks)
    finally:
        loop.close()
    assert compared < 1_000


def test_ten_thousand_waiters_are_served_in_their_order() -> None:
    loop = ClockedLoop()
    pool = make_pool(100, 10)
    order: list[int] = []

    async def take(number: int) -> None:
        await pool.allocate(10, 60)
        order.append(number)
        pool.deallocate(10)

    try:
        assert pool.try_allocate(100)
        tasks = [loop.create_task(take(number)) for number in range(10_000)]
        loop.until_idle()
        assert pool.waiting == 10_000
        for _ in range(10):
            pool.deallocate(10)
        loop.run_until_complete(asyncio.gather(*tasks))
    finally:
        loop.close()
    assert order == list(range(10_000)) and pool.available == 100


def test_refusing_often_keeps_nothing() -> None:
    """One error object is raised by every later call: its traceback must not grow with each."""
    pool = make_pool(10, 10)
    error = ProducerClosedError("closed")
    pool.close(error)
    for _ in range(100):
        with pytest.raises(ProducerClosedError):
            pool.try_allocate(1)
    depth, frame = 0, error.__traceback__
    while frame is not None:
        depth, frame = depth + 1, frame.tb_next
    assert depth < 10
