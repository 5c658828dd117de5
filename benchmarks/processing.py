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
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from statistics import median

from confluent_kafka import Producer

from aioprod.testing.cache import SetupError
from benchmarks.adapters.foreign import Program
from benchmarks.adapters.installed import parallel_consumer
from benchmarks.harness import MICROSECONDS, Cost
from benchmarks.processing_outputs import CLIENTS
from benchmarks.real_broker import bootstrap, check_record_count, topic

AIOPROD, PARALLEL_CONSUMER = "aioprod", "parallel-consumer"
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


def report(concurrency: object, costs: dict[str, list[Cost]]) -> None:
    """Print the medians of the rounds, and of their ratios."""
    for name, listed in costs.items():
        rates = [cost.records / cost.wall_s for cost in listed]
        cpu = [cost.cpu_s / cost.records * MICROSECONDS for cost in listed]
        print(
            f"| {concurrency} | {name} | {median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
            f" | {median(cpu):.1f} ({min(cpu):.1f}-{max(cpu):.1f}) |",
            flush=True,
        )
    if costs.keys() == {AIOPROD, PARALLEL_CONSUMER}:
        pairs = list(zip(costs[AIOPROD], costs[PARALLEL_CONSUMER], strict=True))
        rate = median(theirs.wall_s / ours.wall_s for ours, theirs in pairs)
        cpu_ratio = median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs)
        print(f"| {concurrency} | ratio | {rate:.2f} | {cpu_ratio:.2f} |", flush=True)


def compare_outputs(servers: str | None, records: int, keys: int, repetitions: int) -> None:
    """Print outputs per second by guarantee and order; the peer has no order of its own."""
    with ExitStack() as stack:
        servers = stack.enter_context(bootstrap(servers))
        program = Program([sys.executable, "-m", "benchmarks.processing_worker"])
        stack.callback(program.close)
        print(program.versions)
        print("\n| order | client | outputs/s | CPU µs per record |\n|---|---|---|---|")
        with topic(servers, _PARTITIONS) as name, topic(servers, _PARTITIONS) as output:
            fill(servers, name, records, keys)
            for order in ("key", "partition"):
                costs: defaultdict[str, list[Cost]] = defaultdict(list)
                for repetition in range(repetitions + 1):
                    for client in CLIENTS:
                        group = f"outputs-{os.getpid()}-{next(_groups)}-{time.time_ns()}"
                        found, cpu_s, wall_s = program.request(
                            "outputs", servers, name, output, group, client, order, records
                        )
                        if int(found) != records:
                            raise RuntimeError(f"{found} handlers for {records} records")
                        if repetition:
                            costs[client].append(Cost(records, float(cpu_s), float(wall_s)))
                report(order, costs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="a running broker (default: start one)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 100, 1_000])
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--sleep-ms", type=int, default=5, help="how long a handler waits")
    parser.add_argument("--records", type=int, help="records per round (default: for 4 s)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--clients", default=f"{AIOPROD},{PARALLEL_CONSUMER}", help="default: %(default)s"
    )
    parser.add_argument(
        "--outputs", action="store_true", help="compare guarantees with an output for each record"
    )
    chosen = parser.parse_args(arguments)
    if chosen.outputs:
        compare_outputs(chosen.bootstrap, chosen.records or 30_000, chosen.keys, chosen.repetitions)
        return
    with ExitStack() as stack:
        servers = stack.enter_context(bootstrap(chosen.bootstrap))
        programs: dict[str, Program] = {}
        for name in chosen.clients.split(","):
            command = (
                [sys.executable, "-m", "benchmarks.processing_worker"]
                if name == AIOPROD
                else parallel_consumer()
            )
            programs[name] = Program(command)
            stack.callback(programs[name].close)
            print(f"{name}: {programs[name].versions}")
        print("\n| concurrency | client | records/s | CPU µs per record |\n|---|---|---|---|")
        for concurrency in chosen.concurrency:
            records = chosen.records or record_count(concurrency, chosen.sleep_ms)
            costs: defaultdict[str, list[Cost]] = defaultdict(list)
            with topic(servers, _PARTITIONS) as name:
                fill(servers, name, records, chosen.keys)
                for repetition in range(chosen.repetitions + 1):
                    for client, program in programs.items():
                        cost = process(
                            program, servers, name, concurrency, records, chosen.sleep_ms
                        )
                        if repetition:
                            costs[client].append(cost)
            report(concurrency, costs)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(str(error))
