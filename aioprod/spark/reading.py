"""A read task: fetches its ranges of offsets as Arrow batches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext

from aioprod.closing import close_in_turn
from aioprod.cluster.client import ClusterClient
from aioprod.config.redaction import SecretSettings
from aioprod.consumer.partition_reader import (
    FetchedRecords,
    FetchSettings,
    PartitionReader,
    list_offsets,
)
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, ConfigError, TopicRecreatedError
from aioprod.logs import Logger, get_logger
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.spark.arrow import source_rows
from aioprod.spark.driver_client import open_client
from aioprod.spark.kept import KeptClient
from aioprod.spark.offsets import EARLIEST, OffsetRange
from aioprod.spark.planning import report_losses
from aioprod.spark.source_options import SourceOptions, fetch_settings
from aioprod.spark.starting import start_patiently
from aioprod.spark.waiting import named_wait
from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from aioprod.spark.dead_letters import DeadLetterWriter
    from aioprod.spark.registered.rows import RegisteredRows
    from aioprod.spark.typed.rows import TypedRows

log: Logger = get_logger(__name__)

_Batches = AsyncGenerator[pa.RecordBatch, None]

# The ranges of a task whose first records are requested at the same time.
_AT_ONCE = 8
RACK = "AIOPROD_CLIENT_RACK"
RACK_FILE = "AIOPROD_CLIENT_RACK_FILE"
# The property in which Spark passes the id of a task's query.
QUERY_ID = "sql.streaming.queryId"


class ReadClients:
    """The clients of a read task.

    Args:
        cluster: the client for the brokers.
        registered: decodes values with schemas, if there are any.
    """

    def __init__(self, cluster: ClusterClient, registered: RegisteredRows | None) -> None:
        self.cluster = cluster
        self.registered = registered

    async def close(self) -> None:
        """Close the clients."""
        try:
            if self.registered is not None:
                await self.registered.close()
        finally:
            await self.cluster.close()


_clients: KeptClient[ReadClients] = KeptClient()


def read_ranges(options: SourceOptions, items: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the records of one range after the other as Arrow batches of about 4 MiB.

    The event loop runs only while the next batch is requested, so nothing is fetched faster than
    Spark consumes it, except the first batches of up to eight ranges.
    """
    key = options.bootstrap_servers, SecretSettings(options.client), options.registered
    with _clients.use(key, lambda: _connect(options)) as (runner, clients):
        for start in range(0, len(items), _AT_ONCE):
            ranges = [
                (_batches(clients, options, item), item) for item in items[start : start + _AT_ONCE]
            ]
            try:
                for (batches, item), first in zip(ranges, runner.run(_firsts(ranges)), strict=True):
                    batch = first
                    while batch is not None:
                        yield batch
                        batch = runner.run(_next(batches, item))
            finally:
                runner.run(close_in_turn(*(batches.aclose for batches, _ in ranges)))


async def _connect(options: SourceOptions) -> ReadClients:
    client = open_client(options)
    # The driver has just connected to the brokers, so the address is valid.
    limit_s = fetch_settings(options).retry_limit_ms / 1000
    registered = None
    try:
        await start_patiently(client.start, client.config, limit_s, "kafka.default.api.timeout.ms")
        if options.registered is not None:
            from aioprod.spark.registered.rows import RegisteredRows

            registered = await RegisteredRows.open(options.registered)
    except BaseException:
        await client.close()
        raise
    return ReadClients(client, registered)


