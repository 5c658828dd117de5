"""A delivery can stand where asyncio expects a Future: asyncio's tools do with it what they do with
a Future, on each event loop, in C and in Python. What differs is cancellation: a record can't be
taken back.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from aioprod import Producer, native
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.delivery import Delivery
from aioprod.protocol.record_encoder import NO_HEADERS
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.testing import EmbeddedCluster
from aioprod.types import RecordMetadata, TopicPartition
from tests import loops

LOOPS = [kind for kind in loops.KINDS if kind != "eager" or sys.version_info >= (3, 12)]
KINDS = ["Delivery", "Delivery in Python"]
LONG = 30.0
"""A limit that is not reached."""


class _Events:
    wants_records = False

    def ended(self, batch: ProducerBatch) -> None: ...
    def dropped(self, batch: ProducerBatch) -> None: ...


class Pending:
    """A batch of ten records without an outcome, and what stands for them.

    Args:
        kind: "Future" or one of KINDS.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._futures: list[tuple[asyncio.Future[RecordMetadata], int]] = []
        writer = RecordBatchWriter(-1)
        self.batch = ProducerBatch(
            TopicPartition("orders", 0),
            writer,
            limit=1_000,
            leased=0,
            created_at=0.0,
            order=(0,),
            events=_Events(),
        )
        for _ in range(10):
            self.batch.try_append(5, None, b"x", NO_HEADERS, 20)

    def new(self, index: int = 0) -> Any:
        """Return what stands for a record."""
        if self._kind == "Future":
            future = asyncio.get_running_loop().create_future()
            self._futures.append((future, index))
            return future
        delivery = (native.python_sources["Delivery"] if "Python" in self._kind else Delivery)()
        delivery._batch, delivery._index = self.batch, index  # type: ignore[attr-defined]
        return delivery

    def succeed(self) -> None:
        self.batch.succeed(100, -1)
        for future, index in self._futures:
            if not future.done():
                future.set_result(self.batch.metadata(index))

    def fail(self) -> None:
        self.batch.fail(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "orders-0"))
        for future, _ in self._futures:
            future.set_exception(self.batch.failure() or AssertionError)

    def succeed_soon(self) -> None:
        asyncio.get_running_loop().call_later(0.002, self.succeed)

    def fail_soon(self) -> None:
        asyncio.get_running_loop().call_later(0.002, self.fail)


def outcome(done: Any) -> object:
    """Return the state of a future that is done, for comparisons."""
    if done.cancelled():
        return "cancelled"
    error = done.exception()
    return repr(error) if error is not None else done.result()


# -- the table: each tool, with a Future and with a delivery --------------------------------------


async def wait(records: Pending) -> object:
    both = [records.new(0), records.new(1)]
    records.succeed_soon()
    done, pending = await asyncio.wait(both, timeout=LONG)
    return [outcome(one) for one in both if one in done], len(pending)


async def wait_for_the_first(records: Pending) -> object:
    other = asyncio.get_running_loop().create_future()
    records.succeed_soon()
    record = records.new()
    done, pending = await asyncio.wait({record, other}, return_when=asyncio.FIRST_COMPLETED)
    return done == {record}, pending == {other}, outcome(record)


async def wait_for_the_first_error(records: Pending) -> object:
    other = asyncio.get_running_loop().create_future()
    records.fail_soon()
    record = records.new()
    done, pending = await asyncio.wait({record, other}, return_when=asyncio.FIRST_EXCEPTION)
    return done == {record}, pending == {other}, outcome(record)


async def wait_without_success(records: Pending) -> object:
    record = records.new()
    done, pending = await asyncio.wait([record], timeout=0.001)
    left = record.remove_done_callback(print), record.done(), record.cancelled()
    records.succeed()
    return len(done), pending == {record}, left, outcome(record)


async def gather(records: Pending) -> object:
    records.succeed_soon()
    return await asyncio.gather(records.new(1), asyncio.sleep(0, "other"), records.new(0))


