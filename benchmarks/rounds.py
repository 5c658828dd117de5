"""Questions asked in turn, again and again, and the options of the commands that do so."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.charts import write_png
from benchmarks.measures import Figures
from benchmarks.results import Results


@dataclass(frozen=True, slots=True)
class Question:
    """One measurement of one client in one case; ``ask`` sets up and clears away outside of what it
    measures.
    """

    case: str
    client: str
    ask: Callable[[], Awaitable[Figures]]


async def in_rounds(results: Results, questions: Sequence[Question], repetitions: int) -> None:
    """Ask every question once, then every question again, and so on: what disturbs the machine for
    a while disturbs all of them.

    One more round comes first and is thrown away: imports, caches, the broker's warm-up.
    """
    for number in range(repetitions + 1):
        for question in questions:
            figures = await question.ask()
            shown = ", ".join(
                f"{metric.value(figures):,.{metric.digits}f} {metric.title}"
                for metric in results.metrics
            )
            print(
                f"  round {number}: {question.case}, {question.client}: {shown}",
                file=sys.stderr,
                flush=True,
            )
            if number:
                results.add(question.case, question.client, figures)


def options(
    description: str, *, clients: Sequence[str], repetitions: int = 5, embedded: bool = False
) -> argparse.ArgumentParser:
    """The arguments that every question takes; one that runs on the embedded broker takes no
    other.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--clients", type=names, default=list(clients), help=f"some of: {', '.join(clients)}"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=repetitions,
        help="rounds that count, after one that doesn't (default: %(default)s)",
    )
    if not embedded:
        parser.add_argument(
            "--bootstrap", metavar="HOST:PORT", help="a broker that runs (default: one is started)"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="draw them to FILE (needs matplotlib)"
    )
    return parser


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",")]


def report(results: Results, chosen: argparse.Namespace) -> None:
    """Print the table, and write the files that were asked for."""
    print(results.table())
    if chosen.json:
        results.write_json(chosen.json)
    if chosen.png:
        write_png(results, chosen.png)
