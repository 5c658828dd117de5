"""Run measurements in rounds, and the options that all benchmarks share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.charts import write_png
from benchmarks.measures import Numbers
from benchmarks.results import Results


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of a client in a case; ``run`` does not measure its setup and cleanup."""

    case: str
    client: str
    run: Callable[[], Awaitable[Numbers]]


async def run_rounds(
    results: Results,
    measurements: Sequence[Measurement],
    repetitions: int,
    *,
    warm_up: bool = True,
    rotate: bool = False,
) -> None:
    """Run all measurements in each round, so that disturbances of the machine affect all of them.

    Args:
        warm_up: run one more round before, which is discarded.
        rotate: begin each round with another measurement: the first of a round may be at a
            disadvantage.
    """
    for number in range(0 if warm_up else 1, repetitions + 1):
        first = number % len(measurements) if rotate and measurements else 0
        for measurement in (*measurements[first:], *measurements[:first]):
            numbers = await measurement.run()
            shown = ", ".join(
                f"{metric.value(numbers):,.{metric.digits}f} {metric.title}"
                for metric in results.metrics
            )
            print(
                f"  round {number}: {measurement.case}, {measurement.client}: {shown}",
                file=sys.stderr,
                flush=True,
            )
            if number:
                results.add(measurement.case, measurement.client, numbers)


def options(
    description: str,
    *,
    clients: Sequence[str],
    on_demand: Sequence[str] = (),
    repetitions: int = 5,
    embedded: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks.

    Args:
        clients: the clients to measure by default.
        on_demand: more clients.
        embedded: the benchmark always starts an embedded broker.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--clients",
        type=names,
        default=list(clients),
        help=f"default: {','.join(clients)}"
        + (f"; on demand: {','.join(on_demand)}" if on_demand else ""),
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=repetitions,
        help="rounds, after one for warm-up (default: %(default)s)",
    )
    if not embedded:
        parser.add_argument(
            "--bootstrap", metavar="HOST:PORT", help="a running broker (default: start one)"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to FILE")
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="write a chart to FILE (needs matplotlib)"
    )
    return parser


def names(text: str) -> list[str]:
    """Split comma-separated names."""
    return [name.strip() for name in text.split(",")]


def report(results: Results, chosen: argparse.Namespace, number: int = 0) -> None:
    """Print the table and write the requested files.

    Args:
        number: of several results; the names of files end with it unless it is 0.
    """
    print(results.table(), results.notes(), sep="\n\n")
    if chosen.json:
        results.write_json(_numbered(chosen.json, number))
    if chosen.png:
        write_png(results, _numbered(chosen.png, number))


def _numbered(path: Path, number: int) -> Path:
    return path.with_stem(f"{path.stem}-{number}") if number else path
