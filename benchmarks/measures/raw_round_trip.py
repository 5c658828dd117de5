"""The minimum latency in asyncio: an encoded request on a stream; the response is not decoded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.init_producer_id import InitProducerIdRequest
from aioprod.protocol.produce_encoder import Topic, encode_produce_request
from aioprod.protocol.record_writer import RecordBatchWriter
from benchmarks.adapters import Adapter, Load, Settings
from benchmarks.adapters.line_rate import PRODUCE_VERSION, check_response
from benchmarks.measures import Numbers
from benchmarks.timing import frozen_heap, in_milliseconds

_TIMEOUT_MS = 30_000


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: as for ``one_at_a_time``. The topic has one partition; the adapter is not used."""
    load, warm_up_records = Load(**arguments["load"]), arguments["warm_up_records"]
    host, port, requests = await _prepare(
        settings, replace(load, records=warm_up_records + load.records)
    )
    reader, writer = await asyncio.open_connection(host, port)
    try:
        with frozen_heap():
            durations, responses = await _exchange(reader, writer, requests)
    finally:
        writer.close()
    for response in responses:
        check_response(response)
    return in_milliseconds(durations[warm_up_records:])


async def _prepare(settings: Settings, load: Load) -> tuple[str, int, list[bytes]]:
    """Return the leader's host and port, and an idempotent request for each record."""
    async with ClusterClient(settings.bootstrap_servers) as client:
        snapshot = await client.refresh_topics([load.topic])
        topic = snapshot.topics[load.topic]
        leader = snapshot.nodes[topic.partitions[0].leader]
        identity = await client.request(InitProducerIdRequest(None, _TIMEOUT_MS))
    requests: list[bytes] = []
    for number, (key, value) in enumerate(load.keyed_values()):
        writer = RecordBatchWriter(int(time.time() * 1000))
        writer.append(writer.base_timestamp, key, value)
        batch = writer.build(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=number,
        )
        topics: list[Topic] = [(load.topic, [(0, batch)])]
        requests.append(
            b"".join(
                encode_produce_request(
                    PRODUCE_VERSION, number, "raw", None, -1, _TIMEOUT_MS, topics
                )
            )
        )
    return leader.host, leader.port, requests


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: Sequence[bytes]
) -> tuple[list[float], list[bytes]]:
    clock = time.perf_counter
    durations: list[float] = []
    responses: list[bytes] = []
    for request in requests:
        started_at = clock()
        writer.write(request)
        size = int.from_bytes(await reader.readexactly(4), "big")
        responses.append(await reader.readexactly(size))
        durations.append(clock() - started_at)
    return durations, responses
