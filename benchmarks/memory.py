"""How much memory does a client take while its broker is silent, beside the buffer that it was
allowed?

The broker is an embedded one that is stopped (SIGSTOP) for the while. Each measurement is a new
process's.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from benchmarks.adapters import Settings
from benchmarks.broker import broker_with_pid
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Figures
from benchmarks.real_broker import check_record_count
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.workers import worker

QUESTION = "Memory that is taken while the broker is silent, with a buffer of 32 MiB"
CLIENTS = ("aioprod", "confluent-kafka", "aiokafka", "kafka-python")
TOPIC = "memory"
SIZES = {10: 2.0, 100: 1.5, 1_000: 1.2}
"""Bytes of a value, and the growth that is good enough, in buffers."""
GROWTH = Metric("grown by, in buffers", lambda figures: float(figures["grown_ratio"]))
METRICS = (
    GROWTH,
    Metric(
        "values taken, in buffers", lambda figures: float(figures["taken_ratio"]), compared=False
    ),
    Metric("waits then", lambda figures: float(figures["waits"]), 0, compared=False),
)


def case(value_size: int, keep: bool) -> str:
    """Its name."""
    return f"{value_size:,} B, deliveries {'kept' if keep else 'dropped'}"


CEILINGS = [
    Ceiling(case(size, keep), "aioprod", GROWTH, most)
    for keep in (False, True)
    for size, most in SIZES.items()
]


async def memory(client: str, value_size: int, keep: bool) -> Figures:
    """Figures of ``memory``, of a worker and a broker of its own; raises RecordsMissingError where
    some that were taken did not arrive.
    """
    with broker_with_pid({TOPIC: 1}) as (servers, pid):
        async with worker(client) as opened:
            given = {"topic": TOPIC, "value_size": value_size, "keep": keep, "broker_pid": pid}
            figures = await opened.call("memory", Settings(servers), given)
        check_record_count(servers, TOPIC, 1, figures["sent"])
    return figures


async def measure(chosen: argparse.Namespace) -> Results:
    """Ask about every size and every client, with deliveries that the caller drops and with such as
    it keeps.
    """
    results = Results(QUESTION, METRICS)
    questions = [
        Question(case(size, keep), client, partial(memory, client, size, keep))
        for keep in (False, True)
        for size in chosen.sizes
        for client in chosen.clients
    ]
    await in_rounds(results, questions, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=2, embedded=True)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(SIZES),
        help="bytes of a value (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    results = asyncio.run(measure(chosen))
    report(results, chosen)
    print("\n" + ceiling_table(results, CEILINGS))


if __name__ == "__main__":
    main()