async def gather_errors(records: Pending) -> object:
    records.fail_soon()
    return repr(await asyncio.gather(records.new(), records.new(1), return_exceptions=True))


async def gather_raises(records: Pending) -> object:
    records.fail_soon()
    with pytest.raises(BrokerError) as raised:
        await asyncio.gather(records.new(), asyncio.sleep(0))
    return repr(raised.value)


async def shield(records: Pending) -> object:
    records.succeed_soon()
    return await asyncio.shield(records.new())


async def wait_for(records: Pending) -> object:
    records.succeed_soon()
    return await asyncio.wait_for(records.new(), LONG)


async def wait_for_without_success(records: Pending) -> object:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(records.new(), 0.001)
    return "TimeoutError"


async def wait_for_done(records: Pending) -> object:
    record = records.new()
    records.succeed()
    return await asyncio.wait_for(record, 0)


async def as_completed(records: Pending) -> object:
    records.succeed_soon()
    results = [await one for one in asyncio.as_completed([records.new(2), records.new(1)])]
    return sorted(results)


async def async_as_completed(records: Pending) -> object:
    if sys.version_info < (3, 13):
        return None
    records.succeed_soon()
    return sorted(
        [await one async for one in asyncio.as_completed([records.new(1), records.new(0)])]
    )


async def ensure_future(records: Pending) -> object:
    future = asyncio.ensure_future(records.new(), loop=asyncio.get_running_loop())
    records.succeed_soon()
    return await future, asyncio.isfuture(future)


async def timeout(records: Pending) -> object:
    records.succeed_soon()
    async with asyncio.timeout(LONG):
        return await records.new()


async def timeout_without_success(records: Pending) -> object:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await records.new()
    return "TimeoutError"


async def task_group(records: Pending) -> object:
    async def one(record: Awaitable[RecordMetadata]) -> RecordMetadata:
        return await record

    records.succeed_soon()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(records.new(index))) for index in range(3)]
    return [task.result() for task in tasks]


async def create_task(records: Pending) -> object:
    """Needs a coroutine; a Future is not one, either."""
    with pytest.raises(TypeError):
        await asyncio.create_task(records.new())
    return "TypeError"


async def queue(records: Pending) -> object:
    """An await in another task, which hands the outcome on."""
    passed: asyncio.Queue[Any] = asyncio.Queue()
    await passed.put(records.new())
    records.succeed_soon()
    return await (await passed.get())


async def await_twice(records: Pending) -> object:
    record = records.new()

    async def one() -> object:
        return await record

    records.succeed_soon()
    return await asyncio.gather(one(), one()), await record


async def callbacks(records: Pending) -> object:
    """Equal callbacks are called as often as they were added, and removed together."""
    called: list[str] = []
    record = records.new(3)

    def first(done: Any) -> None:
        called.append(f"first {outcome(done)}")

    def second(done: Any) -> None:
        called.append(f"second {outcome(done)}")

    for callback in (first, second, first, called.append):
        record.add_done_callback(callback)
    removed = [record.remove_done_callback(called.append) for _ in range(2)]
    removed.append(record.remove_done_callback(second))
    record.add_done_callback(second)
    records.succeed()
    await asyncio.sleep(0)
    record.add_done_callback(second)  # soon, as it is done
    removed.append(record.remove_done_callback(first))
    at_once = len(called)
    await asyncio.sleep(0)
    return called, at_once, removed


async def discard(records: Pending) -> object:
    """A set of futures that empties itself needs the same object in the callback."""
    some = {records.new(index) for index in range(5)}
    for record in tuple(some):
        record.add_done_callback(some.discard)
    records.succeed()
    some.add(record)
    record.add_done_callback(some.discard)
    await asyncio.sleep(0)
    return len(some)


