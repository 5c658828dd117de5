"""A bounded budget of memory for records that are not yet acknowledged (``buffer.memory``), and
blocks of it that are used again.

The budget is a number: at every step total = available + reserved + memory in use. Waiters are
served in order. The first one gets free memory piece by piece, so that small requests do not starve
a large one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from aioprod.errors import BufferExhaustedError, KafkaError, RecordTooLargeError


class _Waiter:
    __slots__ = ("collected", "future", "needed")

    def __init__(self, needed: int, collected: int, future: asyncio.Future[None]) -> None:
        self.needed = needed
        self.collected = collected
        self.future = future


class BufferMetrics(Protocol):
    """Counts waits for memory. Times are loop times in seconds."""

    def buffer_waited(self, seconds: float, now: float) -> None:
        """Count a wait that has ended, with memory or without."""

    def buffer_exhausted(self, now: float) -> None:
        """Count a caller that got no memory in time."""


class BufferPool:
    """Memory with awaitable, fair allocation.

    Args:
        total: bytes in all (``buffer.memory``).
        block_size: the size of a block (``batch.size``).
        metrics: counts waits for memory.

    Attributes:
        blocks: free blocks. A batch with more than a few records is encoded into one by the
            accelerator, sent from there, and gives it back when it ends.
        available: bytes that are neither in use nor reserved.
        reserved: bytes set aside for callers that wait for more; ``total`` = ``available`` +
            ``reserved`` + memory in use.
        waited_s: sum of the seconds that callers have waited for memory.
    """

    def __init__(self, total: int, block_size: int, metrics: BufferMetrics) -> None:
        self.total = total
        self.block_size = block_size
        self.blocks: list[bytearray] = []
        self.available: int = total
        self.reserved: int = 0
        self.waited_s: float = 0.0
        self._metrics = metrics
        # A linked list: finding the first and removing any one take constant time.
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._closed: KafkaError | None = None

    @property
    def waiting(self) -> int:
        """The number of callers that wait for memory."""
        return len(self._waiters)

    def try_allocate(self, size: int) -> bool:
        """Take ``size`` bytes if they are free and no caller waits for memory.

        Raises:
            RecordTooLargeError: if that is more than the whole pool.
        """
        if size > self.total:
            raise RecordTooLargeError(
                f"{size} bytes are needed for a batch, more than buffer_memory={self.total}"
            )
        if self._closed is not None:
            # The same error is raised many times, each without the earlier tracebacks.
            raise self._closed.with_traceback(None)
        if self._waiters or self.available < size:
            return False
        self.available -= size
        return True

    async def allocate(self, size: int, max_wait_s: float) -> None:
        """Take ``size`` bytes, waiting for them at most ``max_wait_s`` seconds.

        Raises:
            RecordTooLargeError: if that is more than the whole pool.
            BufferExhaustedError: if they are not free in time (``max.block.ms``).
            ProducerClosedError: if the pool was closed.
        """
        if self.try_allocate(size):
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(size, 0, loop.create_future())
        started = loop.time()
        self._waiters[waiter] = None
        self._serve_waiters()
        try:
            async with asyncio.timeout(max_wait_s):
                await waiter.future
            self.reserved -= size
        except BaseException as error:
            # Timed out, cancelled or closed, perhaps just when the memory was assigned: return all
            # of it.
            self._withdraw(waiter)
            if isinstance(error, TimeoutError) and not isinstance(error, KafkaError):
                raise self.exhausted(size, max_wait_s) from None
            raise
        finally:
            self.note_wait(started, loop.time())

    def exhausted(self, size: int, max_wait_s: float) -> BufferExhaustedError:
        """Return the error of a caller that got no memory in time."""
        self._metrics.buffer_exhausted(asyncio.get_running_loop().time())
        return BufferExhaustedError(
            f"no {size} bytes of memory were free within {max(max_wait_s, 0) * 1000:.0f} ms (the "
            f"rest of max_block_ms); buffer_memory={self.total}, {self.waiting} more calls wait; "
            "send more slowly, or raise buffer_memory"
        )

    def deallocate(self, size: int) -> None:
        """Return ``size`` bytes to the pool."""
        self.available += size
        assert self.available + self.reserved <= self.total, "memory was given back twice"
        if self._waiters:
            self._serve_waiters()

    def close(self, error: KafkaError) -> None:
        """Fail every waiter, and every later allocation, with ``error``."""
        self._closed = error
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _serve_waiters(self) -> None:
        """Give free memory to the waiters, in order; the first may get a part."""
        while self._waiters and self.available:
            waiter = next(iter(self._waiters))
            # A cancelled waiter that has not run yet gets no more; it returns its memory when it
            # runs.
            if not waiter.future.done():
                part = min(waiter.needed - waiter.collected, self.available)
                self.available -= part
                self.reserved += part
                waiter.collected += part
                if waiter.collected < waiter.needed:
                    return
                waiter.future.set_result(None)
            del self._waiters[waiter]

    def _withdraw(self, waiter: _Waiter) -> None:
        self._waiters.pop(waiter, None)
        collected, waiter.collected = waiter.collected, 0
        self.reserved -= collected
        self.available += collected
        self._serve_waiters()

    def note_wait(self, started: float, now: float) -> None:
        """Count a wait for memory, by a caller of :meth:`allocate` or a later call that joins its
        batch. Called without an event loop if the caller is garbage-collected.
        """
        self.waited_s += now - started
        self._metrics.buffer_waited(now - started, now)
