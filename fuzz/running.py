"""Runs a fuzz target: with atheris if it is installed, else with a loop of random mutations."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

Target = Callable[[bytes], None]
#: Values at which lengths and numbers of Kafka's protocol change their meaning.
_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_MOST_BYTES = 4096


def atheris() -> Any:
    """Return the module atheris; None if it is not installed."""
    try:
        import atheris
    except ImportError:
        return None
    return atheris


def instrumented(name: str) -> AbstractContextManager[object]:
    """Return a context in which atheris instruments imports, if the module ``name`` is the program
    that runs.
    """
    fuzzer = atheris() if name == "__main__" else None
    return nullcontext() if fuzzer is None else fuzzer.instrument_imports(include=["aioprod"])


def run(target: Target, seeds: Sequence[bytes]) -> None:
    """Run a target by the arguments of the command line, which are those of libFuzzer.

    Without atheris, only ``-max_total_time`` and ``-seed`` are known.
    """
    fuzzer = atheris()
    if fuzzer is None:
        _run_loop(target, seeds)
        return
    with tempfile.TemporaryDirectory() as directory:
        write_seeds(seeds, Path(directory))
        fuzzer.Setup([*sys.argv, directory], target)
        fuzzer.Fuzz()


def write_seeds(seeds: Sequence[bytes], directory: Path) -> None:
    """Write each seed to a file, as libFuzzer reads a corpus."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (directory / f"seed-{number:03}").write_bytes(seed)


def mutations(seeds: Sequence[bytes], source: random.Random) -> Iterator[bytes]:
    """Return the seeds, then changed ones without end."""
    yield from seeds
    while True:
        data = bytearray(source.choice(seeds))
        for _ in range(source.choice((1, 1, 2, 4, 16))):
            _mutate(data, seeds, source)
        yield bytes(data[:_MOST_BYTES])


def _mutate(data: bytearray, seeds: Sequence[bytes], source: random.Random) -> None:
    place = source.randrange(len(data) + 1)
    match source.randrange(7):
        case 0 if place < len(data):
            data[place] ^= 1 << source.randrange(8)
        case 1 if place < len(data):
            data[place] = source.randrange(256)
        case 2:
            width = source.choice((1, 2, 4))
            value = source.choice(_EDGES) & ((1 << 8 * width) - 1)
            data[place : place + width] = value.to_bytes(width, "big")
        case 3:
            del data[place : place + source.randrange(1, 9)]
        case 4:
            data[place:place] = source.randbytes(source.randrange(1, 9))
        case 5:
            other = source.choice(seeds)
            start = source.randrange(len(other) + 1)
            data[place:place] = other[start : start + source.randrange(1, 65)]
        case _:
            del data[place:]


def _run_loop(target: Target, seeds: Sequence[bytes]) -> None:
    arguments = argparse.ArgumentParser(description="atheris is not installed: random mutations")
    arguments.add_argument("-max_total_time", type=float, default=60, help="seconds")
    arguments.add_argument("-seed", type=int, default=random.randrange(1 << 32))
    given = arguments.parse_args()
    end, count = time.monotonic() + given.max_total_time, 0
    for data in mutations(seeds, random.Random(given.seed)):
        try:
            target(data)
        except BaseException:
            print(f"seed {given.seed}, input {count}: {data.hex()}", file=sys.stderr)
            raise
        count += 1
        if time.monotonic() > end:
            break
    print(f"{count} inputs without a finding (seed {given.seed})")
