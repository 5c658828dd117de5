"""Measures the parts of the original design that aioprod does not use: a lock around each append,
an asyncio Condition for memory, a task for the sender, asyncio streams, a future for each record.

The client's form and the literal form take turns; the table has the medians of their CPU time and
of the ratio. No broker is needed. docs/architecture.md says what stands where.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from aioprod import Producer
from aioprod.metrics.producer import ProducerMetrics
from aioprod.net.stream import Stream
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.delivery import delivery_of
from aioprod.protocol.record_encoder import NO_HEADERS
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.testing import EmbeddedCluster
from aioprod.types import TopicPartition
from benchmarks import builds
from benchmarks.timing import frozen_heap

MICROSECONDS = 1e6
WAITERS = 1_000
RECORDS = 20_000
DEPTH = 5
"""Requests in flight: the default. The kernel may join small replies, so that ratio varies."""
REQUEST = struct.pack(">i", 100) + b"r" * 100
REPLIES = {100: 3_000, 1_000_000: 60}
"""Bytes of a reply, and how many are read in a round."""

Timed = Callable[[], Awaitable[float]]
"""Returns the CPU microseconds of one operation."""


def since(started: float, count: int) -> float:
    return (time.thread_time() - started) / count * MICROSECONDS


# -- a lock around each append --------------------------------------------------------------------


async def sends(producer: Producer, lock: asyncio.Lock | None) -> float:
    """Send records to an open batch: only the call is timed."""
    started = time.thread_time()
    if lock is None:
        for _ in range(RECORDS):
            await producer.send("orders", b"0123456789")
    else:
        for _ in range(RECORDS):
            async with lock:
                await producer.send("orders", b"0123456789")
    took = since(started, RECORDS)
    await producer.flush()
    return took


# -- waiting for memory ---------------------------------------------------------------------------


async def pool_waits() -> float:
    """Let tasks wait for memory that one response releases: the client's pool."""
    pool = BufferPool(WAITERS, 1, ProducerMetrics())
    await pool.allocate(WAITERS, 60)
    started = time.thread_time()
    tasks = [asyncio.create_task(pool.allocate(1, 60)) for _ in range(WAITERS)]
    await asyncio.sleep(0)
    for _ in tasks:
        pool.deallocate(1)
    await asyncio.gather(*tasks)
    return since(started, WAITERS)


async def condition_waits() -> float:
    """Do the same with a Condition."""
    condition, free = asyncio.Condition(), 0

    async def allocate() -> None:
        nonlocal free
        async with asyncio.timeout(60), condition:
            await condition.wait_for(lambda: free > 0)
            free -= 1

    started = time.thread_time()
    tasks = [asyncio.create_task(allocate()) for _ in range(WAITERS)]
    await asyncio.sleep(0)
    for _ in tasks:
        async with condition:
            free += 1
            condition.notify()
    await asyncio.gather(*tasks)
    return since(started, WAITERS)


async def condition_loses_a_notification() -> bool:
    """Notify one of two tasks, and cancel that one in the same turn: does the other one wait on,
    although what it waits for is there?
    """
    condition = asyncio.Condition()

    async def wait() -> None:
        async with condition:
            await condition.wait()

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    async with condition:
        condition.notify()
    first.cancel()
    done, _ = await asyncio.wait({second}, timeout=0.1)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    return not done


async def pool_loses_memory() -> bool:
    """Do the same with the client's pool."""
    pool = BufferPool(1, 1, ProducerMetrics())
    await pool.allocate(1, 60)
    first, second = (asyncio.create_task(pool.allocate(1, 60)) for _ in range(2))
    await asyncio.sleep(0)
    pool.deallocate(1)
    first.cancel()
    done, _ = await asyncio.wait({second}, timeout=0.1)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    return not done


# -- waking the sender ----------------------------------------------------------------------------


