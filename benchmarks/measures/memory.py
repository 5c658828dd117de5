"""How much memory a client takes while its broker is silent, until it lets nobody send any more or
has taken far more than its buffer.
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
from benchmarks.measures import Figures

_AWAITED = {"aioprod": "send", "aiokafka": "send", "confluent-kafka AIOProducer": "produce"}
_BLOCKING = {"kafka-python": "send", "confluent-kafka": "produce"}
_WARM_UP_RECORDS = 100
_RECORDS_BETWEEN_LOOKS = 1_000
_WAITS_AFTER_S = 1.0
_MOST_TIMES_TAKEN = 3
_MOST_TIMES_GROWN = 12


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``topic``; ``value_size`` in bytes, at least 10; ``keep``, whether the caller
    keeps the deliveries; ``broker_pid``.

    For a new worker: memory that was given back is not counted when it is taken again.
        ``grown_ratio`` and ``taken_ratio`` are in buffers;
    ``waits`` is 1 where the client took no more. ``sent`` counts all records, those of the warm-up
    too; the broker gets them in the end.
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
        "taken_ratio": filling.records * value_size / buffer,
        "records": filling.records,
        "waits": int(waits),
        "sent": _WARM_UP_RECORDS + filling.records,
    }


class Filling:
    """Gives a client records until it is full.

    Attributes:
        records: how many it took.
        kept: what it gave for each of them, where that is kept.
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
        """Bytes that the process has more than at the beginning."""
        return resident_bytes() - self._resident_before

    async def run(self) -> bool:
        """Return once the client took nothing for a second (True), or has had enough (False)."""
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
            await asyncio.wait([sending], timeout=_WAITS_AFTER_S)
        if sending.done():
            sending.result()
            return self._full
        sending.cancel()
        await asyncio.wait([sending])
        return True

    async def _send_awaited(self, send: Any) -> None:
        while self._goes_on():
            self._took(await send(self._topic, self._value()))
            if self.records % _RECORDS_BETWEEN_LOOKS == 0:
                await asyncio.sleep(0)  # a caller that does nothing else

    def _send_blocking(self, send: Any) -> None:
        try:
            while self._goes_on():
                self._took(send(self._topic, self._value()))
        except BufferError:  # confluent-kafka's way to say that one has to wait
            self._full = True

    def _value(self) -> bytes:
        """A new object each: a client that keeps it shall be seen to."""
        return b"%0*d" % (self._value_size, self.records)

    def _took(self, delivery: object) -> None:
        self.records += 1
        if self._keep:
            self.kept.append(delivery)

    def _goes_on(self) -> bool:
        if self.records % _RECORDS_BETWEEN_LOOKS:
            return True
        taken = self.records * self._value_size
        return (
            taken < _MOST_TIMES_TAKEN * self._buffer_memory
            and self.grown < _MOST_TIMES_GROWN * self._buffer_memory
        )
