"""Callers and tasks that are cancelled at every single step: what was begun ends, later calls work,
nothing is left, nothing hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioprod.errors import KafkaError, TransactionStateError
from aioprod.producer.transactions.states import TransactionState
from aioprod.types import TopicPartition
from tests.producer.transactions.coordinator_script import CoordinatorScript, FakeSender

S = TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CALLS = ["init", "begin", "send_offsets", "commit", "abort"]
# More than any call takes; the sweep ends at the first step that comes after the call's end.
MANY = 200


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
async def senders(
    request: pytest.FixtureRequest,
) -> AsyncIterator[list[tuple[FakeSender, CoordinatorScript]]]:
    """Senders for all steps of a test, which are closed at the end."""
    made: list[tuple[FakeSender, CoordinatorScript]] = []
    for _ in range(MANY):
        coordinators = CoordinatorScript(level=request.param)
        made.append((FakeSender(coordinators), coordinators))
    yield made
    for sender, _ in made:
        await sender.manager.close()


async def prepare(sender: FakeSender, call: str) -> None:
    """Everything that comes before the call."""
    if call in ("init", "begin"):
        return
    await sender.manager.begin()
    sender.send(T0, T1)


async def perform(sender: FakeSender, call: str) -> None:
    manager = sender.manager
    if call == "send_offsets":
        await manager.send_offsets({T0: 5}, "g")
    else:
        await getattr(manager, call)()


async def finish(sender: FakeSender, coordinators: CoordinatorScript, call: str) -> None:
    """Finish the transaction: the next steps of an application must succeed as they do without a
    cancellation.
    """
    manager = sender.manager
    if call in ("commit", "abort") and manager.state is S.IN_TRANSACTION:
        # Cancelled before it had begun.
        await perform(sender, call)
    if call == "send_offsets":
        await manager.commit()
    elif call in ("init", "begin"):
        if manager.state is not S.IN_TRANSACTION:
            await manager.begin()
        sender.send(T0)
        await manager.commit()
    # The next one, which waits for the end of the previous one.
    await manager.begin()
    sender.send(T1)
    await manager.commit()
    assert manager.state is S.READY
    assert coordinators.ended[-1] is True


@pytest.mark.parametrize("call", CALLS)
async def test_the_caller_is_cancelled_at_every_step(
    senders: list[tuple[FakeSender, CoordinatorScript]], call: str
) -> None:
    for steps, (sender, coordinators) in enumerate(senders):
        await prepare(sender, call)
        caller = asyncio.create_task(perform(sender, call))
        for _ in range(steps):
            await asyncio.sleep(0)
        if caller.done():
            assert steps > 3, "the sweep has not swept anything"
            return
        caller.cancel()
        await asyncio.wait([caller], timeout=1)
        assert caller.cancelled()
        async with asyncio.timeout(2):
            await finish(sender, coordinators, call)
        # An abort may have had nothing to show the coordinator.
        assert coordinators.ended in (
            [[False, True], [True]] if call == "abort" else [[True, True]]
        )
        await sender.manager.close()
    pytest.fail("the call never ended")


@pytest.mark.parametrize("call", CALLS)
async def test_all_tasks_are_killed_at_every_step(
    senders: list[tuple[FakeSender, CoordinatorScript]], call: str
) -> None:
    """Frameworks sweep over all_tasks(): the waiting call must learn of it, and the same call
    must work again.
    """
    for steps, (sender, coordinators) in enumerate(senders):
        await prepare(sender, call)
        before = asyncio.all_tasks()
        caller = asyncio.create_task(perform(sender, call))
        for _ in range(steps):
            await asyncio.sleep(0)
        if caller.done():
            assert steps > 3
            return
        killed = asyncio.all_tasks() - before - {caller}
        for task in killed:
            task.cancel()
        async with asyncio.timeout(2):
            try:
                await caller
            except KafkaError as error:
                assert not isinstance(error, TransactionStateError)
                await again(sender, call)
            await finish(sender, coordinators, call)
        await sender.manager.close()
    pytest.fail("the call never ended")


async def again(sender: FakeSender, call: str) -> None:
    """The application's answer to an error: the same call, or an abort where the transaction is
    lost.
    """
    manager = sender.manager
    if manager.state is S.ABORTABLE_ERROR:
        await manager.abort()
        await manager.begin()
        if call in ("send_offsets", "commit"):
            sender.send(T0)
    if call != "begin" or manager.state is not S.IN_TRANSACTION:
        await perform(sender, call)
