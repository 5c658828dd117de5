"""Throughput of a producer with its default settings, by the distance of the broker.

A proxy on this machine delays all bytes; its column says by how much a response is later. All
clients have their own defaults, so they differ in guarantees: librdkafka and aiokafka are not
idempotent by default.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial

from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from benchmarks.adapters import Load, Settings
from benchmarks.delay_proxy import delay_proxy
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, worker

TITLE = "Sending to a broker that is far away, with default settings"
CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
ROUND_TRIPS_MS = (0.1, 5.0, 25.0, 100.0, 250.0)
PARTITIONS = (1, 12)
VALUE_SIZE = 100
# A slow client sends fewer records, so that a measurement takes seconds.
_DIVISORS = {"aiokafka": 20}
_LISTENER = "FAR"
_HEAP_MB = 512

RATE = Metric(
    "MB/s", lambda numbers: numbers["records"] * VALUE_SIZE / numbers["wall_s"] / 1e6, digits=1
)


def case_of(round_trip_ms: float, partitions: int) -> str:
    """Return the name of a case."""
    return f"{round_trip_ms:g} ms, {partitions} partition{'s' * (partitions > 1)}"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the broker.

    Attributes:
        near: its address.
        target: the address of its listener that sends clients to the proxy.
        port: of the proxy.
    """

    near: str
    target: str
    port: int


async def throughput(
    worker: Worker, way: Way, round_trip_ms: float, partitions: int, records: int
) -> Numbers:
    """Run the measure ``throughput`` through a proxy."""
    with topic(way.near, partitions) as name, delay_proxy(way.port, way.target, round_trip_ms):
        # Waiting for deliveries in between would leave the connection idle.
        load = Load(name, records, VALUE_SIZE, group=records)
        numbers = await worker.call(
            "throughput",
            Settings(f"127.0.0.1:{way.port}", own_defaults=True),
            {"load": asdict(load), "warm_up_records": 10 * partitions},
        )
        check_record_count(way.near, name, partitions, numbers["sent"])
    return numbers


async def measure(chosen: argparse.Namespace, way: Way) -> Results:
    """Measure each distance, number of partitions and client."""
    results = Results(TITLE, (RATE,), baseline="confluent-kafka")
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client)) for client in chosen.clients
        }
        measurements = [
            Measurement(
                case_of(far, partitions),
                client,
                partial(
                    throughput,
                    workers[client],
                    way,
                    far,
                    partitions,
                    chosen.records // _DIVISORS.get(client, 1),
                ),
            )
            for far in chosen.round_trips
            for partitions in chosen.partitions
            for client in chosen.clients
        ]
        await run_rounds(results, measurements, chosen.repetitions, warm_up=False)
    return results


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
    chosen = parser.parse_args(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    far = Listener(name=_LISTENER, advertised_port=port)
    with RealCluster(nodes=1, heap_mb=_HEAP_MB, listeners=lambda _: [far]) as cluster:
        way = Way(cluster.bootstrap_servers, cluster.address(1, _LISTENER), port)
        with bootstrap(way.near):
            results = asyncio.run(measure(chosen, way))
    report(results, chosen)
    targets = [
        Target(case, "aioprod", RATE, "confluent-kafka", "at least", 0.8) for case in results.rounds
    ]
    print("\n" + target_table(results, targets))


if __name__ == "__main__":
    main()
