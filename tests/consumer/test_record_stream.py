"""``async for`` over a consumer: the accelerator's stream does what the consumer's own coroutine
does.
"""

from __future__ import annotations

import asyncio
import collections.abc
import gc
import inspect
import sys
import weakref
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod import Consumer, ConsumerRecord, Producer, TopicPartition, native
from aioprod.errors import ConcurrentUseError, ConsumerClosedError
from aioprod.testing import EmbeddedCluster
from tests.producer.test_send_method import outcome, pause, take
from tests.protocol.test_native import accelerator, assert_no_leak, needs_native

# mypy: disable-error-code="no-any-return"

STREAMS = native.in_use and sys.version_info < (3, 12)


class Numbers:
    """A consumer of numbers that are ready, and of others for which it waits."""

    def __init__(self, ready: int = 0) -> None:
        self.ready: deque[int] = deque(range(1, ready + 1))
        self.waits = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        if self.ready:
            return self.ready.popleft()
        self.waits += 1
        try:
            await as_awaitable(self.waits)
        except ValueError as error:
            return len(str(error))
        if self.waits % 3 == 0:
            raise StopAsyncIteration
        return -self.waits


def as_awaitable(yielded: object) -> Any:
    return pause(yielded)


def stream(numbers: Any) -> Any:
    return accelerator().RecordStream(numbers, numbers.ready)


_STEPS = st.sampled_from(["send", "send 1", "throw ValueError", "throw OSError", "close", "next"])


@needs_native
@given(st.integers(0, 2), st.lists(st.lists(_STEPS, max_size=4), max_size=4))
def test_any_steps_have_the_outcomes_of_the_coroutine(ready: int, calls: list[list[str]]) -> None:
    expected, found = [], []
    plain, fast = Numbers(ready), Numbers(ready)
    streamed = stream(fast)
    for steps in calls:
        of_coroutine, of_call = plain.__anext__(), streamed.__anext__()
        expected += [take(of_coroutine, step) for step in steps]
        found += [take(of_call, step) for step in steps]
        of_coroutine.close()
        of_call.close()
    assert found == expected
    assert fast.ready == plain.ready


@needs_native
def test_what_is_ready_comes_first_and_then_what_comes_later() -> None:
    async def main() -> list[int]:
        return [number async for number in streamed]

    numbers = Numbers(3)
    streamed = stream(numbers)
    running, found = main(), []
    with pytest.raises(StopIteration) as stop:
        while True:
            found.append(running.send(None))
            numbers.ready.extend([10] * (len(found) == 2))
    assert found == [1, 2, 3]  # what each wait yields
    assert stop.value.value == [1, 2, 3, -1, -2, 10]


@needs_native
def test_a_call_that_is_not_awaited_takes_nothing() -> None:
    numbers = Numbers(2)
    with pytest.warns(RuntimeWarning, match="__anext__' was never awaited"):
        stream(numbers).__anext__()
        gc.collect()
    assert list(numbers.ready) == [1, 2]


@needs_native
def test_it_looks_like_a_coroutine() -> None:
    call = stream(Numbers()).__anext__()
    assert inspect.isawaitable(call) and asyncio.iscoroutine(call)
    assert isinstance(call, collections.abc.Coroutine)
    assert "Numbers.__anext__" in repr(call)
    call.close()


@needs_native
def test_other_arguments_are_refused() -> None:
    new = accelerator().RecordStream
    with pytest.raises(TypeError):
        new(Numbers())
    with pytest.raises(TypeError):
        new(consumer=Numbers(), records=deque())
    with pytest.raises(AttributeError, match="__anext__"):
        new(object(), deque())
    with pytest.raises(AttributeError, match="popleft"):
        new(Numbers(), [])


def in_a_cycle() -> weakref.ref[Numbers]:
    """Return a consumer to which only its own stream and calls refer."""
    numbers: Any = Numbers(1)
    numbers.stream = stream(numbers)
    numbers.calls = [numbers.stream.__anext__() for _ in range(3)]
    assert outcome(lambda: numbers.calls[0].send(None)) == ("stopped", 1)
    outcome(lambda: numbers.calls[1].send(None))
    numbers.calls[2].close()
    return weakref.ref(numbers)


@needs_native
def test_a_stream_and_its_consumer_are_freed_with_their_cycle() -> None:
    gone = in_a_cycle()
    gc.collect()
    assert gone() is None


@needs_native
def test_streams_leave_no_blocks() -> None:
    def read() -> None:
        numbers = Numbers(3)
        streamed = stream(numbers)
        for _ in range(5):
            call = streamed.__anext__()
            outcome(lambda call=call: call.send(None))  # type: ignore[misc]
            call.close()

    assert_no_leak(read, times=2_000)


# -- a consumer ------------------------------------------------------------------------------------


class PlainConsumer(Consumer[Any, Any]):
    """Has its own ``__anext__``, which ``async for`` must call."""

    calls = 0

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        self.calls += 1
        return await super().__anext__()


both = pytest.mark.parametrize("kind", [Consumer, PlainConsumer])


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with (
        EmbeddedCluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        yield cluster.bootstrap_servers


def opened(kind: type[Consumer[Any, Any]], servers: str) -> Consumer[Any, Any]:
    consumer = kind(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    return consumer


@both
async def test_breaks_and_tasks_lose_no_record(
    kind: type[Consumer[Any, Any]], servers: str
) -> None:
    found = []
    async with opened(kind, servers) as consumer:
        async for record in consumer:
            found.append(record.offset)
            if len(found) == 3:
                break
        iterator = aiter(consumer)
        dropped = asyncio.ensure_future(anext(iterator))
        dropped.cancel()  # before it starts
        await asyncio.wait([dropped])
        found.append((await anext(iterator)).offset)
        found.append((await asyncio.create_task(anext(iterator))).offset)  # type: ignore[arg-type]
        found.append((await asyncio.wait_for(anext(iterator), 10)).offset)
        found.append((await consumer.getone()).offset)
        async for record in consumer:
            found.append(record.offset)
            if record.offset == 19:
                break
    assert found == list(range(20))
    if isinstance(consumer, PlainConsumer):
        assert consumer.calls == 19


@both
async def test_errors_come_out_of_the_loop_and_iteration_goes_on(
    kind: type[Consumer[Any, Any]], servers: str
) -> None:
    async with opened(kind, servers) as consumer:
        iterator = aiter(consumer)
        for number in range(20):
            assert (await anext(iterator)).offset == number
        waiting = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentUseError):
            await anext(iterator)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        consumer.seek(TopicPartition("t", 0), 5)
        assert (await anext(iterator)).offset == 5
    with pytest.raises(ConsumerClosedError):
        await anext(iterator)


async def test_the_accelerator_is_asked_unless_a_subclass_decides(servers: str) -> None:
    async with opened(Consumer, servers) as consumer:
        assert (aiter(consumer) is consumer) is not STREAMS
    async with opened(PlainConsumer, servers) as consumer:
        assert aiter(consumer) is consumer
