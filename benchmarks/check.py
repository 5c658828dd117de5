"""Is aioprod as fast as it should be? The headline beside confluent-kafka and aiokafka, one awaited
record beside a raw round trip: two minutes.

Ends with status 1 where a target is missed by more than 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from benchmarks import latency, producer
from benchmarks.real_broker import bootstrap
from benchmarks.results import Results
from benchmarks.targets import Target, verdicts

CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
TOLERANCE = 0.15
RECORDS_ONE_AT_A_TIME = 2_000
LATENCY_TARGET = Target(
    latency.ONE_AT_A_TIME, "aioprod", latency.METRICS[0], latency.RAW, "at most", 1.1
)


async def measure(servers: str, *, repetitions: int, round_s: float) -> tuple[Results, Results]:
    """Many records, then one at a time."""
    many = await producer.measure(
        [producer.HEADLINE], CLIENTS, servers, round_s=round_s, repetitions=repetitions
    )
    asked = argparse.Namespace(
        clients=["aioprod"],
        records=RECORDS_ONE_AT_A_TIME,
        rates=(),
        uvloop=False,
        repetitions=repetitions,
    )
    return many, await latency.measure(asked, servers)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repetitions",
        type=int,
        default=7,
        help="rounds that count, after one that doesn't (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=producer.ROUND_S,
        help="about how long one measurement lasts (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a broker that runs (default: one is started)"
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        many, one = asyncio.run(
            measure(servers, repetitions=chosen.repetitions, round_s=chosen.seconds)
        )
    print(
        many.table(),
        one.table(),
        verdicts(many, producer.TARGETS),
        verdicts(one, [LATENCY_TARGET]),
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