async def callback_wakes() -> float:
    """Run the sender in a callback of the event loop."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = RECORDS

    def run() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(run)
        else:
            done.set_result(None)

    started = time.thread_time()
    loop.call_soon(run)
    await done
    return since(started, RECORDS)


async def task_wakes() -> float:
    """Run it in a task that a Condition wakes."""
    condition, wakes = asyncio.Condition(), 0

    async def run() -> None:
        runs = 0
        while runs < RECORDS:
            async with condition:
                while wakes <= runs:
                    await condition.wait()
            runs += 1

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    started = time.thread_time()
    for _ in range(RECORDS):
        async with condition:
            wakes += 1
            condition.notify()
        await asyncio.sleep(0)
    await task
    return since(started, RECORDS)


# -- outcomes -------------------------------------------------------------------------------------


class _Events:
    wants_records = False

    def ended(self, batch: ProducerBatch) -> None:
        """Do nothing."""

    def dropped(self, batch: ProducerBatch) -> None:
        """Do nothing."""


async def deliveries() -> float:
    """Create what `send` returns, complete it by the batch, and await it."""
    writer = RecordBatchWriter(-1)
    batch = ProducerBatch(
        TopicPartition("orders", 0),
        writer,
        limit=1 << 30,
        leased=0,
        created_at=0.0,
        order=(0,),
        events=_Events(),
    )
    for _ in range(RECORDS):
        batch.try_append(0, None, b"x", NO_HEADERS, 20)
    started = time.thread_time()
    pending = [delivery_of(batch, index) for index in range(RECORDS)]
    batch.succeed(0, -1)
    for delivery in pending:
        await delivery
    return since(started, RECORDS)


async def futures() -> float:
    """Do the same with a future for each record."""
    loop = asyncio.get_running_loop()
    started = time.thread_time()
    pending: list[asyncio.Future[tuple[str, int, int]]] = [
        loop.create_future() for _ in range(RECORDS)
    ]
    for offset, future in enumerate(pending):
        future.set_result(("orders", 0, offset))
    for future in pending:
        await future
    return since(started, RECORDS)


# -- sockets --------------------------------------------------------------------------------------


def _reply(sock: socket.socket, size: int) -> None:
    """Answer each request, in a thread of its own, whose CPU time does not count."""
    frame = struct.pack(">i", size) + bytes(size)
    received = 0
    with suppress(OSError):
        while data := sock.recv(65_536):
            received += len(data)
            while received >= len(REQUEST):
                received -= len(REQUEST)
                sock.sendall(frame)


async def _with_peer(size: int, client: Callable[[socket.socket, int], Awaitable[float]]) -> float:
    mine, other = socket.socketpair()
    thread = threading.Thread(target=_reply, args=(other, size), daemon=True)
    thread.start()
    mine.setblocking(False)
    try:
        return await client(mine, REPLIES[size])
    finally:
        mine.close()
        thread.join(5)
        other.close()


async def buffered_protocol(sock: socket.socket, calls: int) -> float:
    """Read replies by the client's protocol."""
    loop = asyncio.get_running_loop()
    done, room, seen = loop.create_future(), asyncio.Semaphore(DEPTH), 0

    def on_frame(frame: object) -> None:
        nonlocal seen
        seen += 1
        room.release()
        if seen == calls:
            done.set_result(None)

    stream = Stream(1 << 24, on_frame, lambda reason: None)
    await loop.create_connection(lambda: stream, sock=sock)
    started = time.thread_time()
    for _ in range(calls):
        await room.acquire()
        stream.write([REQUEST])
    await done
    took = since(started, calls)
    stream.transport.abort()
    await asyncio.sleep(0)
    return took


async def streams(sock: socket.socket, calls: int) -> float:
    """Read them by a StreamReader."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    room = asyncio.Semaphore(DEPTH)

    async def read() -> None:
        for _ in range(calls):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            room.release()

    started = time.thread_time()
    task = asyncio.create_task(read())
    for _ in range(calls):
        await room.acquire()
        writer.write(REQUEST)
        await writer.drain()
    await task
    took = since(started, calls)
    writer.transport.abort()
    await asyncio.sleep(0)
    return took


# -- rounds ---------------------------------------------------------------------------------------


async def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the CPU microseconds of the client's and of the literal form in each round, by what is
    measured.
    """
    settings = {"linger_ms": 60_000, "batch_size": 1 << 20, "delivery_timeout_ms": 120_000}
    async with (
        EmbeddedCluster() as broker,
        Producer(broker.bootstrap_servers, **settings) as producer,  # type: ignore[call-overload]
    ):
        await producer.partitions_for("orders")
        pairs: dict[str, tuple[Timed, Timed]] = {
            "send: without, with a Lock": (
                partial(sends, producer, None),
                partial(sends, producer, asyncio.Lock()),
            ),
            "memory: future per waiter, Condition": (pool_waits, condition_waits),
            "sender: callback, task with a Condition": (callback_wakes, task_wakes),
            "outcome: one per batch, future per record": (deliveries, futures),
            **{
                f"replies of {size:,} B: protocol, streams": (
                    partial(_with_peer, size, buffered_protocol),
                    partial(_with_peer, size, streams),
                )
                for size in REPLIES
            },
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
        for number in range(rounds + 1):
            for name, (ours, literal) in pairs.items():
                with frozen_heap():
                    pair = await ours(), await literal()
                if number:  # the first round warms up
                    measured[name].append(pair)
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9, help="rounds (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    print(f"{builds.interpreter()}, {builds.aioprod()}")
    for name, check in (("Condition", condition_loses_a_notification), ("pool", pool_loses_memory)):
        verdict = "waits on" if asyncio.run(check()) else "is woken"
        print(f"{name}: the notified waiter is cancelled in the same turn; the next one {verdict}")
    measured = asyncio.run(measure(chosen.repetitions))
    print(f"{'CPU us, medians':46}{'aioprod':>10}{'literal':>10}{'ratio':>8}{'range':>14}")
    for name, pairs in measured.items():
        ratios = sorted(literal / ours for ours, literal in pairs)
        ours, literal = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{name:46}{ours:10.2f}{literal:10.2f}{statistics.median(ratios):8.2f}"
            f"{f'{ratios[0]:.2f}-{ratios[-1]:.2f}':>14}"
        )


if __name__ == "__main__":
    main()
