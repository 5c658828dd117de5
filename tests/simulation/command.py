"""The command line of the simulation. Separate from ``__main__.py``, which worker processes can't
import.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.processing.simulated_guarantees import drawn, findings
from tests.simulation.groups.scenario import PROTOCOLS
from tests.simulation.groups.simulator import simulate_group
from tests.simulation.seed_run import SimulationResult
from tests.simulation.shares.simulator import simulate_shares
from tests.simulation.simulator import simulate

_SEEDS_PER_CHUNK = 10
_PRODUCERS, _GROUPS, _SHARES, _PROCESSORS = "producers", "groups", "shares", "processors"


class SeedReport(NamedTuple):
    """The report of a seed; ``report`` is empty if there are no findings, and ``counts`` says how
    often the checkers saw what may be.
    """

    seed: int
    virtual_seconds: float
    report: str
    trace: str
    counts: Counter[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; return 1 if any of them has findings."""
    options = _parse(arguments)
    seeds = range(options.seed, options.seed + 1) if options.seed is not None else options.seeds
    begun = time.perf_counter()
    virtual_seconds, failed = 0.0, []
    counts: Counter[str] = Counter()
    for result in _run_all(seeds, options):
        virtual_seconds += result.virtual_seconds
        counts += result.counts
        if result.trace:
            print(result.trace)
        if result.report:
            failed.append(result.seed)
            print(result.report, flush=True)
    for text, count in sorted(counts.items()):
        print(f"{text}: {count}")
    took = time.perf_counter() - begun
    outcome = f"findings in the seeds {', '.join(map(str, failed))}" if failed else "no findings"
    print(f"{len(seeds)} seeds, {virtual_seconds:.0f} virtual seconds in {took:.1f} s: {outcome}")
    return 1 if failed else 0


def _run_all(seeds: Sequence[int], options: argparse.Namespace) -> Iterator[SeedReport]:
    run = partial(_run_one, options=options)
    if options.processes == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, seeds, chunksize=_SEEDS_PER_CHUNK)


def _run_one(seed: int, options: argparse.Namespace) -> SeedReport:
    if options.clients == _PROCESSORS:
        return _run_processors(seed, options)
    run: dict[str, Callable[..., SimulationResult]] = {
        _PRODUCERS: simulate,
        _GROUPS: partial(simulate_group, protocol=options.protocol),
        _SHARES: simulate_shares,
    }
    result = run[options.clients](seed, hostile=options.hostile)
    return SeedReport(
        seed,
        result.virtual_seconds,
        result.report() if result.findings else "",
        result.full_trace() if options.trace else "",
        result.history.counts,
    )


def _run_processors(seed: int, options: argparse.Namespace) -> SeedReport:
    guarantee, protocol = drawn(seed)
    logging.disable(logging.CRITICAL)  # handlers that fail are logged
    try:
        found = findings(guarantee, seed, protocol, hostile=options.hostile)
    finally:
        logging.disable(logging.NOTSET)
    hostile = " --hostile" if options.hostile else ""
    report = [
        f"seed {seed}: {guarantee.__name__}, protocol {protocol}",
        *(f"  {each}" for each in found),
        f"  replay: python -m tests.simulation --clients processors --seed {seed}{hostile}",
    ]
    return SeedReport(seed, 0.0, "\n".join(report) if found else "", "", Counter())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Test the clients against the embedded cluster and injected faults, in virtual "
        "time.",
    )
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--seed", type=int, help="run this seed")
    group.add_argument(
        "--seeds",
        type=_seeds,
        metavar="N or A-B",
        help="run the first N seeds, or those from A to B",
    )
    parser.add_argument(
        "--clients",
        choices=[_PRODUCERS, _GROUPS, _SHARES, _PROCESSORS],
        default=_PRODUCERS,
        help="producers and readers, members of a group, or of a share group, or processors "
        "(default: producers)",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        help="the protocol of groups (default: drawn by the seed)",
    )
    parser.add_argument("--hostile", action="store_true", help="run ready tasks in random order")
    parser.add_argument("--trace", action="store_true", help="print all events")
    parser.add_argument("--processes", type=int, default=1, help="number of worker processes")
    options = parser.parse_args(arguments)
    if options.protocol is not None and options.clients != _GROUPS:
        parser.error("--protocol needs --clients groups")
    if options.trace and options.clients == _PROCESSORS:
        parser.error("--trace needs other clients than processors")
    return options


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))