async def _firsts(ranges: Iterable[tuple[_Batches, OffsetRange]]) -> list[pa.RecordBatch | None]:
    """Return the first batch of each range, after waiting for all of them."""
    found = await asyncio.gather(*(_next(*each) for each in ranges), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


async def _next(batches: _Batches, item: OffsetRange) -> pa.RecordBatch | None:
    what = f"reading {item.topic}-{item.partition}, offsets {item.start} to {item.end}"
    with named_wait(what, "kafkaConsumer.pollTimeoutMs without progress"):
        return await anext(batches, None)


async def _batches(clients: ReadClients, options: SourceOptions, item: OffsetRange) -> _Batches:
    decoding = _Decoding(clients, options, item)
    try:
        rows = _rows(clients.cluster, options, item, include_headers=decoding.needs_headers)
        async with aclosing(rows):
            async for each in rows:
                yield await decoding.decode(each)
    finally:
        await decoding.close()


class _Decoding:
    """Decodes the rows of a task.

    Attributes:
        needs_headers: True if the rows must have headers, because they may contain a schema id.
    """

    def __init__(self, clients: ReadClients, options: SourceOptions, item: OffsetRange) -> None:
        self._registered = clients.registered
        self._keep_headers = options.include_headers
        self._typed: TypedRows | None = None
        if options.typed is not None:
            from aioprod.spark.typed.rows import TypedRows

            self._typed = TypedRows(options.typed)
        self._letters: DeadLetterWriter | None = None
        if options.dead_letters is not None:
            from aioprod.spark.dead_letters import DeadLetterWriter

            self._letters = DeadLetterWriter(clients.cluster, options, _query_id(), item)
        decodes_headers = self._registered is not None or self._letters is not None
        self.needs_headers: bool = self._keep_headers or decodes_headers

    async def decode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the form for Spark; write dead letters if this is configured."""
        rejected: dict[int, str] | None = None if self._letters is None else {}
        if self._registered is not None:
            found = await self._registered.decode(
                rows, keep_headers=self._keep_headers, rejected=rejected
            )
        elif self._typed is not None:
            found = self._typed.decode(rows, rejected)
            if self.needs_headers and not self._keep_headers:
                found = found.drop_columns(["headers"])
        else:
            return rows
        if self._letters is not None and rejected:
            await self._letters.write(rows, rejected)
        return found

    async def close(self) -> None:
        """Close the objects that only this task uses."""
        if self._letters is not None:
            await self._letters.close()


def _query_id() -> str:
    task = TaskContext.get()
    found = None if task is None else task.getLocalProperty(QUERY_ID)
    if found is None:
        raise ConfigError(
            f"option deadLetterTopic is for streams: Spark names no query ({QUERY_ID})"
        )
    return found


async def _rows(
    client: ClusterClient, options: SourceOptions, item: OffsetRange, *, include_headers: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    settings = fetch_settings(options)
    if not settings.client_rack:
        settings = replace(settings, client_rack=executor_rack(os.environ))
    start: int | None = item.start
    while start is not None:
        tp = TopicPartition(item.topic, item.partition)
        reader = PartitionReader(client, tp, start, item.end, settings, item.topic_id)
        try:
            async for fetched in reader:
                for rows in _to_arrow(fetched, item, include_headers=include_headers):
                    yield rows
            return
        except TopicRecreatedError as error:
            # The next micro-batch reads the new topic from its first record.
            report_losses([str(error)], fail=options.fail_on_data_loss)
            return
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            report_losses([str(error)], fail=options.fail_on_data_loss)
            start = await _after_loss(client, reader, item.end, settings)


def executor_rack(environment: Mapping[str, str]) -> str:
    """Return the rack of this executor; empty if it is not known.

    It is the environment variable AIOPROD_CLIENT_RACK, the content of the file that
    AIOPROD_CLIENT_RACK_FILE names, or the address of Spark's resource ``rack``.

    Raises:
        ConfigError: if the file does not exist.
    """
    if rack := environment.get(RACK, ""):
        return rack.strip()
    if name := environment.get(RACK_FILE):
        try:
            return Path(name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{RACK_FILE}={name}: {error}") from error
    task = TaskContext.get()
    resource = None if task is None else task.resources().get("rack")
    return resource.addresses[0] if resource is not None and resource.addresses else ""


async def _after_loss(
    client: ClusterClient, reader: PartitionReader, end: int, settings: FetchSettings
) -> int | None:
    """Return the offset to continue from after data loss; None if nothing of the range remains."""
    found = await list_offsets(
        client, {reader.partition: EARLIEST}, retry_limit_ms=settings.retry_limit_ms
    )
    earliest = found[reader.partition]
    return earliest if reader.position < earliest < end else None


def _to_arrow(
    fetched: FetchedRecords, item: OffsetRange, *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    for records in read_arrays(fetched.data, fetched.batches, include_headers=include_headers):
        rows = source_rows(records, item.topic, item.partition)
        # A compressed batch at the edge may have records outside of the range.
        first, end = np.searchsorted(records.offsets, (fetched.start, fetched.end))
        if end - first < rows.num_rows:
            rows = rows.slice(first, end - first)
        yield rows
