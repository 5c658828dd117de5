"""The pool's books balance at every step, waiters are served in order, and nothing is lost to
timeouts and cancellation.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.errors import BufferExhaustedError, KafkaError, RecordTooLargeError
from tests.producer.collaborators import make_pool


async def until_idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiters_are_served_in_their_order() -> None:
    pool = make_pool(100, 10)
    await pool.allocate(100, 1)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await pool.allocate(size, 5)
        order.append(name)

    tasks = [asyncio.create_task(take("large", 60)), asyncio.create_task(take("small", 10))]
    await until_idle()
    assert pool.waiting == 2
    pool.deallocate(50)
    await until_idle()
    assert order == [], (
        "50 bytes belong to the large one in front, the small one must not overtake it"
    )
    pool.deallocate(50)
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]
    assert pool.available == 30


async def test_a_time_out_gives_back_what_was_collected_and_wakes_the_next() -> None:
    pool = make_pool(100, 10)
    await pool.allocate(100, 1)
    first = asyncio.create_task(pool.allocate(80, 0.02))
    await until_idle()
    second = asyncio.create_task(pool.allocate(30, 5))
    await until_idle()
    pool.deallocate(30)
    with pytest.raises(BufferExhaustedError, match=r"max_block_ms.*buffer_memory=100"):
        await first
    await second
    assert pool.available == 0
    pool.deallocate(70)
    pool.deallocate(30)
    assert pool.available == 100


def test_a_wait_can_end_after_its_event_loop_is_closed() -> None:
    pool = make_pool(100, 10)
    assert pool.try_allocate(100)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it is called for the task that never ends
    waiting = pool.allocate(10, 60)
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    assert pool.waiting == 1
    loop.close()
    waiting.close()  # as garbage collection does
    assert pool.waiting == 0
    del task


async def test_too_large_is_refused_at_once() -> None:
    with pytest.raises(RecordTooLargeError, match="buffer_memory=100"):
        await make_pool(100, 10).allocate(101, 60)


async def test_closing_fails_every_waiter() -> None:
    pool = make_pool(10, 10)
    await pool.allocate(10, 1)
    waiting = [asyncio.create_task(pool.allocate(5, 60)) for _ in range(3)]
    await until_idle()
    pool.close(KafkaError("closed"))
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, KafkaError)
    assert pool.waiting == 0
    with pytest.raises(KafkaError):
        await pool.allocate(1, 60)


async def test_blocks_are_reused_and_dissolved() -> None:
    pool = make_pool(100, 30)
    for _ in range(3):
        await pool.allocate(30, 1)
    for _ in range(3):
        pool.deallocate(30)
    await pool.allocate(95, 1)
    assert pool.available == 5
    pool.deallocate(95)
    assert pool.available == 100


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), total=st.integers(20, 200), block=st.integers(1, 40))
def test_the_books_balance_under_random_use(seed: int, total: int, block: int) -> None:
    """Free + lent + collected by waiters = total at every step; at the end each waiter was served
    or failed.
    """
    asyncio.run(_random_use(random.Random(seed), total, block))


async def _random_use(rng: random.Random, total: int, block: int) -> None:
    pool = make_pool(total, block)
    lent: list[int] = []

    async def take(size: int) -> None:
        await pool.allocate(size, 60)
        lent.append(size)

    waiting: list[asyncio.Task[None]] = []
    for _ in range(60):
        choice = rng.random()
        if choice < 0.5:
            waiting.append(
                asyncio.create_task(
                    take(
                        rng.choice([block, rng.randint(1, total)])
                        if block <= total
                        else rng.randint(1, total)
                    )
                )
            )
        elif choice < 0.7 and waiting:
            rng.choice(waiting).cancel()
        elif lent:
            pool.deallocate(lent.pop(rng.randrange(len(lent))))
        if rng.random() < 0.7:
            await asyncio.sleep(0)
        collected = sum(waiter.collected for waiter in pool._waiters)
        granted_unseen = total - pool.available - sum(lent) - collected
        assert granted_unseen >= 0
    await until_idle()  # those that were created last have not asked yet
    while lent or pool.waiting:
        if lent:
            pool.deallocate(lent.pop())
        await until_idle()
        assert lent or not pool.waiting, "a caller waits although all memory is free"
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(
        outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes
    )
    for size in lent:
        pool.deallocate(size)
    assert pool.available == total
