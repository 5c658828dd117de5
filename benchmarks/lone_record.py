"""The CPU time of a record that is awaited alone, without socket and broker.

The transport of the connection is replaced by one that answers each request in the next turn of the
event loop with the same bytes. So the least of many rounds repeats within a few percent also on a
busy machine, unless it is overloaded. The raw round trip is the same on an asyncio
stream; what a record takes beyond it is the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from aioprod import Producer
from aioprod.protocol.framing import encode_response
from aioprod.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioprod.testing import EmbeddedCluster
from benchmarks import builds
from benchmarks.timing import frozen_heap, percentile

TOPIC = "lone"
VALUE = b"v" * 100
MICROSECONDS = 1e6
_SIZE_BYTES, _ID_BYTES = 4, 4
_ID_OF_REQUEST = slice(8, 12)  # after size, API key and version


class ReplayTransport(asyncio.Transport):
    """Replies to each request with the same frame, with the request's correlation id.

    Args:
        protocol: gets the replies.
        reply: the response, size included.
    """

    def __init__(self, protocol: asyncio.BaseProtocol, reply: bytes) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None
        self._plain = cast("asyncio.Protocol", protocol)
        self._start, self._rest = reply[:_SIZE_BYTES], reply[_SIZE_BYTES + _ID_BYTES :]
        self.requests: list[bytes] = []

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Join the buffers, as transports for sockets do up to Python 3.11."""
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        """Reply in the next turn of the event loop."""
        self.requests[:] = (data,)
        self._loop.call_soon(self._reply, self._start + data[_ID_OF_REQUEST] + self._rest)

    def _reply(self, data: bytes) -> None:
        if self._buffered is None:
            self._plain.data_received(data)
            return
        memory = cast("memoryview", self._buffered.get_buffer(-1))
        memory[: len(data)] = data
        self._buffered.buffer_updated(len(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def reply_of(producer: Producer, version: int) -> bytes:
    """Return the response to a record for the only partition."""
    info = producer._metadata.snapshot.topics[TOPIC]
    partition = PartitionProduceResponse(0, 0, 1_000_000, -1, 0)
    by_id = version > 12
    topic = (
        TopicProduceResponse(topic_id=info.topic_id, partition_responses=[partition])
        if by_id
        else TopicProduceResponse(TOPIC, partition_responses=[partition])
    )
    return encode_response(ProduceResponse([topic]), version, 0)


async def spent_us(call: Callable[[], Awaitable[object]], records: int) -> float:
    """Return the CPU microseconds of one call."""
    clock = time.thread_time
    started = clock()
    for _ in range(records):
        await call()
    return (clock() - started) / records * MICROSECONDS


async def measure(records: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the CPU microseconds of a record and of a raw round trip in each round, ascending."""
    async with EmbeddedCluster() as broker:
        broker.create_topic(TOPIC, 1)
        async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            connection = producer._brokers.live(producer._accumulator.topics[TOPIC].leaders[0])
            assert connection is not None
            stream = connection._stream
            reply = reply_of(producer, connection.pick_version(ProduceRequest))
            real, replayed = stream.transport, ReplayTransport(stream, reply)
            stream.transport = replayed

            reader = asyncio.StreamReader()
            raw = ReplayTransport(asyncio.StreamReaderProtocol(reader), reply)

            async def record() -> None:
                await producer.send_and_wait(TOPIC, VALUE)

            async def raw_round_trip() -> None:
                raw.write(request)
                size = int.from_bytes(await reader.readexactly(_SIZE_BYTES), "big")
                await reader.readexactly(size)

            try:
                await spent_us(record, records)
                request = replayed.requests[0]
                await spent_us(raw_round_trip, records)
                of_record, of_raw = [], []
                with frozen_heap():
                    for _ in range(rounds):
                        of_record.append(await spent_us(record, records))
                        of_raw.append(await spent_us(raw_round_trip, records))
            finally:
                stream.transport = real
    return sorted(of_record), sorted(of_raw)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300, help="records per round")
    parser.add_argument("--repetitions", type=int, default=60, help="rounds")
    chosen = parser.parse_args(arguments)
    of_record, of_raw = asyncio.run(measure(chosen.records, chosen.repetitions))
    print(f"{builds.interpreter()}, {builds.aioprod()}")
    print(f"{'CPU us':16}{'least':>10}{'lower quartile':>16}{'median':>10}")
    rows = {
        "record": of_record,
        "raw round trip": of_raw,
    }
    for name, numbers in rows.items():
        least, quartile, median = (percentile(numbers, at) for at in (0, 25, 50))
        print(f"{name:16}{least:10.1f}{quartile:16.1f}{median:10.1f}")
    print(
        f"{'client':16}"
        + f"{of_record[0] - of_raw[0]:10.1f}"
        + "".join(
            f"{percentile(of_record, at) - percentile(of_raw, at):{width}.1f}"
            for at, width in ((25, 16), (50, 10))
        )
    )


if __name__ == "__main__":
    main()