async def done_already(records: Pending) -> object:
    """All tools with what is done when they begin."""
    some = [records.new(index) for index in range(4)]
    records.succeed()
    return (
        await asyncio.gather(*some),
        sorted([await one for one in asyncio.as_completed(some)]),
        await asyncio.wait(some) == (set(some), set()),
        await asyncio.shield(some[0]),
        asyncio.ensure_future(some[0]) is some[0],
        asyncio.wrap_future(some[0]) is some[0],
        asyncio.isfuture(some[0]),
        await asyncio.wait_for(some[0], 0),
    )


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def contexts(records: Pending) -> object:
    """A callback has the context in which it was added, or a given one."""
    seen: list[str] = []
    record = records.new()
    other = contextvars.copy_context()
    other.run(VARIABLE.set, "given")
    VARIABLE.set("mine")
    record.add_done_callback(lambda _: seen.append(VARIABLE.get()))
    record.add_done_callback(lambda _: seen.append(VARIABLE.get()), context=other)
    VARIABLE.set("later")
    records.succeed()
    record.add_done_callback(lambda _: seen.append(VARIABLE.get()))
    record.add_done_callback(lambda _: seen.append(VARIABLE.get()), context=other)
    for _ in range(2):
        await asyncio.sleep(0)
    return seen


async def questions(records: Pending) -> object:
    """The methods that ask; and what a Future raises that is not done."""
    record = records.new()
    found = [record.done(), record.cancelled(), record.get_loop() is asyncio.get_running_loop()]
    for ask in (record.result, record.exception):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
    records.succeed()
    return *found, record.done(), record.cancelled(), record.exception(), record.cancel()


async def anyio_limits(records: Pending) -> object:
    with anyio.move_on_after(0.001) as scope:
        await records.new()
    other = records.new(1)
    records.succeed_soon()
    with anyio.fail_after(LONG):
        return scope.cancelled_caught, await other


async def threads(records: Pending) -> object:
    """Another thread waits for the outcome."""

    async def one() -> object:
        return await record

    loop = asyncio.get_running_loop()
    record = records.new()
    records.succeed_soon()
    return await asyncio.to_thread(
        lambda: asyncio.run_coroutine_threadsafe(one(), loop).result(LONG)
    )


Tool = Callable[[Pending], Coroutine[Any, Any, object]]
TOOLS: list[Tool] = [
    wait,
    wait_for_the_first,
    wait_for_the_first_error,
    wait_without_success,
    gather,
    gather_errors,
    gather_raises,
    shield,
    wait_for,
    wait_for_without_success,
    wait_for_done,
    as_completed,
    async_as_completed,
    ensure_future,
    timeout,
    timeout_without_success,
    task_group,
    create_task,
    queue,
    await_twice,
    callbacks,
    discard,
    done_already,
    contexts,
    questions,
    anyio_limits,
    threads,
]


def run(loop: str, tool: Tool, records: str) -> object:
    async def main() -> object:
        return await tool(Pending(records))

    with asyncio.Runner(loop_factory=loops.factory(loop, virtual=False)) as runner:
        return runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_a_tool_does_the_same_with_a_delivery(tool: Tool, loop: str) -> None:
    expected = run(loop, tool, "Future")
    for kind in KINDS:
        assert run(loop, tool, kind) == expected, kind


# -- cancellation: only the wait ends -------------------------------------------------------------


async def cancel_gather(record: Any) -> None:
    await asyncio.gather(record, asyncio.sleep(LONG))


async def cancel_wait(record: Any) -> None:
    await asyncio.wait([record], timeout=LONG)


async def cancel_wait_for(record: Any) -> None:
    await asyncio.wait_for(record, LONG)


async def cancel_shield(record: Any) -> None:
    await asyncio.shield(record)


async def cancel_as_completed(record: Any) -> None:
    for one in asyncio.as_completed([record]):
        await one


async def cancel_future(record: Any) -> None:
    await asyncio.ensure_future(record)


