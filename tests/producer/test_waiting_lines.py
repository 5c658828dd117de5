"""Lines of waiting calls: one timer, and each call times out at its own deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from aioprod.codecs import Codec
from aioprod.producer.appends import _STEP_S, WaitingLines
from aioprod.producer.partition_queue import PartitionQueue, Schedule, Topic
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.pending import PendingCall
from aioprod.producer.sequences import ProducerState

pytestmark = pytest.mark.virtual_time


def partition(number: int = 0) -> PartitionQueue:
    topic = Topic("t", StickyPartition(16_384, random.Random(1), adaptive=False), Codec.NONE, None)
    return PartitionQueue(topic, number, ProducerState("p"), Schedule(0.0, lambda at: None))


async def waited(
    lines: WaitingLines, call: PendingCall, queue: PartitionQueue
) -> tuple[float, bool]:
    """Wait in line; return the loop time of the end, and whether another task woke the call."""
    loop = asyncio.get_running_loop()
    lines.join(call, queue)
    try:
        await lines.new_waiter(call, loop)
    except TimeoutError:
        return loop.time(), False
    finally:
        call.forget_waiter()
        lines.withdraw(call, queue)
    return loop.time(), True


@pytest.mark.parametrize(
    "order", [lambda after: after, lambda after: -after], ids=["in order", "latest first"]
)
async def test_each_call_times_out_at_its_deadline(order: Callable[[float], float]) -> None:
    lines, start = WaitingLines(), asyncio.get_running_loop().time()
    limits = sorted([1.0, 1.0 + _STEP_S / 4, 2.0, 60.0], key=order)
    queues = [partition(0), partition(1)]
    # The first call of each line is woken whenever one leaves it; so the calls stand behind one.
    heads = [PendingCall(start + 100.0) for _ in queues]
    for head, queue in zip(heads, queues, strict=True):
        lines.join(head, queue)
    ends = await asyncio.gather(
        *(
            waited(lines, PendingCall(start + after), queues[number % 2])
            for number, after in enumerate(limits)
        )
    )
    assert lines.waiting == 2
    for after, (end, woken) in zip(limits, ends, strict=True):
        assert not woken and 0 <= end - start - after <= _STEP_S
    for head, queue in zip(heads, queues, strict=True):
        lines.withdraw(head, queue)
    assert lines.waiting == 0 and lines._timer.due == float("inf")


async def test_a_call_that_leaves_wakes_the_first_one_left() -> None:
    lines, queue, start = WaitingLines(), partition(), asyncio.get_running_loop().time()
    first, second = PendingCall(start + 60.0), PendingCall(start + 60.0)
    lines.join(first, queue)
    task = asyncio.create_task(waited(lines, second, queue))
    await asyncio.sleep(1)
    assert not task.done()
    lines.withdraw(first, queue)
    end, woken = await task
    assert woken and end == pytest.approx(start + 1, abs=0.001)


async def test_many_deadlines_close_together_cost_one_look_per_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    look = WaitingLines._time_out

    def counted(lines: WaitingLines, now: float) -> None:
        nonlocal looks
        looks += 1
        look(lines, now)

    monkeypatch.setattr(WaitingLines, "_time_out", counted)
    lines, queue, start = WaitingLines(), partition(), asyncio.get_running_loop().time()
    head = PendingCall(start + 100.0)
    lines.join(head, queue)
    calls = [PendingCall(start + 1 + number * _STEP_S / 50) for number in range(100)]
    ends = await asyncio.gather(*(waited(lines, call, queue) for call in calls))
    assert not any(woken for _, woken in ends)
    assert looks <= 4
    lines.withdraw(head, queue)
