"""A bounded budget of memory for records that are not yet acknowledged (``buffer.memory``).

Records are immutable bytes that are joined when their batch is sent, so the pool lends sizes, not buffers; the rules are
those of Kafka's pool. Total = never-pooled available + free blocks x block size + what is lent out, at every step.
Waiters are served first come, first served; what comes free is handed to the first of them, piece by piece, so a large
one is not starved by small ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from aioprod.errors import BufferExhaustedError, KafkaError, RecordTooLargeError


@dataclass(slots=True, eq=False)
class _Waiter:
    needed: int
    collected: int
    future: asyncio.Future[None]


class BufferPool:
    """Memory accounting with awaitable, fair allocation.

    Args:
        total: bytes in all (``buffer.memory``).
        block_size: the size that is kept in ready blocks (``batch.size``).
    """

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self._non_pooled = total
        self._free_blocks = 0
        self._waiters: deque[_Waiter] = deque()
        self._closed: KafkaError | None = None

    @property
    def available(self) -> int:
        """Bytes that are not lent out; those collected for a waiter count as lent."""
        return self._non_pooled + self._free_blocks * self.block_size

    @property
    def waiting(self) -> int:
        """How many callers wait for memory."""
        return len(self._waiters)

    def try_allocate(self, size: int) -> bool:
        """Take ``size`` bytes if they are there and nobody waits in front.

        Raises:
            RecordTooLargeError: larger than the whole pool.
        """
        if size > self.total:
            raise RecordTooLargeError(f"{size} bytes are needed for a batch, more than buffer_memory={self.total}")
        if self._closed is not None:
            raise self._closed
        if self._waiters or self.available < size:
            return False
        self._take(size)
        return True

    async def allocate(self, size: int, max_wait_s: float) -> None:
        """Take ``size`` bytes, waiting for them at most ``max_wait_s`` seconds.

        Raises:
            RecordTooLargeError: larger than the whole pool.
            BufferExhaustedError: not to be had in time (``max.block.ms``).
            ProducerClosedError: the pool was closed.
        """
        if self.try_allocate(size):
            return
        waiter = _Waiter(size, 0, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._hand_out()
        try:
            async with asyncio.timeout(max_wait_s):
                await waiter.future
        except BaseException as error:
            # Timed out, cancelled or closed, perhaps in the very moment the memory came: give all of it back.
            self._withdraw(waiter)
            if isinstance(error, TimeoutError) and not isinstance(error, KafkaError):
                raise BufferExhaustedError(
                    f"no {size} bytes came free in {max_wait_s * 1000:.0f} ms (max_block_ms); buffer_memory={self.total}, {self.waiting} more waiting"
                ) from None
            raise

    def deallocate(self, size: int) -> None:
        """Give ``size`` bytes back, as they were allocated."""
        if size == self.block_size:
            self._free_blocks += 1
        else:
            self._non_pooled += size
        assert self.available <= self.total, "memory was given back twice"
        if self._waiters:
            self._hand_out()

    def close(self, error: KafkaError) -> None:
        """Fail every waiter, and every later allocation, with ``error``."""
        self._closed = error
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _take(self, size: int) -> None:
        if size == self.block_size and self._free_blocks:
            self._free_blocks -= 1
            return
        self._dissolve_blocks(size)
        self._non_pooled -= size

    def _dissolve_blocks(self, size: int) -> None:
        """Turn free blocks into plain memory until ``size`` bytes of it are there."""
        missing = size - self._non_pooled
        if missing > 0 and self._free_blocks:
            blocks = min(self._free_blocks, -(-missing // self.block_size))
            self._free_blocks -= blocks
            self._non_pooled += blocks * self.block_size

    def _hand_out(self) -> None:
        """Give what is free to the waiters, in their order; the first may get a part."""
        while self._waiters and self.available:
            first = self._waiters[0]
            if not first.future.done():
                part = min(first.needed - first.collected, self.available)
                self._take(part)
                first.collected += part
                if first.collected < first.needed:
                    return
                first.future.set_result(None)
            self._waiters.popleft()

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        collected, waiter.collected = waiter.collected, 0
        if collected == waiter.needed:
            self.deallocate(collected)
        else:
            self._non_pooled += collected
            self._hand_out()
