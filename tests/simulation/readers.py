"""The readers of a run: some while the producers run, and at the end one for each partition and
isolation level.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import (
    EARLIEST,
    LATEST,
    FetchSettings,
    PartitionReader,
    list_offsets,
)
from aioprod.errors import KafkaError
from aioprod.types import TopicPartition
from tests.simulation.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Content,
    Reading,
    error_name,
)
from tests.simulation.run_context import RunContext, start_client
from tests.simulation.scenario import TOPIC, ReaderPlan

_CLIENT_SETTINGS: dict[str, Any] = {
    "request_timeout_ms": 1_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "socket_connection_setup_timeout_ms": 200,
    "socket_connection_setup_timeout_max_ms": 1_000,
}
_FINAL_LIMIT_MS = 20_000


async def read_along(run: RunContext, plan: ReaderPlan) -> None:
    """Read a partition from its beginning, until cancelled."""
    await asyncio.sleep(plan.after)
    reading = Reading(plan.name, TopicPartition(TOPIC, plan.partition), plan.isolation)
    run.history.readings.append(reading)
    client = ClusterClient(run.bootstrap_servers, client_id=plan.name, **_CLIENT_SETTINGS)
    try:
        await start_client(client)
        # Longer than the run: the reader must not give up.
        settings = FetchSettings(
            isolation_level=plan.isolation, retry_limit_ms=600_000, **plan.settings
        )
        await _read(run, reading, PartitionReader(client, reading.partition, 0, None, settings))
    except KafkaError as error:
        reading.failure = error_name(error)
    finally:
        await client.close()


async def _read(run: RunContext, reading: Reading, reader: PartitionReader) -> None:
    async for fetched in reader:
        for record in fetched.records():
            run.history.read(
                reading, record.offset, Content.of(record.key, record.value, record.headers)
            )


async def read_everything(run: RunContext, partitions: int) -> None:
    """Read all partitions completely at both isolation levels, for the checkers."""
    all_partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
    async with ClusterClient(
        run.bootstrap_servers, client_id="final reader", **_CLIENT_SETTINGS
    ) as client:
        starts = await list_offsets(client, dict.fromkeys(all_partitions, EARLIEST))
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            ends = await list_offsets(
                client, dict.fromkeys(all_partitions, LATEST), isolation_level=isolation
            )
            settings = FetchSettings(isolation_level=isolation, retry_limit_ms=_FINAL_LIMIT_MS)
            for partition in all_partitions:
                reading = Reading(f"final reader {isolation}", partition, isolation, final=True)
                run.history.readings.append(reading)
                reader = PartitionReader(
                    client, partition, starts[partition], ends[partition], settings
                )
                try:
                    await _read(run, reading, reader)
                except KafkaError as error:
                    reading.failure = error_name(error)
