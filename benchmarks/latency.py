"""How long does an awaited record take: one at a time, and when records come at a fixed rate
whether or not those before are done?

One at a time is with linger 0, beside a raw round trip: the same bytes, encoded before, on one
asyncio stream. Records that come at a rate are with linger 5 ms, each from a task of its own, and
each one's time begins at the moment at which it was due.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import ADAPTERS, Load, Settings
from benchmarks.loads import ask_on_new_topic
from benchmarks.measures import Figures
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.targets import Target, verdicts
from benchmarks.workers import Worker, worker

QUESTION = "One awaited record: how long it takes"
CLIENTS = ("aioprod", "confluent-kafka", "confluent-kafka AIOProducer", "aiokafka", "kafka-python")
RAW = "raw round trip"
ONE_AT_A_TIME = "one at a time"
RATES = (2_000, 20_000)
WARM_UP_RECORDS = 300
WARM_UP_S = 1
LIMIT_S = 5  # the slowest client takes a tenth of a second for each record


def rate_case(rate: int) -> str:
    """The case's name."""
    return f"{rate:,} a second"


METRICS = (
    Metric("p50 ms", lambda figures: float(figures["p50_ms"]), 3),
    Metric("p99 ms", lambda figures: float(figures["p99_ms"])),
    Metric("p99.9 ms", lambda figures: float(figures["p99.9_ms"]), compared=False),
    Metric("failed", lambda figures: float(figures.get("failed", 0)), 0, compared=False),
)
P50, P99, *_ = METRICS
RATE_PEERS = ("aiokafka", "confluent-kafka AIOProducer")
TARGETS = [
    Target(ONE_AT_A_TIME, "aioprod", P50, RAW, "at most", 1.1),
    Target(ONE_AT_A_TIME, "aioprod", P99, RAW, "at most", 1.1),
    *(
        Target(rate_case(rate), "aioprod", P99, peer, "at most", 1.0)
        for rate in RATES
        for peer in RATE_PEERS
    ),
]


async def one_at_a_time(worker: Worker, measure: str, settings: Settings, records: int) -> Figures:
    """Figures of ``one_at_a_time`` or ``raw_round_trip``."""
    return await ask_on_new_topic(
        worker,
        measure,
        settings,
        Load("", records),
        warm_up_records=WARM_UP_RECORDS,
        limit_s=LIMIT_S,
    )


async def at_a_rate(worker: Worker, settings: Settings, rate: int, seconds: float) -> Figures:
    """Figures of ``open_loop``."""
    load = Load("", int(rate * seconds))
    return await ask_on_new_topic(
        worker, "open_loop", settings, load, warm_up_records=rate * WARM_UP_S, rate=rate
    )


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Ask about every client; at a rate, about those that many tasks can share."""
    at_once, lingering = Settings(servers, linger_ms=0), Settings(servers)
    results = Results(QUESTION, METRICS, beside=RAW)
    questions: list[Question] = []
    async with AsyncExitStack() as stack:
        if chosen.records:
            raw = await stack.enter_async_context(worker("aioprod", uvloop=chosen.uvloop))
            questions.append(
                Question(
                    ONE_AT_A_TIME,
                    RAW,
                    partial(one_at_a_time, raw, "raw_round_trip", at_once, chosen.records),
                )
            )
        for client in chosen.clients:
            opened = await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            if chosen.records:
                questions.append(
                    Question(
                        ONE_AT_A_TIME,
                        client,
                        partial(one_at_a_time, opened, "one_at_a_time", at_once, chosen.records),
                    )
                )
            for rate in chosen.rates if "many tasks" not in ADAPTERS[client].lacks else ():
                questions.append(
                    Question(
                        rate_case(rate),
                        client,
                        partial(at_a_rate, opened, lingering, rate, chosen.seconds),
                    )
                )
        questions.sort(
            key=lambda question: question.case != ONE_AT_A_TIME
        )  # raw round trip and awaited records side by side
        await in_rounds(results, questions, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records",
        type=int,
        default=2_000,
        help="records one at a time, a round; 0 leaves that out (default: %(default)s)",
    )
    parser.add_argument(
        "--rates",
        type=int,
        nargs="*",
        default=RATES,
        help="records a second; none leaves that out (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5,
        help="how long records come at each rate, a round (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="run all on uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + verdicts(results, TARGETS))


if __name__ == "__main__":
    main()
