"""The CPU time to read fetched batches as Arrow columns, as the Spark source does.

Compared with reading single records. Without a broker.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aioprod.codecs import Codec
from aioprod.protocol.arrow_reader import read_arrays
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.record_batch import set_base_offset
from aioprod.protocol.record_reader import read_batch_records
from aioprod.protocol.record_writer import RecordBatchWriter

FETCH_BYTES = 4 << 20
ROUNDS = 7
TIMESTAMP = 1_700_000_000_000
KEYS = 65_536


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a case, as many as fit into a fetch of 4 MiB."""

    name: str
    value_size: int = 100
    sizes_vary: bool = False
    keys: bool = True
    headers: int = 0
    batch_size: int = 128 * 1024
    codec: Codec = Codec.NONE

    def fetched(self) -> tuple[bytes, int]:
        """Return the batches and the number of their records."""
        rng = random.Random(1)
        size = self.value_size + 15 + 10 * self.headers
        data = bytearray()
        count = FETCH_BYTES // size
        for start in range(0, count, self.batch_size // size):
            writer = RecordBatchWriter(TIMESTAMP)
            for number in range(start, min(start + self.batch_size // size, count)):
                length = (
                    rng.randint(self.value_size // 2, self.value_size * 3 // 2)
                    if self.sizes_vary
                    else self.value_size
                )
                headers = [(f"h{index}", b"value") for index in range(self.headers)]
                writer.append(
                    TIMESTAMP + number // 100,
                    b"k%05d" % (number % KEYS) if self.keys else None,
                    os.urandom(length),
                    headers,
                )
            batch = bytearray(writer.build(codec=self.codec))
            set_base_offset(batch, 0, start, 0)
            data += batch
        return bytes(data), count


CASES = (
    Records("100 B"),
    Records("100 B, sizes vary", sizes_vary=True),
    Records("100 B, batches of 16 KiB", batch_size=16 * 1024),
    Records("100 B, no keys", keys=False),
    Records("100 B, 2 headers", headers=2),
    Records("100 B, lz4", codec=Codec.LZ4),
    Records("10 B", value_size=10),
    Records("1 KB", value_size=1_000),
)


def cpu_ns(work: Callable[[], object], count: int) -> float:
    """Return the CPU nanoseconds per record, the best of several rounds."""
    spent = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        work()
        spent.append(time.process_time_ns() - start)
    return min(spent) / count


def as_columns(data: bytes, include_headers: bool) -> None:
    for _ in read_arrays(data, iter_batches(data), include_headers=include_headers):
        pass


def one_by_one(data: bytes) -> None:
    for header, place in iter_batches(data):
        read_batch_records(data, place, header)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'ns of CPU per record':26}{'as columns':>12}{'with headers':>14}{'one by one':>12}")
    for case in CASES:
        data, count = case.fetched()
        works = (
            partial(as_columns, data, False),
            partial(as_columns, data, True),
            partial(one_by_one, data),
        )
        columns, with_headers, single = (cpu_ns(work, count) for work in works)
        print(f"{case.name:26}{columns:12.0f}{with_headers:14.0f}{single:12.0f}")


if __name__ == "__main__":
    main()
