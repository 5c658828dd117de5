"""The memory of a client while its broker does not respond, until it accepts no more records or far
exceeds its buffer.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.adapters import Adapter, Settings, started
from benchmarks.measures import Numbers

_AWAITED = {
    "aioprod": "send",
    "aioprod-pure": "send",
    "aiokafka": "send",
    "confluent-kafka AIOProducer": "produce",
}
_BLOCKING = {"kafka-python": "send", "confluent-kafka": "produce"}
_WARM_UP_RECORDS = 100
_RECORDS_BETWEEN_CHECKS = 1_000
_BLOCKED_AFTER_S = 1.0
_MAX_ACCEPTED_RATIO = 3
_MAX_GROWN_RATIO = 12


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``topic``; ``value_size`` in bytes, at least 10; ``keep``, whether the caller
    keeps the deliveries; ``broker_pid``.

    Requires a new worker, as freed memory would be reused. ``grown_ratio`` and ``accepted_ratio``
    are relative to the buffer size. ``waits`` is 1 if the client accepted no more records. ``sent``
    includes the warm-up; all records are delivered at the end.
    """
    topic, value_size = arguments["topic"], arguments["value_size"]
    async with started(adapter, settings):
        for _ in range(_WARM_UP_RECORDS):
            await adapter.send_and_wait(topic, b"0" * value_size, None)
        filling = Filling(
            adapter, topic, value_size, settings.buffer_memory, keep=arguments["keep"]
        )
        os.kill(arguments["broker_pid"], signal.SIGSTOP)
        try:
            waits = await filling.run()
            grown = filling.grown
        finally:
            os.kill(arguments["broker_pid"], signal.SIGCONT)
        filling.kept.clear()
    buffer = settings.buffer_memory
    return {
        "grown_ratio": grown / buffer,
        "accepted_ratio": filling.records * value_size / buffer,
        "records": filling.records,
        "waits": int(waits),
        "sent": _WARM_UP_RECORDS + filling.records,
    }


class Filling:
    """Sends records until the client accepts no more.

    Attributes:
        records: the number of accepted records.
        kept: their deliveries, if they are kept.
    """

    def __init__(
        self, adapter: Any, topic: str, value_size: int, buffer_memory: int, *, keep: bool
    ) -> None:
        self.records = 0
        self.kept: list[object] = []
        self._adapter = adapter
        self._topic = topic
        self._value_size = value_size
        self._buffer_memory = buffer_memory
        self._keep = keep
        self._full = False
        gc.collect()
        self._resident_before = resident_bytes()

    @property
    def grown(self) -> int:
        """The growth of the process in bytes."""
        return resident_bytes() - self._resident_before

    async def run(self) -> bool:
        """Return True once the client has accepted nothing for a second, False if it exceeds the
        limits.
        """
        name = self._adapter.name
        if name in _AWAITED:
            sending = asyncio.create_task(
                self._send_awaited(getattr(self._adapter.producer, _AWAITED[name]))
            )
        else:
            sending = asyncio.create_task(
                asyncio.to_thread(
                    self._send_blocking, getattr(self._adapter.producer, _BLOCKING[name])
                )
            )
        seen = -1
        while not sending.done() and seen != self.records:
            seen = self.records
            await asyncio.wait([sending], timeout=_BLOCKED_AFTER_S)
        if sending.done():
            sending.result()
            return self._full
        sending.cancel()
        await asyncio.wait([sending])
        return True

    async def _send_awaited(self, send: Any) -> None:
        while self._may_continue():
            self._accepted(await send(self._topic, self._value()))
            if self.records % _RECORDS_BETWEEN_CHECKS == 0:
                await asyncio.sleep(0)  # lets the client's tasks run

    def _send_blocking(self, send: Any) -> None:
        try:
            while self._may_continue():
                self._accepted(send(self._topic, self._value()))
        except BufferError:  # confluent-kafka's buffer is full
            self._full = True

    def _value(self) -> bytes:
        """Return a new object each time, so that values that the client keeps are counted."""
        return b"%0*d" % (self._value_size, self.records)

    def _accepted(self, delivery: object) -> None:
        self.records += 1
        if self._keep:
            self.kept.append(delivery)

    def _may_continue(self) -> bool:
        if self.records % _RECORDS_BETWEEN_CHECKS:
            return True
        accepted = self.records * self._value_size
        return (
            accepted < _MAX_ACCEPTED_RATIO * self._buffer_memory
            and self.grown < _MAX_GROWN_RATIO * self._buffer_memory
        )
