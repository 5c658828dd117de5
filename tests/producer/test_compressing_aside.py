"""Large batches are compressed by threads, outside of the event loop, and keep their order, their
limits and their outcome.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aioprod import DeliveryTimeoutError, Producer, ProducerClosedError
from aioprod.codecs import Codec
from aioprod.producer import compressor
from aioprod.protocol.compression import compress
from aioprod.testing import EmbeddedCluster
from tests.loops import has_coarse_clock
from tests.waiting import until

BIG = b"compresses very well " * 50
LIMIT_S = 10.0
COUNT = 600  # 630 kB: far above what is compressed on the loop


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that have compressed, one entry for each batch."""
    seen: list[threading.Thread] = []

    def watched(codec: Codec, data: bytes, level: int | None = None) -> bytes:
        seen.append(threading.current_thread())
        return compress(codec, data, level)

    monkeypatch.setattr(compressor, "_compress", watched)
    return seen


def producer_of(broker: EmbeddedCluster, codec: Any = "zstd", **settings: Any) -> Producer:
    return Producer(
        broker.bootstrap_servers,
        compression_type=codec,
        batch_size=200_000,
        **settings,
    )


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4", "snappy"])
async def test_large_batches_are_compressed_by_threads_and_stay_in_order(
    broker: EmbeddedCluster, threads: list[threading.Thread], codec: str
) -> None:
    values = [b"%05d" % number + BIG for number in range(COUNT)]
    async with producer_of(broker, codec) as producer:
        deliveries = await producer.send_many("t", values)
        assert [place.offset for place in await deliveries] == list(range(COUNT))
    assert [record.value for record in broker.records("t")] == values
    assert threads and threading.main_thread() not in threads


async def test_small_batches_are_compressed_where_they_are(
    broker: EmbeddedCluster, threads: list[threading.Thread]
) -> None:
    async with producer_of(broker) as producer:
        await producer.send_and_wait("t", BIG)
    assert not threads


async def test_a_high_level_makes_smaller_batches_go_aside(
    broker: EmbeddedCluster, threads: list[threading.Thread]
) -> None:
    async with producer_of(broker, compression_zstd_level=19) as producer:
        await (await producer.send_many("t", [BIG] * 20)).wait()
    assert threads


async def test_a_batch_that_cannot_be_compressed_is_sent_as_it_is(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(compressor, "_compress", fails)
    async with producer_of(broker) as producer:
        await (await producer.send_many("t", [BIG] * COUNT)).wait()
    assert len(broker.records("t")) == COUNT
    assert "sending it uncompressed" in caplog.text


class Kept:
    """Compression that has begun, and does not end before it is released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._go_on = threading.Event()
        self.release = self._go_on.set

    def compress(self, codec: Codec, data: bytes, level: int | None = None) -> bytes:
        self.begun.set()
        assert self._go_on.wait(30)
        return compress(codec, data, level)


@pytest.fixture
def kept_back(monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept_back = Kept()
    monkeypatch.setattr(compressor, "_compress", kept_back.compress)
    return kept_back


async def test_a_batch_may_expire_while_it_is_compressed(
    broker: EmbeddedCluster, kept_back: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, ahead_s = asyncio.get_running_loop(), 0.0
    real_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + ahead_s)
    # uvloop's timers do not follow the clock of the test: the time passes there.
    delivery_timeout_ms = 3_000 if has_coarse_clock() else 60_000
    async with producer_of(
        broker, request_timeout_ms=1_000, delivery_timeout_ms=delivery_timeout_ms, linger_ms=0
    ) as producer:
        deliveries = await producer.send_many("t", [BIG] * 100)
        await until(kept_back.begun.is_set, LIMIT_S)
        ahead_s = 60.0  # its time has passed; the next batch has as much
        with pytest.raises(DeliveryTimeoutError):
            await deliveries.wait()
        kept_back.release()
        await producer.send_and_wait("t", b"small")
    assert [record.value for record in broker.records("t")] == [b"small"]


async def test_closing_does_not_wait_for_the_threads_forever(
    broker: EmbeddedCluster, kept_back: Kept
) -> None:
    producer = producer_of(broker)
    await producer.start()
    deliveries = await producer.send_many("t", [BIG] * 300)
    async with asyncio.timeout(10):
        await producer.close(timeout_ms=50)
    kept_back.release()
    assert all(isinstance(error, ProducerClosedError) for error in deliveries.exceptions().values())
    assert len(deliveries.exceptions()) == 300


async def test_flush_waits_for_what_is_being_compressed(
    broker: EmbeddedCluster, kept_back: Kept
) -> None:
    async with producer_of(broker) as producer:
        await producer.send_many("t", [BIG] * 300)
        with pytest.raises(TimeoutError):
            await producer.flush(timeout_ms=50)
        kept_back.release()
        await producer.flush()
        assert len(broker.records("t")) == 300
