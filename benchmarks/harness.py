"""What all benchmarks share: one measured run, repetitions in turn, and a table of ratios."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """What ``records`` records took: CPU seconds of this process (all its threads) and seconds on the wall."""

    records: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_us(self) -> float:
        """CPU microseconds a record."""
        return self.cpu_s / self.records * MICROSECONDS

    @property
    def wall_us(self) -> float:
        """Microseconds a record on the wall."""
        return self.wall_s / self.records * MICROSECONDS


Run = Callable[[], Awaitable[Cost]]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    Attributes:
        run: one repetition; sets up and tears down outside of what it measures.
        beside: name of the case that it is compared with; empty for none.
        target: the largest ratio that is good enough; None where the row only informs.
    """

    run: Run
    beside: str = ""
    target: float | None = None


async def measured(records: int, work: Callable[[], Awaitable[object]]) -> Cost:
    """Await ``work()`` and tell what it took."""
    gc.collect()  # so that nobody pays for what was left before
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return Cost(records, time.process_time() - cpu, time.perf_counter() - wall)


async def in_turn(cases: Mapping[str, Case], repetitions: int) -> dict[str, list[Cost]]:
    """Run every case once, then every case again, and so on: what disturbs the machine for a while disturbs all of them.

    One more round comes first and is thrown away: imports, caches and the broker's warm-up.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in cases}
    for repetition in range(repetitions + 1):
        for name, case in cases.items():
            cost = await case.run()
            print(f"  round {repetition}: {name}: {cost.cpu_us:.2f} us CPU, {cost.wall_us:.2f} us wall a record", file=sys.stderr, flush=True)
            if repetition:
                costs[name].append(cost)
    return costs


def table(cases: Mapping[str, Case], costs: Mapping[str, Sequence[Cost]]) -> str:
    """A Markdown table: medians with their range, and the median ratio of the repetitions to those of the case beside it."""
    lines = ["| case | CPU us a record | wall us a record | beside | CPU ratio | wall ratio | target |", "|---|---|---|---|---|---|---|"]
    for name, case in cases.items():
        own = costs[name]
        cells = [name, _spread([cost.cpu_us for cost in own]), _spread([cost.wall_us for cost in own])]
        if case.beside:
            pairs = list(zip(own, costs[case.beside], strict=True))
            cells += [case.beside, _spread([a.cpu_us / b.cpu_us for a, b in pairs]), _spread([a.wall_us / b.wall_us for a, b in pairs])]
        else:
            cells += ["", "", ""]
        cells.append(f"{case.target:g}" if case.target is not None else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def options(description: str, *, records: int) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--records", type=int, default=records, help="records a repetition (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="rounds that count, after one that doesn't (default: %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave aiokafka and confluent-kafka out")
    parser.add_argument("--uvloop", action="store_true", help="run the clients on uvloop")
    return parser


def run(cases: Mapping[str, Case], *, repetitions: int, uvloop: bool) -> dict[str, list[Cost]]:
    """Run the cases on an event loop of this process, print the table and return the costs."""
    with asyncio.Runner(loop_factory=loop_factory(wanted=uvloop)) as runner:
        costs = runner.run(in_turn(cases, repetitions))
    print(table(cases, costs))
    return costs


def loop_factory(*, wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is wanted and installed; None means asyncio's own."""
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
