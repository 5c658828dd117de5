"""Uses of Spark's Python workers that are not hot: the first of a session, the first after Spark
has ended idle workers, and micro-batches of a trigger that is longer than workers stay.

As a program it is a session with one write: ``python -m benchmarks.spark_cold CLIENT HOST:PORT
ROWS`` prints its numbers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measures import Numbers
from benchmarks.process_tree import grandchildren
from benchmarks.real_broker import check_committed_records, topic
from benchmarks.spark_session import PARTITIONS, SparkBenchmark, spark_benchmark

_REPOSITORY = Path(__file__).parents[1]
_SESSION_TIMEOUT_S = 600
# Spark ends a Python worker that was idle for a minute, and checks for such workers periodically.
_IDLE_TIMEOUT_S = 150
_BATCH_TIMEOUT_S = 120
_POLL_S = 0.05


async def first_write(client: str, servers: str, rows: int) -> Numbers:
    """Write as the first use of a session of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_cold", client, servers, str(rows)]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=_REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SESSION_TIMEOUT_S,
        check=True,
    )
    numbers: Numbers = json.loads(done.stdout.splitlines()[-1])
    return numbers


async def after_idleness(
    benchmark: SparkBenchmark, measure: Callable[[], Awaitable[Numbers]]
) -> Numbers:
    """Measure when Spark has ended its idle Python workers, which its daemon has forked."""
    _wait_until(lambda: not grandchildren(benchmark.java), "Spark keeps workers", _IDLE_TIMEOUT_S)
    return await measure()


async def slow_trigger(
    benchmark: SparkBenchmark, client: str, name: str, rows: int, batches: int, trigger_s: int
) -> list[Numbers]:
    """Copy a topic with a micro-batch each ``trigger_s`` seconds; return the cost of each. The
    first one, which starts the query, does not count, and neither does what an idle query costs in
    between.
    """
    costs: list[Numbers] = []
    limit_s = trigger_s + _BATCH_TIMEOUT_S
    with topic(benchmark.servers, PARTITIONS) as target:
        trigger = {"processingTime": f"{trigger_s} seconds"}
        query = benchmark.start_copy(client, name, target, rows, own_source=True, trigger=trigger)

        def batch_ms() -> list[float]:
            return [
                progress["durationMs"]["triggerExecution"]
                for progress in query.recentProgress
                if progress["numInputRows"]
            ]

        def one_more() -> None:
            before = len(batch_ms())
            _wait_until(lambda: len(batch_ms()) > before, f"{client}: no micro-batch", limit_s)

        try:
            one_more()
            for _ in range(batches):
                # Spark begins at multiples of the trigger's time.
                await asyncio.sleep(max(0.0, trigger_s - time.time() % trigger_s - 1))
                cost = benchmark.measured(rows, one_more)
                costs.append(cost | {"wall_s": batch_ms()[-1] / 1000})
        finally:
            query.stop()
        check_committed_records(benchmark.servers, target, PARTITIONS, rows * (batches + 1))
    return costs


def _wait_until(is_so: Callable[[], bool], failure: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{failure} after {limit_s:g} s")
        time.sleep(_POLL_S)


def main() -> None:
    client, servers, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with spark_benchmark(servers) as benchmark:
        frame = benchmark.rows(rows).cache()
        frame.count()
        print(json.dumps(asyncio.run(benchmark.write(client, frame, rows))), flush=True)


if __name__ == "__main__":
    main()
