"""A `Processor` compared with Confluent's parallel-consumer in KEY mode, on a real broker: handlers
that wait, many keys, several limits on concurrency.

Each runs in a process of its own, one at a time, and measures itself from the first handler to the
end of the last one: connecting and joining the group are not included. Ratios are those of a round;
the first round is for warm-up. ``--outputs``: handlers that return an output and do not wait, with
each guarantee, and a loop around aiokafka.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count

from confluent_kafka import Producer

from aioprod.testing.cache import SetupError
from benchmarks.adapters.foreign import Program
from benchmarks.adapters.installed import parallel_consumer
from benchmarks.harness import MICROSECONDS, Cost
from benchmarks.processing_outputs import CLIENTS
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import options, report

TITLE, OUTPUTS = "Handlers that wait", "Handlers that return an output"
AIOPROD, PARALLEL_CONSUMER = "aioprod", "parallel-consumer"
RATE = Metric("records/s", lambda numbers: float(numbers["records"] / numbers["wall_s"]), 0)
CPU = Metric(
    "CPU us per record",
    lambda numbers: float(numbers["cpu_s"] / numbers["records"] * MICROSECONDS),
)
_PARTITIONS = 6
_VALUE = b"." * 100
_SECONDS = 4.0
_MAX_RECORDS = 100_000
_groups = count(1)


def fill(servers: str, name: str, records: int, keys: int) -> None:
    """Write the records, with all keys in rotation."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 3})
    for number in range(records):
        while True:
            try:
                producer.produce(name, _VALUE, key=b"key-%d" % (number % keys))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(60)
    producer.close()
    check_record_count(servers, name, _PARTITIONS, records)


def record_count(concurrency: int, sleep_ms: int) -> int:
    """Return how many records take `_SECONDS` if only the handlers take time."""
    return int(min(_MAX_RECORDS, _SECONDS * concurrency * 1000 / max(1, sleep_ms)))


def process(
    program: Program, servers: str, name: str, concurrency: int, records: int, sleep_ms: int
) -> Cost:
    """Process all records of a topic in a new group."""
    group = f"benchmark-{os.getpid()}-{next(_groups)}-{time.time_ns()}"
    found, cpu_s, wall_s = program.request(
        "process", servers, name, group, concurrency, records, sleep_ms
    )
    if int(found) != records:
        raise RuntimeError(f"{found} handlers were called for {records} records")
    return Cost(records, float(cpu_s), float(wall_s))


def case_of(concurrency: int) -> str:
    """Return the name of a case."""
    return f"concurrency {concurrency:,}"


def measure_outputs(chosen: argparse.Namespace, servers: str, program: Program) -> Results:
    """Measure outputs by guarantee and order; the peer has no order of its own."""
    results = Results(OUTPUTS, (RATE, CPU), baseline=CLIENTS[0])
    records = chosen.records or 30_000
    with topic(servers, _PARTITIONS) as name, topic(servers, _PARTITIONS) as output:
        fill(servers, name, records, chosen.keys)
        for order in ("key", "partition"):
            for repetition in range(chosen.repetitions + 1):
                for client in CLIENTS:
                    group = f"outputs-{os.getpid()}-{next(_groups)}-{time.time_ns()}"
                    found, cpu_s, wall_s = program.request(
                        "outputs", servers, name, output, group, client, order, records
                    )
                    if int(found) != records:
                        raise RuntimeError(f"{found} handlers for {records} records")
                    if repetition:
                        cost = Cost(records, float(cpu_s), float(wall_s))
                        results.add(order, client, asdict(cost))
    return results


def measure(chosen: argparse.Namespace, servers: str, programs: Mapping[str, Program]) -> Results:
    """Measure each concurrency and program."""
    results = Results(
        TITLE,
        (RATE, CPU),
        baseline=PARALLEL_CONSUMER,
        clients={name: program.versions for name, program in programs.items()},
    )
    for concurrency in chosen.concurrency:
        records = chosen.records or record_count(concurrency, chosen.sleep_ms)
        with topic(servers, _PARTITIONS) as name:
            fill(servers, name, records, chosen.keys)
            for repetition in range(chosen.repetitions + 1):
                for client, program in programs.items():
                    cost = process(program, servers, name, concurrency, records, chosen.sleep_ms)
                    if repetition:
                        results.add(case_of(concurrency), client, asdict(cost))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=(AIOPROD, PARALLEL_CONSUMER), repetitions=3)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 100, 1_000])
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--sleep-ms", type=int, default=5, help="how long a handler waits")
    parser.add_argument("--records", type=int, help="records per round (default: for 4 s)")
    parser.add_argument(
        "--outputs", action="store_true", help="compare guarantees with an output for each record"
    )
    chosen = parser.parse_args(arguments)
    with ExitStack() as stack:
        servers = stack.enter_context(bootstrap(chosen.bootstrap))
        programs: dict[str, Program] = {}
        for name in [AIOPROD] if chosen.outputs else chosen.clients:
            command = (
                [sys.executable, "-m", "benchmarks.processing_worker"]
                if name == AIOPROD
                else parallel_consumer()
            )
            programs[name] = Program(command)
            stack.callback(programs[name].close)
        if chosen.outputs:
            report(measure_outputs(chosen, servers, programs[AIOPROD]), chosen)
        else:
            report(measure(chosen, servers, programs), chosen)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(str(error))
