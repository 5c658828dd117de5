"""Measure what docs/performance.md shows, then write the page, and the lines in README.md and
docs/index.md.

The numbers of each part are in a JSON file of ``publish/measured``. All parts together take about
an hour on two cores; measure on an idle machine, with an interpreter that was built with PGO.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.publish import page, parts
from benchmarks.publish.parts import BY_NAME, PARTS, Part
from benchmarks.rounds import names

_LIMIT = 4
"""A part that takes this many times its minutes is stopped."""
_MIN_LIMIT_S = 600
_DIGITS = 6


def measure(part: Part, target: Path, *, quick: bool, bootstrap: str | None) -> float:
    """Run a part, write its numbers to ``target`` and return how long it took in seconds.

    Raises:
        subprocess.CalledProcessError: if the command fails.
        subprocess.TimeoutExpired: if it takes too long.
    """
    command = [sys.executable, "-m", f"benchmarks.{part.module}", *part.arguments]
    command += part.quick if quick else ()
    if bootstrap and part.takes_broker:
        command += ["--bootstrap", bootstrap]
    load_before, began = os.getloadavg()[0], time.monotonic()
    with TemporaryDirectory(prefix="aioprod-benchmark-") as directory:
        written = Path(directory, "numbers.json")
        subprocess.run(
            [*command, "--json", str(written)],
            check=True,
            cwd=page.ROOT,
            stdout=subprocess.DEVNULL,
            timeout=max(_MIN_LIMIT_S, _LIMIT * part.minutes * 60),
        )
        found = json.loads(written.read_text(encoding="utf-8"))
    # Without the path of the command, which is of no use to others.
    found["command"] = ["python", "-m", *command[2:]]
    found["load_before"] = load_before
    target.write_text(json.dumps(_rounded(found), indent=1) + "\n", encoding="utf-8")
    return time.monotonic() - began


def _rounded(value: object) -> object:
    """Return JSON with numbers of ``_DIGITS`` digits, as more mean nothing."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=__doc__)
    parser.add_argument(
        "--parts",
        type=names,
        default=list(BY_NAME),
        help=f"any of: {','.join(BY_NAME)}; empty to write the page only (default: all)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny measurements, to see that the commands work"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=parts.MEASURED,
        help="write numbers to another directory, and no page",
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    chosen = parser.parse_args(arguments)
    wanted = [name for name in chosen.parts if name]
    if unknown := set(wanted) - BY_NAME.keys():
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if chosen.quick and chosen.directory == parts.MEASURED:
        parser.error("--quick needs --directory: tiny measurements are not for the page")
    chosen.directory.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if part.name in wanted:
            print(f"{part.name}: about {part.minutes:g} min", flush=True)
            took_s = measure(
                part,
                chosen.directory / part.file.name,
                quick=chosen.quick,
                bootstrap=chosen.bootstrap,
            )
            print(f"{part.name}: took {took_s / 60:.1f} min", flush=True)
    if chosen.directory == parts.MEASURED:
        page.write()
        # Draws the picture of the first table.
        subprocess.run([sys.executable, "docs/_site/draw_table.py"], check=True, cwd=page.ROOT)


if __name__ == "__main__":
    main()
