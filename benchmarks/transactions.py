"""Transactions of one record and of 1,000 records, on one broker and on three.

Each client begins, sends and commits one transaction after the other. Transactions of 1,000 records
are also compared with the same records sent without transactions. The broker is real; on three,
topics and the transaction log have three replicas.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from itertools import count

from aioprod.testing.real_cluster import RealCluster
from benchmarks.adapters import Load, Settings
from benchmarks.harness import MICROSECONDS
from benchmarks.measures import Numbers
from benchmarks.real_broker import JAVA_OPTIONS, bootstrap, check_committed_records, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.transactors import TRANSACTORS
from benchmarks.workers import Worker, available, describe, worker

TITLE = "Transactions"
PLAIN = "aioprod, no transactions"
BASELINE = "confluent-kafka"
BROKERS = (1, 3)
SIZES = (1, 1_000)
TRANSACTIONS = {1: 300, 1_000: 100}
WARM_UP_DIVISOR = 10
_HEAP_MB = 400
_LIMIT_S = 300.0
_ids = count(1)

RATE = Metric(
    "transactions/s", lambda numbers: float(numbers["transactions"] / numbers["wall_s"]), 0
)
RECORDS = Metric(
    "records/s", lambda numbers: float(numbers["records"] / numbers["wall_s"]), 0, compared=False
)
CPU = Metric(
    "CPU us per transaction",
    lambda numbers: float(numbers["cpu_s"] / numbers["transactions"] * MICROSECONDS),
    0,
)


def case_of(brokers: int, records_each: int) -> str:
    """Return the name of a case."""
    many = f"{records_each:,} record{'s' * (records_each > 1)}"
    return f"{brokers} broker{'s' * (brokers > 1)}, {many} each"


def targets(brokers: Sequence[int]) -> list[Target]:
    """Return the targets for these numbers of brokers."""
    few, many = SIZES
    found = []
    for number in brokers:
        found += [
            Target(case_of(number, few), "aioprod", RATE, BASELINE, "at least", 5.0),
            Target(case_of(number, many), "aioprod", RATE, PLAIN, "at least", 0.9),
        ]
    return found


async def transact(worker: Worker, servers: str, records_each: int, transactions: int) -> Numbers:
    """Run the measure ``transactions`` on a new topic.

    Raises:
        RecordsMissingError: if the topic does not have the committed records.
    """
    with topic(servers, replicas=_replicas(servers)) as name:
        numbers = await worker.call(
            "transactions",
            Settings(servers),
            {
                "load": asdict(Load(name, records_each * transactions)),
                "records_each": records_each,
                "transactional_id": f"benchmark-{os.getpid()}-{next(_ids)}",
                "warm_up_transactions": max(1, transactions // WARM_UP_DIVISOR),
            },
            timeout_s=_LIMIT_S,
        )
        check_committed_records(servers, name, 1, numbers["sent"])
    return numbers


async def send(worker: Worker, servers: str, records_each: int, transactions: int) -> Numbers:
    """Run the measure ``throughput`` with the same records, for comparison."""
    with topic(servers, replicas=_replicas(servers)) as name:
        load = Load(name, records_each * transactions)
        numbers = await worker.call(
            "throughput",
            Settings(servers),
            {"load": asdict(load), "warm_up_records": max(1, load.records // WARM_UP_DIVISOR)},
        )
        check_committed_records(servers, name, 1, numbers["sent"])
    return {**numbers, "transactions": transactions}


def _replicas(servers: str) -> int:
    return len(servers.split(","))


async def measure(chosen: argparse.Namespace, results: Results, servers: str, brokers: int) -> None:
    """Measure each client with each number of records in a transaction."""
    clients = available(chosen.clients, results)
    async with AsyncExitStack() as stack:
        workers = {client: await stack.enter_async_context(worker(client)) for client in clients}
        for client, opened in workers.items():
            await describe(results, client, opened)
        measurements = []
        for each in chosen.records_each:
            case, transactions = (
                case_of(brokers, each),
                chosen.transactions or TRANSACTIONS.get(each, 100),
            )
            for client, opened in workers.items():
                run = partial(transact, opened, servers, each, transactions)
                measurements.append(Measurement(case, client, run))
            if each > 1 and "aioprod" in workers:
                run = partial(send, workers["aioprod"], servers, each, transactions)
                measurements.append(Measurement(case, PLAIN, run))
        await run_rounds(results, measurements, chosen.repetitions)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=list(TRANSACTORS))
    parser.add_argument(
        "--brokers", type=int, nargs="+", default=BROKERS, help="default: %(default)s"
    )
    parser.add_argument(
        "--records-each", type=int, nargs="+", default=SIZES, help="default: %(default)s"
    )
    parser.add_argument(
        "--transactions", type=int, help=f"of a round, by records each (default: {TRANSACTIONS})"
    )
    chosen = parser.parse_args(arguments)
    results = Results(TITLE, (RATE, RECORDS, CPU), baseline=BASELINE, clients={})
    if chosen.bootstrap:
        chosen.brokers = [_replicas(chosen.bootstrap)]
        with bootstrap(chosen.bootstrap) as servers:
            asyncio.run(measure(chosen, results, servers, *chosen.brokers))
    else:
        for number in chosen.brokers:
            with (
                RealCluster(nodes=number, heap_mb=_HEAP_MB, java_options=JAVA_OPTIONS) as cluster,
                bootstrap(cluster.bootstrap_servers) as servers,
            ):
                asyncio.run(measure(chosen, results, servers, number))
    report(results, chosen)
    print("\n" + target_table(results, targets(chosen.brokers)))


if __name__ == "__main__":
    main()
