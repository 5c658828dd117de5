"""Topics with known records for the tests of the source, and what a read returns for them without
Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod import Producer
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.readers import KafkaReader, KafkaStreamReader, RangePartition
from aioprod.spark.reading import read_ranges
from aioprod.spark.source_options import SourceOptions, parse_source_options


def send(servers: str, topic: str, compression_type: Any = "none", **columns: Any) -> None:
    """Rows by the columns of ``Producer.send_arrow``."""

    async def send_all() -> None:
        async with Producer(servers, linger_ms=0, compression_type=compression_type) as producer:
            await (await producer.send_arrow(topic, pa.table(columns))).wait()

    asyncio.run(send_all())


def options_of(servers: str, streaming: bool = False, /, **options: str) -> SourceOptions:
    given = {
        "kafka.bootstrap.servers": servers,
        "kafka.retry.backoff.ms": "5",
        "fetchOffset.retryIntervalMs": "1",
    }
    return parse_source_options(given | options, streaming=streaming)


def values(options: SourceOptions, ranges: list[OffsetRange]) -> list[str]:
    return [
        value.decode()
        for item in ranges
        for batch in read_ranges(options, [item])
        for value in batch.column("value").to_pylist()
    ]


def ranges_of(options: SourceOptions) -> list[OffsetRange]:
    return [
        item
        for partition in KafkaReader(options).partitions()
        if isinstance(partition, RangePartition)
        for item in partition.items
    ]


def read(servers: str, **options: str) -> list[str]:
    """The values of a batch read, by partition and offset."""
    given = options_of(servers, **options)
    return values(given, ranges_of(given))


@contextmanager
def stream(servers: str, **options: str) -> Iterator[KafkaStreamReader]:
    """A reader as the driver has it, stopped at the end as Spark does."""
    reader = KafkaStreamReader(options_of(servers, True, **options))
    try:
        yield reader
    finally:
        reader.stop()


def stream_values(
    reader: KafkaStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[str]:
    """Return the values that the tasks of a micro-batch read."""
    return [
        value.decode()
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def without_ids(position: dict[str, Any] | None) -> dict[str, Any]:
    """A position without the ids of its topics, which the checkpoint has too."""
    assert position is not None
    return {name: partitions for name, partitions in position.items() if "#" not in name}
