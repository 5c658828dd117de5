"""Check aioprod's performance in two minutes.

Compares the headline with confluent-kafka and aiokafka, and one awaited record with a raw round
trip. Exits with status 1 if a target is missed by more than 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from benchmarks import latency, producer
from benchmarks.real_broker import bootstrap
from benchmarks.results import Results
from benchmarks.targets import Target, target_table

CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
TOLERANCE = 0.15
RECORDS_ONE_AT_A_TIME = 2_000
LATENCY_TARGET = Target(
    latency.ONE_AT_A_TIME, "aioprod", latency.METRICS[0], latency.RAW, "at most", 1.1
)


async def measure(servers: str, *, repetitions: int, round_s: float) -> tuple[Results, Results]:
    """Measure many records, then one at a time."""
    many = await producer.measure(
        [producer.HEADLINE], CLIENTS, servers, round_s=round_s, repetitions=repetitions
    )
    arguments = argparse.Namespace(
        clients=["aioprod"],
        records=RECORDS_ONE_AT_A_TIME,
        rates=(),
        uvloop=False,
        repetitions=repetitions,
    )
    return many, await latency.measure(arguments, servers)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repetitions",
        type=int,
        default=7,
        help="rounds, after one for warm-up (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=producer.ROUND_S,
        help="approximate duration of a measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running broker (default: start one)"
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        many, one = asyncio.run(
            measure(servers, repetitions=chosen.repetitions, round_s=chosen.seconds)
        )
    print(
        many.table(),
        one.table(),
        target_table(many, producer.TARGETS),
        target_table(one, [LATENCY_TARGET]),
        sep="\n\n",
    )
    shortfalls = [
        *(target.shortfall(many) for target in producer.TARGETS),
        LATENCY_TARGET.shortfall(one),
    ]
    if max(shortfalls) > TOLERANCE:
        sys.exit(f"a target is missed by {max(shortfalls):.0%}, more than {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
