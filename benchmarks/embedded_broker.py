"""The cost of the embedded broker in tests: its start, a small test, and a test with many records.

Broker and client share a process and an event loop, as in tests.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import PartitionReader
from aioprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.testing import EmbeddedCluster
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer
from aioprod.types import TopicPartition
from benchmarks.harness import Cost, loop_factory, measured

VALUE = b"v" * 100
TOPIC = "t"
BATCH_RECORDS = 500
IN_FLIGHT = 5
MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        run: runs it once.
        unit: ``ms`` or ``records/s``.
        target: the target for the elapsed time, in that unit; None for no target.
    """

    run: Callable[[], Awaitable[Cost]]
    unit: str
    target: float | None = None

    def numbers(self, cost: Cost) -> tuple[float, float]:
        """Return the cost in the row's unit: by elapsed time and by CPU time."""
        if self.unit == "ms":
            return (
                cost.wall_s / cost.records * MILLISECONDS,
                cost.cpu_s / cost.records * MILLISECONDS,
            )
        return cost.records / cost.wall_s, cost.records / cost.cpu_s


def rows(records: int) -> dict[str, Row]:
    """Return all rows."""
    return {
        "start of one node": Row(lambda: start(1), "ms", 20),
        "start of three nodes": Row(lambda: start(3), "ms"),
        "start and stop of one node": Row(start_and_stop, "ms"),
        "a test: start, topic, one record sent and read, stop": Row(small_test, "ms", 50),
        f"Produce, {records:,} records in encoded batches": Row(
            lambda: produce(records), "records/s", 300_000
        ),
        f"Fetch, {records:,} records, not decoded": Row(
            lambda: fetch(records), "records/s", 300_000
        ),
        f"a test of {records:,} records: sent and read by our clients": Row(
            lambda: large_test(records), "records/s"
        ),
    }


async def start(nodes: int) -> Cost:
    """Start a cluster."""
    cluster = EmbeddedCluster(nodes=nodes)
    cost = await measured(1, cluster.start)
    await cluster.stop()
    return cost


async def start_and_stop() -> Cost:
    """Start and stop a cluster."""

    async def once() -> None:
        async with EmbeddedCluster():
            pass

    return await measured(1, once)


async def small_test() -> Cost:
    """Run a small test with its fixtures."""

    async def once() -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic(TOPIC)
            async with (
                Producer(cluster.bootstrap_servers) as producer,
                TopicConsumer(cluster.bootstrap_servers, TOPIC) as consumer,
            ):
                await producer.send_and_wait(TOPIC, VALUE)
                assert (await consumer.getone()).value == VALUE

    return await measured(1, once)


async def produce(records: int) -> Cost:
    """Send encoded batches with a few requests in flight."""
    async with AsyncExitStack() as stack:
        cluster, client = await _cluster_and_client(stack)
        cost = await measured(records, lambda: _produce(client, records))
        assert cluster.high_watermark(TOPIC, 0) >= records
    return cost


async def fetch(records: int) -> Cost:
    """Fetch all records of a partition without decoding them."""
    async with AsyncExitStack() as stack:
        cluster, client = await _cluster_and_client(stack)
        await _produce(client, records)
        end = cluster.high_watermark(TOPIC, 0)

        async def read() -> None:
            seen = 0
            async for fetched in PartitionReader(client, TopicPartition(TOPIC, 0), 0, end):
                seen += sum(header.record_count for header, _ in fetched.batches)
            assert seen == end

        return await measured(end, read)


async def large_test(records: int) -> Cost:
    """Send records with our producer and read them with the consumer of the pytest plugin."""
    async with AsyncExitStack() as stack:
        cluster, _ = await _cluster_and_client(stack)
        producer = await stack.enter_async_context(Producer(cluster.bootstrap_servers))
        consumer = await stack.enter_async_context(
            TopicConsumer(cluster.bootstrap_servers, TOPIC, timeout_ms=60_000)
        )

        async def send_and_read() -> None:
            for _ in range(records):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            assert len(await consumer.getmany(records)) == records

        return await measured(records, send_and_read)


async def _cluster_and_client(stack: AsyncExitStack) -> tuple[EmbeddedCluster, ClusterClient]:
    cluster = await stack.enter_async_context(EmbeddedCluster())
    cluster.create_topic(TOPIC)
    client = await stack.enter_async_context(ClusterClient(cluster.bootstrap_servers))
    await client.refresh_topics([TOPIC])
    return cluster, client


async def _produce(client: ClusterClient, records: int) -> None:
    writer = RecordBatchWriter(int(time.time() * 1000))
    for _ in range(BATCH_RECORDS):
        writer.append(int(time.time() * 1000), None, VALUE)
    data = TopicProduceData(
        TOPIC,
        client.snapshot.topics[TOPIC].topic_id,
        [PartitionProduceData(0, bytes(writer.build()))],
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    for _ in range(-(-records // (BATCH_RECORDS * IN_FLIGHT))):
        for response in await asyncio.gather(
            *(client.request(request, 1) for _ in range(IN_FLIGHT))
        ):
            assert response.responses[0].partition_responses[0].error_code == 0


async def measure(
    chosen: Mapping[str, Row], repetitions: int
) -> dict[str, list[tuple[float, float]]]:
    """Run all rows in each round; the first round is for warm-up."""
    numbers: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for repetition in range(repetitions + 1):
        for name, row in chosen.items():
            wall, cpu = row.numbers(await row.run())
            print(
                f"  round {repetition}: {name}: {wall:,.1f} {row.unit}, by CPU {cpu:,.1f}",
                file=sys.stderr,
                flush=True,
            )
            if repetition:
                numbers[name].append((wall, cpu))
    return numbers


def table(chosen: Mapping[str, Row], numbers: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a Markdown table with medians and ranges."""
    lines = ["| what | elapsed | CPU time | target |", "|---|---|---|---|"]
    for name, row in chosen.items():
        wall, cpu = (_spread(row.unit, of) for of in zip(*numbers[name], strict=True))
        lines.append(
            f"| {name} | {wall} | {cpu} | "
            f"{'' if row.target is None else f'{row.target:,g} {row.unit}'} |"
        )
    return "\n".join(lines)


def _spread(unit: str, values: Sequence[float]) -> str:
    digits = 1 if unit == "ms" else 0
    return (
        f"{statistics.median(values):,.{digits}f} "
        f"({min(values):,.{digits}f}-{max(values):,.{digits}f}) {unit}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records",
        type=int,
        default=100_000,
        help="records of rows with many records (default: %(default)s)",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=5,
        help="rounds, after one for warm-up (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    measured_rows = rows(chosen.records)
    with asyncio.Runner(loop_factory=loop_factory(wanted=chosen.uvloop)) as runner:
        numbers = runner.run(measure(measured_rows, chosen.repetitions))
    print(table(measured_rows, numbers))


if __name__ == "__main__":
    main()
