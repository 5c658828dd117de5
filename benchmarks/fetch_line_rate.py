"""The broker's maximum throughput of Fetch on one connection: five encoded requests in flight."""

from __future__ import annotations

import socket
import time
from functools import partial
from io import BufferedIOBase
from typing import ClassVar

from aioprod.cluster.client import ClusterClient
from aioprod.protocol.framing import decode_response, encode_request
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioprod.protocol.record_reader import read_records
from benchmarks.adapters.line_rate import collect, exchange
from benchmarks.harness import Cost

VERSION = 11  # names topics, and all brokers support it
_PARTITION_BYTES = 1 << 20  # the default of all clients
_MAX_BYTES = 50 << 20
_WAIT_MS = 500
_SOCKET_TIMEOUT_S = 60


class FetchLineRate:
    """Requests data from known offsets. Receives all responses into the same memory, and decodes
    nothing.
    """

    name: ClassVar[str] = "line rate of Fetch"
    client: ClassVar[str] = "line rate"

    def __init__(self) -> None:
        self.cost: Cost | None = None

    async def open(self, servers: str) -> None:
        self._client = ClusterClient(servers)
        await self._client.start()

    def assign(self, topic: str, partitions: int) -> None:
        if partitions != 1:
            raise NotImplementedError("the line rate uses one connection and one partition")
        self._topic = topic

    async def read(self, records: int) -> int:
        """Read all once to find the offsets at which responses begin, then measure."""
        snapshot = await self._client.refresh_topics([self._topic])
        node = snapshot.nodes[snapshot.topics[self._topic].partitions[0].leader]
        with socket.create_connection((node.host, node.port), _SOCKET_TIMEOUT_S) as connection:
            requests, size, offset, largest = [], 0, 0, 0
            while offset < records:
                requests.append(self._request(offset))
                responses: list[bytes] = []
                exchange(connection, iter(requests[-1:]), partial(collect, responses))
                largest = max(largest, len(responses[0]))
                found = read_records(_data(responses[0]))
                size += sum(len(record.value or b"") for record in found)
                offset = found[-1].offset + 1
            memory = memoryview(bytearray(largest))
            wall, cpu = time.perf_counter(), time.process_time()
            exchange(connection, iter(requests), partial(_fill, memory))
            self.cost = Cost(records, time.process_time() - cpu, time.perf_counter() - wall)
        return size

    async def poll(self, polls: int) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        await self._client.close()

    def _request(self, offset: int) -> bytes:
        partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            topics=[FetchTopic(self._topic, partitions=[partition])],
        )
        return encode_request(request, VERSION, offset, "line-rate")


def _fill(memory: memoryview, stream: BufferedIOBase) -> None:
    """Read a response into memory.

    Raises:
        RuntimeError: if the connection ends before.
    """
    size = int.from_bytes(stream.read(4), "big")
    if stream.readinto(memory[:size]) != size:
        raise RuntimeError("the broker has closed the connection")


def _data(payload: bytes) -> bytes:
    """Return the batches of a response for one partition.

    Raises:
        RuntimeError: if it has an error.
    """
    _, response = decode_response(FetchRequest, VERSION, payload)
    (partition,) = response.responses[0].partitions
    if partition.error_code:
        raise RuntimeError(f"Fetch failed with error code {partition.error_code}")
    return bytes(partition.records or b"")
