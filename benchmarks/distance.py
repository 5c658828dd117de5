"""Throughput of producers and consumers with default settings, by the distance of the broker.

A proxy on this machine delays all bytes; its column says by how much a response is later. All
clients have their own defaults, so they differ: librdkafka and aiokafka are not idempotent, and
franz-go compresses with snappy. With ``--tuned``, producers are also measured with the settings of
the other benchmarks, batches of 1 MB and a buffer of 128 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial

from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from benchmarks.adapters import Load, Settings, started
from benchmarks.adapters.confluent import Confluent
from benchmarks.delay_proxy import delay_proxy
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, available, describe, worker

SENDING = "Sending to a broker that is far away, with default settings"
READING = "Reading from a broker that is far away, with default settings"
CLIENTS = ("aioprod", "confluent-kafka", "franz-go", "java", "aiokafka")
BASELINE = "confluent-kafka"
ROUND_TRIPS_MS = (0.1, 5.0, 25.0, 100.0, 250.0)
PARTITIONS = (1, 12)
DIRECTIONS = ("sending", "reading")
VALUE_SIZE = 100
# A slow client sends fewer records, so that a measurement takes seconds.
_DIVISORS = {"aiokafka": 20}
_READERS = {
    "aioprod": "aioprod getmany",
    "confluent-kafka": "confluent-kafka consume",
    "aiokafka": "aiokafka getmany",
    "franz-go": "franz-go",
    "java": "java",
}
_TUNED_BATCH, _TUNED_BUFFER = 1_000_000, 128 << 20
_LIMIT_S = 300.0
_LISTENER = "FAR"
_HEAP_MB = 512

RATE = Metric(
    "MB/s", lambda numbers: numbers["records"] * VALUE_SIZE / numbers["wall_s"] / 1e6, digits=1
)


def case_of(round_trip_ms: float, partitions: int, tuned: bool = False) -> str:
    """Return the name of a case."""
    name = f"{round_trip_ms:g} ms, {partitions} partition{'s' * (partitions > 1)}"
    return name + ", tuned" * tuned


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the broker.

    Attributes:
        near: its address.
        target: the address of its listener that sends clients to the proxy.
        port: port of the proxy.
    """

    near: str
    target: str
    port: int


async def throughput(
    worker: Worker, way: Way, round_trip_ms: float, partitions: int, records: int, tuned: bool
) -> Numbers:
    """Run the measure ``throughput`` through a proxy."""
    with topic(way.near, partitions) as name, delay_proxy(way.port, way.target, round_trip_ms):
        # Waiting for deliveries in between would leave the connection idle.
        load = Load(name, records, VALUE_SIZE, group=records)
        settings = Settings(
            f"127.0.0.1:{way.port}",
            batch_size=_TUNED_BATCH,
            buffer_memory=_TUNED_BUFFER,
            own_defaults=not tuned,
        )
        numbers = await worker.call(
            "throughput",
            settings,
            {"load": asdict(load), "warm_up_records": 10 * partitions},
            timeout_s=_LIMIT_S,
        )
        check_record_count(way.near, name, partitions, numbers["sent"])
    return numbers


async def reading(
    worker: Worker, way: Way, round_trip_ms: float, client: str, load: Load, partitions: int
) -> Numbers:
    """Run the measure ``reading`` through a proxy."""
    with delay_proxy(way.port, way.target, round_trip_ms):
        return await worker.call(
            "reading",
            Settings(f"127.0.0.1:{way.port}"),
            {
                "reader": _READERS[client],
                "topic": load.topic,
                "partitions": partitions,
                "records": load.records,
                "value_bytes": load.records * VALUE_SIZE,
            },
            timeout_s=_LIMIT_S,
        )


@asynccontextmanager
async def filled_topic(servers: str, partitions: int, records: int) -> AsyncIterator[Load]:
    """Create a topic that has the records.

    Raises:
        RecordsMissingError: if the broker does not have all of them.
    """
    with topic(servers, partitions) as name:
        load = Load(name, records, VALUE_SIZE)
        async with started(Confluent(), Settings(servers)) as producer:
            await producer.send_all(load)
        check_record_count(servers, name, partitions, records)
        yield load


async def measure(chosen: argparse.Namespace, way: Way) -> list[Results]:
    """Measure each distance, number of partitions and client. Clients of other ecosystems that are
    not installed are left out.
    """
    sent, read = (Results(title, (RATE,), BASELINE, clients={}) for title in (SENDING, READING))
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client))
            for client in available(chosen.clients, sent)
        }
        read.left_out = sent.left_out
        for client, opened in workers.items():
            for results in (sent, read):
                await describe(results, client, opened)
        if "sending" in chosen.directions:
            await _measure_sending(chosen, way, workers, sent)
        if "reading" in chosen.directions:
            await _measure_reading(chosen, way, workers, read)
    return [results for results in (sent, read) if results.rounds]


async def _measure_sending(
    chosen: argparse.Namespace, way: Way, workers: Mapping[str, Worker], results: Results
) -> None:
    measurements = [
        Measurement(
            case_of(far, partitions, tuned),
            client,
            partial(
                throughput,
                opened,
                way,
                far,
                partitions,
                chosen.records // _DIVISORS.get(client, 1),
                tuned,
            ),
        )
        for far in chosen.round_trips
        for partitions in chosen.partitions
        for tuned in ([False, True] if chosen.tuned else [False])
        for client, opened in workers.items()
    ]
    await run_rounds(results, measurements, chosen.repetitions, warm_up=False)


async def _measure_reading(
    chosen: argparse.Namespace, way: Way, workers: Mapping[str, Worker], results: Results
) -> None:
    for partitions in chosen.partitions:
        async with filled_topic(way.near, partitions, chosen.records) as load:
            measurements = [
                Measurement(
                    case_of(far, partitions),
                    client,
                    partial(reading, opened, way, far, client, load, partitions),
                )
                for far in chosen.round_trips
                for client, opened in workers.items()
            ]
            await run_rounds(results, measurements, chosen.repetitions, warm_up=False)


def best(results: Results, case: str) -> str:
    """Return the other client with the highest rate."""
    others = [client for client in results.rounds[case] if client != "aioprod"]
    return max(others, key=lambda client: statistics.median(results.values(RATE, case, client)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=3, embedded=True)
    parser.add_argument(
        "--records", type=int, default=400_000, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--round-trips",
        type=float,
        nargs="+",
        default=ROUND_TRIPS_MS,
        metavar="MS",
        help="delays of responses in milliseconds (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=PARTITIONS, help="default: %(default)s"
    )
    parser.add_argument(
        "--directions",
        nargs="+",
        choices=DIRECTIONS,
        default=DIRECTIONS,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--tuned", action="store_true", help="also with large batches and buffers (sending)"
    )
    chosen = parser.parse_args(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    far = Listener(name=_LISTENER, advertised_port=port)
    with RealCluster(nodes=1, heap_mb=_HEAP_MB, listeners=lambda _: [far]) as cluster:
        way = Way(cluster.bootstrap_servers, cluster.address(1, _LISTENER), port)
        with bootstrap(way.near):
            found = asyncio.run(measure(chosen, way))
    for number, results in enumerate(found):
        report(results, chosen, number)
        targets = [
            Target(case, "aioprod", RATE, best(results, case), "at least", 0.8)
            for case, clients in results.rounds.items()
            if len(clients) > 1
        ]
        print("\n" + target_table(results, targets))


if __name__ == "__main__":
    main()
