"""The broker's maximum throughput on one connection: encoded requests, five in flight."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BufferedIOBase
from typing import ClassVar

from aioprod.cluster.client import ClusterClient
from aioprod.codecs import Codec
from aioprod.protocol.framing import decode_response
from aioprod.protocol.messages.produce import ProduceRequest
from aioprod.protocol.produce_encoder import Topic, encode_produce_request
from aioprod.protocol.record_writer import RecordBatchWriter
from benchmarks.adapters.adapter import DeliveryFailedError, Feature
from benchmarks.adapters.settings import Load, Settings

PRODUCE_VERSION = 9  # names topics, and all brokers support it
_REQUEST_TIMEOUT_MS = 30_000
_SOCKET_TIMEOUT_S = 60
_IN_FLIGHT = 5
_MAX_REQUEST_BYTES = 1_048_576

Receive = Callable[[BufferedIOBase], object]


class LineRate:
    """Sends full batches, one for each partition in a request. Without idempotence, as the same
    bytes are sent repeatedly.
    """

    name: ClassVar[str] = "line rate"
    lacks: ClassVar[frozenset[Feature]] = frozenset({"one record", "many tasks"})

    def describe(self) -> str:
        return "encoded requests on a socket"

    async def start(self, settings: Settings) -> None:
        self._settings = settings
        self._client = ClusterClient(settings.bootstrap_servers)
        await self._client.start()
        self._requests: Requests | None = None
        self._socket: socket.socket | None = None
        self._answers: list[bytes] = []

    async def stop(self) -> None:
        """Disconnect and check the responses, as this is not measured.

        Raises:
            DeliveryFailedError: if a response has an error.
        """
        if self._socket is not None:
            self._socket.close()
        await self._client.close()
        for response in self._answers:
            check_response(response)

    async def send_all(self, load: Load) -> None:
        """Send the records. The first call, for warm-up, encodes the requests."""
        if self._requests is None or not self._requests.match(load):
            snapshot = await self._client.refresh_topics([load.topic])
            partitions = snapshot.topics[load.topic].partitions
            leader, *others = {partition.leader for partition in partitions}
            if others:
                raise NotImplementedError(
                    "the line rate uses one connection, but the topic's leaders are on "
                    "several brokers"
                )
            self._requests = Requests(load, len(partitions), self._settings)
            if self._socket is None:
                self._socket = socket.create_connection(
                    (snapshot.nodes[leader].host, snapshot.nodes[leader].port), _SOCKET_TIMEOUT_S
                )
        assert self._socket is not None
        exchange(self._socket, self._requests.of(load.records), partial(collect, self._answers))

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None) -> None:
        raise NotImplementedError


class Requests:
    """Encoded requests for a load."""

    def __init__(self, load: Load, partitions: int, settings: Settings) -> None:
        self._load = load
        self._settings = settings
        self._codec = Codec[settings.compression_type.upper()]
        self._batch_records = self._records_per_batch()
        together = max(1, _MAX_REQUEST_BYTES // settings.batch_size - 1)
        groups = [
            range(first, min(first + together, partitions))
            for first in range(0, partitions, together)
        ]
        self._full = [
            (group, self._encode(dict.fromkeys(group, self._batch_records))) for group in groups
        ]

    def match(self, load: Load) -> bool:
        """Return whether these requests are for such a load, with any number of records."""
        own = self._load
        return (own.topic, own.value_size, own.keys, own.headers) == (
            load.topic,
            load.value_size,
            load.keys,
            load.headers,
        )

    def of(self, records: int) -> Iterator[bytes]:
        """Return requests with ``records`` records in total."""
        while True:
            for group, full in self._full:
                if records < len(group) * self._batch_records:
                    if records:
                        yield self._encode(self._distribute(group, records))
                    return
                records -= len(group) * self._batch_records
                yield full

    def _distribute(self, group: Sequence[int], records: int) -> dict[int, int]:
        counts = {}
        for partition in group:
            counts[partition] = min(records, self._batch_records)
            records -= counts[partition]
        return {partition: count for partition, count in counts.items() if count}

    def _records_per_batch(self) -> int:
        """Return how many compressed records fit into ``batch_size``."""
        some = max(1, self._settings.batch_size // (self._load.value_size + 10))
        return max(1, int(some * self._settings.batch_size / len(self._batch(some))))

    def _batch(self, count: int) -> bytes:
        writer = RecordBatchWriter(int(time.time() * 1000))
        headers = self._load.each_headers()
        for key, value in replace(self._load, records=count).keyed_values():
            writer.append(writer.base_timestamp, key, value, headers)
        return writer.build(codec=self._codec)

    def _encode(self, counts: dict[int, int]) -> bytes:
        acks = -1 if self._settings.acks == "all" else int(self._settings.acks)
        batches = [(partition, self._batch(count)) for partition, count in counts.items()]
        topics: list[Topic] = [(self._load.topic, batches)]
        return b"".join(
            encode_produce_request(
                PRODUCE_VERSION, 0, "line-rate", None, acks, _REQUEST_TIMEOUT_MS, topics
            )
        )


def exchange(connection: socket.socket, requests: Iterator[bytes], receive: Receive) -> None:
    """Send all requests, with five in flight. ``receive`` is called for each response."""
    with connection.makefile("rb") as stream:
        in_flight = 0
        for request in requests:
            if in_flight == _IN_FLIGHT:
                receive(stream)
                in_flight -= 1
            connection.sendall(request)
            in_flight += 1
        for _ in range(in_flight):
            receive(stream)


def collect(responses: list[bytes], stream: BufferedIOBase) -> None:
    """Add a response, without its size."""
    responses.append(stream.read(int.from_bytes(stream.read(4), "big")))


def check_response(payload: bytes) -> None:
    """Raise DeliveryFailedError if a Produce response has an error."""
    _, response = decode_response(ProduceRequest, PRODUCE_VERSION, payload)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise DeliveryFailedError(
                    f"{topic.name}, partition {partition.index}: error code {partition.error_code}"
                )