async def cancel_group(record: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(cancel_wait_for(record))


async def cancel_await(record: Any) -> None:
    await record


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "waiting",
    [
        cancel_gather,
        cancel_wait,
        cancel_wait_for,
        cancel_shield,
        cancel_as_completed,
        cancel_future,
        cancel_group,
        cancel_await,
    ],
    ids=lambda waiting: waiting.__name__,
)
def test_cancelling_a_wait_ends_it_at_once_and_nothing_else(
    waiting: Callable[[Any], Coroutine[Any, Any, None]], loop: str
) -> None:
    async def main() -> None:
        for kind in KINDS:
            records = Pending(kind)
            record = records.new(4)
            called: list[object] = []
            record.add_done_callback(called.append)
            task = asyncio.create_task(waiting(record))
            await asyncio.sleep(0.001)
            task.cancel()
            ended, _ = await asyncio.wait([task], timeout=LONG)
            assert ended and task.cancelled()
            assert not record.done() and not record.cancelled() and not called
            assert record.cancel() is False and record.cancel("message") is False
            records.succeed()
            assert len(called) == 1 and record.result().offset == (await record).offset == 104

    with asyncio.Runner(loop_factory=loops.factory(loop, virtual=False)) as runner:
        runner.run(main())


async def test_what_asyncio_takes_for_a_future_would_not_end_in_time() -> None:
    """The reason why ``asyncio.isfuture`` is False until the outcome is known."""

    class TakenForFuture:
        _asyncio_future_blocking = False

        def __init__(self, delivery: Delivery) -> None:
            self._delivery = delivery

        def __getattr__(self, name: str) -> object:
            return getattr(self._delivery, name)

    async def end_of(record: Any) -> bool:
        """Return whether a limit ends a wait before the record has its outcome."""
        records.succeed_soon()
        try:
            async with asyncio.timeout(0):
                await asyncio.gather(record)
        except TimeoutError:
            pass
        return not record.done()

    records = Pending("Delivery")
    assert not asyncio.isfuture(records.new()) and await end_of(records.new())
    records = Pending("Delivery")
    wrong = TakenForFuture(records.new())
    assert asyncio.isfuture(wrong) and not await end_of(wrong)


# -- costs and splits -----------------------------------------------------------------------------


async def test_removing_callbacks_is_linear() -> None:
    """``asyncio.wait`` removes its callback from each delivery; those of a batch are many."""

    def seconds(count: int) -> float:
        records = Pending("Delivery")
        deliveries = [records.new(index) for index in range(count)]
        for delivery in deliveries:
            delivery.add_done_callback(print)
        started = time.process_time()
        assert sum(delivery.remove_done_callback(print) for delivery in deliveries) == count
        return time.process_time() - started

    assert min(seconds(20_000) for _ in range(3)) < 60 * min(seconds(1_000) for _ in range(5))


async def test_callbacks_are_removed_from_the_parts_of_a_split_batch() -> None:
    records = Pending("Delivery")
    called: list[int] = []

    def call(done: Delivery) -> None:
        called.append(done.result().offset)

    deliveries = [records.new(index) for index in range(10)]
    for delivery in deliveries:
        for _ in range(2):
            delivery.add_done_callback(call)
    parts = records.batch.split()
    assert deliveries[1].remove_done_callback(call) == 2
    assert deliveries[9].remove_done_callback(call) == 2
    offset = 0
    for part in parts:
        part.succeed(offset, -1)
        offset += part.count
    assert called == [number for number in range(10) if number not in (1, 9) for _ in range(2)]


async def test_deliveries_of_a_producer(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        deliveries: list[Any] = [await producer.send("orders", b"%d" % at) for at in range(100)]
        done, pending = await asyncio.wait(deliveries, timeout=LONG)
        assert done == set(deliveries) and not pending
        many: Any = await producer.send_many("orders", [b"x"] * 100)
        done, pending = await asyncio.wait(many, timeout=LONG)
        assert len(done) == 100 and not pending
        assert deliveries[0].get_loop() is asyncio.get_running_loop()
