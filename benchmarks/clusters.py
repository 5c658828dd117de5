"""The cost of a record with one real broker, with the same broker through TLS, and with three.

All three get the same records: 100 and 1,000 bytes, 6 partitions without replicas, 10,000 keys. The
clusters run at the same time, so that rounds alternate between them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from benchmarks.adapters import Load, Settings
from benchmarks.loads import CountedTopic
from benchmarks.measures import Numbers
from benchmarks.producer import CPU, KEYED_PARTITIONS, KEYS, RATE
from benchmarks.real_broker import JAVA_OPTIONS, bootstrap, topic
from benchmarks.results import Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import growth_table
from benchmarks.workers import Worker, describe, worker

TITLE = "One broker, TLS, and three brokers"
CLIENTS = ("aioprod", "confluent-kafka")
ONE, TLS, THREE = "1 broker", "1 broker, TLS", "3 brokers"
SIZES = (100, 1_000)
RECORDS = 300_000
MAX_BYTES = 100_000_000
WARM_UP_DIVISOR = 5
LIMITS = {TLS: 1.3, THREE: 1.2}
_HEAP_MB = 400
_LISTENER = "TLS"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to send to.

    Attributes:
        near: its addresses without TLS, for what is not measured.
        servers: the addresses that clients connect to.
        ca_file: the authority of the broker's certificate, if clients use TLS.
    """

    name: str
    near: str
    servers: str
    ca_file: str = ""


def tls_listener(directory: Path) -> tuple[Listener, str]:
    """Return a listener with a new certificate, and the file of its authority."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    ca_file = directory / "authority.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    listener = Listener(
        security_protocol="SSL",
        name=_LISTENER,
        certificate_chain="".join(blob.bytes().decode() for blob in issued.cert_chain_pems),
        private_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
    return listener, str(ca_file)


@contextmanager
def clusters(wanted: Sequence[str]) -> Iterator[list[Cluster]]:
    """Run one broker, and the wanted clusters, until the block ends."""
    with TemporaryDirectory(prefix="aioprod-benchmark-") as directory:
        listener, ca_file = tls_listener(Path(directory))
        start = partial(RealCluster, heap_mb=_HEAP_MB, java_options=JAVA_OPTIONS)
        with ExitStack() as stack:
            one = stack.enter_context(start(1, listeners=lambda _: [listener]))
            near = stack.enter_context(bootstrap(one.bootstrap_servers))
            found = [Cluster(ONE, near, near)]
            if TLS in wanted:
                servers = one.bootstrap_servers_of(_LISTENER)
                found.append(Cluster(TLS, near, servers, ca_file))
            if THREE in wanted:
                servers = stack.enter_context(start(3)).bootstrap_servers
                found.append(Cluster(THREE, servers, servers))
            yield found


def case_of(value_size: int, cluster: str) -> str:
    """Return the name of a case."""
    return f"{value_size:,} B, {cluster}"


async def send(opened: Worker, cluster: Cluster, value_size: int, records: int) -> Numbers:
    """Run the measure ``throughput`` on a new topic.

    Raises:
        RecordsMissingError: if the topic does not have the acknowledged records.
    """
    load = Load("", min(records, MAX_BYTES // value_size), value_size, KEYS)
    with topic(cluster.near, KEYED_PARTITIONS) as name:
        return await CountedTopic(name, KEYED_PARTITIONS, cluster.near).measure(
            opened,
            "throughput",
            Settings(cluster.servers, ca_file=cluster.ca_file),
            load,
            warm_up_records=max(load.records // WARM_UP_DIVISOR, 1),
        )


async def measure(chosen: argparse.Namespace, found: Sequence[Cluster]) -> Results:
    """Measure each size, cluster and client."""
    results = Results(TITLE, (CPU, RATE), clients={})
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client)) for client in chosen.clients
        }
        for client, opened in workers.items():
            await describe(results, client, opened)
        measurements = [
            Measurement(
                case_of(size, cluster.name),
                client,
                partial(send, opened, cluster, size, chosen.records),
            )
            for size in SIZES
            for client, opened in workers.items()
            for cluster in found
        ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, embedded=True)
    parser.add_argument(
        "--records", type=int, default=RECORDS, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--clusters",
        nargs="+",
        choices=list(LIMITS),
        default=list(LIMITS),
        help="compared with one broker (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    with clusters(chosen.clusters) as found:
        results = asyncio.run(measure(chosen, found))
    report(results, chosen)
    for name in chosen.clusters:
        baselines = {case_of(size, name): case_of(size, ONE) for size in SIZES}
        print("\n" + growth_table(results, CPU, baselines, LIMITS[name]))


if __name__ == "__main__":
    main()
