"""aioprod: an awaited ``send`` per record, lists of records, or Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, ClassVar, cast

from aioprod import Producer, ProducerRecord
from benchmarks import builds
from benchmarks.adapters.adapter import Feature
from benchmarks.adapters.awaited import send_in_groups
from benchmarks.adapters.settings import Load, Settings

_RECORDS_PER_LIST = 1_000
_ROWS_PER_BATCH = 10_000


class Aioprod:
    """``await producer.send(...)`` in a loop."""

    name: ClassVar[str] = "aioprod"
    lacks: ClassVar[frozenset[Feature]] = frozenset()
    producer: Producer

    def describe(self) -> str:
        return f"aioprod {builds.aioprod()}"

    async def start(self, settings: Settings) -> None:
        if settings.own_defaults:
            self.producer = Producer(settings.bootstrap_servers)
        else:
            self.producer = Producer(
                settings.bootstrap_servers,
                acks=cast("Any", settings.acks),
                enable_idempotence=settings.idempotent,
                linger_ms=settings.linger_ms,
                batch_size=settings.batch_size,
                compression_type=cast("Any", settings.compression_type),
                buffer_memory=settings.buffer_memory,
                security_protocol="SSL" if settings.ca_file else "PLAINTEXT",
                ssl_truststore_location=settings.ca_file or None,
            )
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.close()

    async def send_all(self, load: Load) -> None:
        await send_in_groups(self.producer.send, load)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        await self.producer.send_and_wait(topic, value, key)


class AioprodPure(Aioprod):
    """Like ``Aioprod``, in a worker that turns the accelerator off."""

    name = "aioprod-pure"


class AioprodSendMany(Aioprod):
    """``await producer.send_many(...)`` with lists of 1,000 values, or of records if they have keys
    or headers.
    """

    name = "aioprod send_many"

    async def send_all(self, load: Load) -> None:
        records: Iterator[object] = load.values()
        if load.keys or load.headers:
            headers = load.each_headers()
            records = (
                ProducerRecord(load.topic, value, key, headers=headers)
                for key, value in load.keyed_values()
            )
        sent = []
        while some := list(islice(records, _RECORDS_PER_LIST)):
            sent.append(await self.producer.send_many(load.topic, some))
        for deliveries in sent:
            await deliveries.wait()


class AioprodSendArrow(Aioprod):
    """``await producer.send_arrow(...)`` with batches of 10,000 rows, which the warm-up creates."""

    name = "aioprod send_arrow"

    async def send_all(self, load: Load) -> None:
        rows = _rows(load.value_size, load.keys, load.headers)
        sent = []
        for first in range(0, load.records, _ROWS_PER_BATCH):
            sent.append(
                await self.producer.send_arrow(
                    load.topic, rows.slice(0, min(_ROWS_PER_BATCH, load.records - first))
                )
            )
        for deliveries in sent:
            await deliveries.wait()


@cache
def _rows(value_size: int, keys: int, headers: int) -> Any:
    """Return a pyarrow.RecordBatch with the records of a load."""
    import pyarrow as pa  # type: ignore[import-untyped]

    load = Load("", _ROWS_PER_BATCH, value_size, keys, headers)
    columns = {"value": pa.array(load.values(), pa.binary())}
    if keys:
        columns["key"] = pa.array((key for key, _ in load.keyed_values()), pa.binary())
    if headers:
        columns["headers"] = pa.array(
            [load.each_headers()] * _ROWS_PER_BATCH, pa.map_(pa.string(), pa.binary())
        )
    return pa.RecordBatch.from_pydict(columns)
