"""The memory of a client while its broker does not respond, compared with its buffer size.

The embedded broker is stopped with SIGSTOP. Each measurement runs in a new process.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from benchmarks.adapters import Settings
from benchmarks.broker import broker_with_pid
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Numbers
from benchmarks.real_broker import check_record_count
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.workers import worker

TITLE = "Memory while the broker does not respond, with a buffer of 32 MiB"
CLIENTS = ("aioprod", "confluent-kafka", "aiokafka", "kafka-python")
TOPIC = "memory"
SIZES = {10: 2.0, 100: 1.5, 1_000: 1.2}
"""The target for the growth in buffers, by value size in bytes."""
GROWTH = Metric("growth in buffers", lambda numbers: float(numbers["grown_ratio"]))
METRICS = (
    GROWTH,
    Metric(
        "accepted values in buffers",
        lambda numbers: float(numbers["accepted_ratio"]),
        compared=False,
    ),
    Metric("waits", lambda numbers: float(numbers["waits"]), 0, compared=False),
)


def case(value_size: int, keep: bool) -> str:
    """Return the name of the case."""
    return f"{value_size:,} B, deliveries {'kept' if keep else 'dropped'}"


CEILINGS = [
    Ceiling(case(size, keep), "aioprod", GROWTH, maximum)
    for keep in (False, True)
    for size, maximum in SIZES.items()
]


async def memory(client: str, value_size: int, keep: bool) -> Numbers:
    """Run the measure ``memory`` with a new worker and a new broker.

    Raises:
        RecordsMissingError: if accepted records are lost.
    """
    with broker_with_pid({TOPIC: 1}) as (servers, pid):
        async with worker(client) as opened:
            arguments = {"topic": TOPIC, "value_size": value_size, "keep": keep, "broker_pid": pid}
            numbers = await opened.call("memory", Settings(servers), arguments)
        check_record_count(servers, TOPIC, 1, numbers["sent"])
    return numbers


async def measure(chosen: argparse.Namespace) -> Results:
    """Measure each size and each client, with deliveries that are dropped or kept."""
    results = Results(TITLE, METRICS)
    measurements = [
        Measurement(case(size, keep), client, partial(memory, client, size, keep))
        for keep in (False, True)
        for size in chosen.sizes
        for client in chosen.clients
    ]
    await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=2, embedded=True)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(SIZES),
        help="value sizes in bytes (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    results = asyncio.run(measure(chosen))
    report(results, chosen)
    print("\n" + ceiling_table(results, CEILINGS))


if __name__ == "__main__":
    main()
