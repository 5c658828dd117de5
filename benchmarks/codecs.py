"""The CPU time of lz4 and zstd in each library that aioprod may use, compared with cramjam. Without
a broker.

The data is JSON texts with random numbers, as large as a batch. All libraries take turns.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median

from aioprod.protocol.codecs.backend import Backend
from aioprod.protocol.codecs.backends import (
    CRAMJAM_LZ4,
    CRAMJAM_ZSTD,
    lz4_backend,
    stdlib_zstd,
    zstd_backend,
)

SIZES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
LEVELS = {"lz4": 9, "zstd": 3}  # Kafka's defaults
ROUNDS = 15
CALLS_S = 0.02


def texts(size: int) -> bytes:
    """Return JSON texts of ``size`` bytes."""
    rng = random.Random(size)
    data = bytearray()
    while len(data) < size:
        reading = {"sensor": f"s{rng.randrange(500)}", "value": rng.random(), "unit": "celsius"}
        data += json.dumps(reading).encode()
    return bytes(data[:size])


def libraries() -> dict[str, dict[str, Backend]]:
    """Return what is installed, cramjam first."""
    found = {
        "lz4": {"cramjam": CRAMJAM_LZ4, "lz4": lz4_backend()},
        "zstd": {"cramjam": CRAMJAM_ZSTD, "zstandard": zstd_backend()},
    }
    standard = stdlib_zstd()
    if standard is not None:
        found["zstd"]["compression.zstd"] = standard
    return {
        codec: {
            name: each
            for name, each in backends.items()
            if name == "cramjam" or each is not backends["cramjam"]
        }
        for codec, backends in found.items()
    }


def seconds(call: Callable[[], object], calls: int) -> float:
    """Return the CPU time of one call."""
    begun = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - begun) / calls


def compare(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Measure each call in turn, and return its times in all rounds."""
    first = seconds(next(iter(calls.values())), 3)
    times = max(1, int(CALLS_S / max(first, 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call, times))
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(default: %(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=SIZES, help="bytes (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    print("| codec | bytes | library | compress us | ratio | decompress us | ratio |")
    print("|---|---|---|---|---|---|---|")
    for codec, backends in libraries().items():
        for size in chosen.sizes:
            for row in rows(codec, backends, size, chosen.rounds):
                print(row, flush=True)


def rows(codec: str, backends: dict[str, Backend], size: int, rounds: int) -> Iterator[str]:
    """Measure a codec with data of one size, and return a row for each library."""
    data, level = texts(size), LEVELS[codec]
    frames = {name: each.compress(data, level) for name, each in backends.items()}
    up = {name: partial(each.compress, data, level) for name, each in backends.items()}
    down = {name: partial(each.decompress, frames[name], size) for name, each in backends.items()}
    compressed, decompressed = compare(up, rounds), compare(down, rounds)
    for name in backends:
        cells = f"{_cells(compressed, name)} | {_cells(decompressed, name)}"
        yield f"| {codec} | {size:,} | {name} | {cells} |"


def _cells(taken: dict[str, list[float]], name: str) -> str:
    ratios = [own / other for own, other in zip(taken[name], taken["cramjam"], strict=True)]
    return f"{median(taken[name]) * 1e6:.1f} | {median(ratios):.2f}"


if __name__ == "__main__":
    main()
