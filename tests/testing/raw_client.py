"""A simple client for tests of the broker: one message out, one message in. aiokafka builds the
batches, so that they don't come from the code under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aioprod.protocol.framing import decode_response, encode_request
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioprod.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

LIMIT_SECONDS = 10.0
CLIENT_ID = "raw"

ResponseT = TypeVar("ResponseT", bound=Message)


class RawClient:
    """A connection to ``address`` ("host:port")."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._next_id = 0
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass

    async def call(self, request: Request[ResponseT], version: int) -> ResponseT:
        """Send a request and return the response."""
        correlation_id = self.send(request, version)
        answered, response = await self.receive(type(request), version)
        assert answered == correlation_id
        return response

    def send(self, request: Request[Any], version: int) -> int:
        """Send a request and return its correlation id."""
        self._next_id += 1
        self.writer.write(encode_request(request, version, self._next_id, CLIENT_ID))
        return self._next_id

    async def receive(
        self, request_type: type[Request[ResponseT]], version: int
    ) -> tuple[int, ResponseT]:
        """Receive the next response."""
        return decode_response(request_type, version, await self.receive_frame())

    async def receive_frame(self) -> bytes:
        """Receive the next response without decoding it. Raise IncompleteReadError if the
        connection was closed.
        """
        async with asyncio.timeout(LIMIT_SECONDS):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Wait for the broker to close the connection. Return False if it sends something
        instead.
        """
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def produce(
        self,
        topic: str,
        batch: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> PartitionProduceResponse:
        """Produce one batch to one partition and return that partition's response."""
        response = await self.call(
            produce_request(topic, batch, partition=partition, acks=acks), version
        )
        return response.responses[0].partition_responses[0]


def make_batch(
    values: Sequence[bytes],
    *,
    timestamps: Sequence[int] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    codec: int = 0,
) -> bytes:
    """Build a record batch with aiokafka's code; ``producer`` is id, epoch and base sequence."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        2, codec, transactional, producer_id, epoch, sequence, 1 << 30
    )
    for index, value in enumerate(values):
        builder.append(index, timestamps[index] if timestamps else 1_000 + index, None, value, [])
    return bytes(cast("bytearray", builder.build()))


def produce_request(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """Make a request with one batch."""
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetch_request(
    topic: str,
    *offsets: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    """Make a request for partitions 0, 1, ... from these offsets on."""
    partitions = [
        FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
