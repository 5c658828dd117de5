"""A web application that sends a record for each request and awaits it, under load of wrk.

The same FastAPI and aiohttp endpoint on uvloop, with each client and without Kafka. A client's own
share of a request is its application's CPU time minus that of the application without Kafka, in the
same round. The share of an application that only waits, without Kafka, is what suspending and
resuming a request costs the web server, whatever the client. Records have 100 bytes, linger is 0,
and a real broker runs on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from aioprod.testing.cache import SetupError
from benchmarks.harness import MICROSECONDS
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, names, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.webapp_server import FRAMEWORKS, NO_KAFKA, PATH, WAITING

TITLE = "A web application that awaits a record for each request"
AIOKAFKA = "aiokafka"
CLIENTS = ("aioprod", AIOKAFKA, "confluent-kafka AIOProducer")
CONNECTIONS = (16, 256)
VALUE = "v" * 100
WARM_UP_S = 1.0
_REPOSITORY = Path(__file__).parents[1]
_SCRIPT = _REPOSITORY / "benchmarks" / "programs" / "wrk" / "post.lua"
_LIMIT_S = 60
_IDLE_LIMIT_S = 30
_PAUSE_S = 0.05
_INSTALL = "wrk is not installed: no wrk on PATH (Debian: apt-get install wrk)"

RATE = Metric("requests/s", lambda numbers: float(numbers["requests"] / numbers["wall_s"]), 0)
CPU = Metric("CPU us per request", lambda numbers: cpu_us(numbers), 1)
SHARE = Metric(
    "client's share, us",
    lambda numbers: cpu_us(numbers) - float(numbers["empty_cpu_us"]),
    1,
    compared=False,
)
P50 = Metric("p50 ms", lambda numbers: float(numbers["p50_ms"]))
P99 = Metric("p99 ms", lambda numbers: float(numbers["p99_ms"]))
METRICS = (RATE, CPU, SHARE, P50, P99)


def cpu_us(numbers: Numbers) -> float:
    """Return the CPU microseconds of a request."""
    return float(numbers["cpu_s"] / numbers["handled"] * MICROSECONDS)


def case_of(framework: str, connections: int) -> str:
    """Return the name of a case."""
    return f"{framework}, {connections} connections"


def targets(frameworks: Sequence[str]) -> list[Target]:
    """Return the targets of both numbers of connections."""
    few, many = CONNECTIONS
    found = []
    for framework in frameworks:
        found += [
            Target(case_of(framework, few), "aioprod", SHARE, AIOKAFKA, "at most", 0.5),
            Target(case_of(framework, many), "aioprod", SHARE, AIOKAFKA, "at most", 0.6),
            Target(case_of(framework, many), "aioprod", RATE, NO_KAFKA, "at least", 0.75),
        ]
    return found


class RequestsFailedError(Exception):
    """A request failed, or was not finished in time."""


class Server:
    """A running ``webapp_server``.

    Attributes:
        port: where it listens, on 127.0.0.1.
        versions: those of the framework and of the server.
        finished: how many requests it has finished, when it has ended.
    """

    def __init__(self, process: Process, port: int, versions: str) -> None:
        self.port = port
        self.versions = versions
        self.finished = 0
        self._process = process

    async def counts(self) -> tuple[float, int, int]:
        """Return its CPU seconds, and how many requests it has begun and finished."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await self._numbers()

    async def end(self) -> None:
        """End it. It may have handled requests since it was idle: those that wrk had left in the
        buffers of connections.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        _, _, self.finished = await asyncio.wait_for(self._numbers(), _LIMIT_S)

    async def _numbers(self) -> tuple[float, int, int]:
        assert self._process.stdout is not None
        cpu_s, begun, finished = (await self._process.stdout.readline()).split()
        return float(cpu_s), int(begun), int(finished)

    async def idle(self) -> tuple[float, int]:
        """Wait until all requests are finished, as wrk leaves some; return CPU seconds and their
        number.

        Raises:
            RequestsFailedError: if one is not.
        """
        for _ in range(int(_IDLE_LIMIT_S / _PAUSE_S)):
            cpu_s, begun, finished = await self.counts()
            if begun == finished:
                return cpu_s, finished
            await asyncio.sleep(_PAUSE_S)
        raise RequestsFailedError(f"{begun - finished} requests did not finish")


@asynccontextmanager
async def server(
    framework: str, client: str, servers: str, name: str, linger_ms: float
) -> AsyncIterator[Server]:
    """Run the application with a client until the block ends.

    Args:
        name: the topic.
    """
    arguments = [framework, client, servers, name, "--linger-ms", str(linger_ms)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.webapp_server",
        *arguments,
        cwd=_REPOSITORY,
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _LIMIT_S)
        if not line:
            raise RequestsFailedError(f"the application ended with status {await process.wait()}")
        port, versions = line.decode().rstrip("\n").split("\t")
        found = Server(process, int(port), versions)
        yield found
        await found.end()
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _LIMIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def load(port: int, connections: int, seconds: float) -> Numbers:
    """Post bodies on this number of connections, and return wrk's numbers.

    Raises:
        RequestsFailedError: if one of them fails.
        SetupError: if wrk is not installed.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SetupError(_INSTALL)
    # wrk takes whole seconds.
    command = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
    command += ["--timeout", f"{_LIMIT_S}s", "-s", str(_SCRIPT)]
    process = await asyncio.create_subprocess_exec(
        *command, f"http://127.0.0.1:{port}{PATH}", "--", VALUE, stdout=PIPE
    )
    printed, _ = await asyncio.wait_for(process.communicate(), seconds + _LIMIT_S)
    (line,) = [line for line in printed.decode().splitlines() if line.startswith("result\t")]
    _, requests, errors, took_us, p50_us, p99_us = line.split("\t")
    if int(errors) or not int(requests):
        raise RequestsFailedError(f"{errors} errors in {requests} requests:\n{printed.decode()}")
    return {
        "requests": int(requests),
        "wall_s": int(took_us) / 1e6,
        "p50_ms": float(p50_us) / 1e3,
        "p99_ms": float(p99_us) / 1e3,
    }


class Rounds:
    """Measures applications; each client's needs that of the one without Kafka before it."""

    def __init__(self, servers: str, seconds: float, linger_ms: float) -> None:
        self.versions: dict[str, str] = {}
        self._servers = servers
        self._seconds = seconds
        self._linger_ms = linger_ms
        self._empty_us: dict[tuple[str, int], float] = {}

    async def run(self, framework: str, connections: int, client: str) -> Numbers:
        """Measure an application.

        Raises:
            RecordsMissingError: if the topic does not have a record for each request.
        """
        with topic(self._servers) as name:
            async with server(
                framework, client, self._servers, name, self._linger_ms
            ) as application:
                self.versions[framework] = application.versions
                await load(application.port, connections, WARM_UP_S)
                cpu_s, before = await application.idle()
                numbers = await load(application.port, connections, self._seconds)
                cpu_after_s, finished = await application.idle()
            if client not in (NO_KAFKA, WAITING):
                check_record_count(self._servers, name, 1, application.finished)
        numbers |= {"cpu_s": cpu_after_s - cpu_s, "handled": finished - before}
        if client == NO_KAFKA:
            self._empty_us[framework, connections] = cpu_us(numbers)
        return {**numbers, "empty_cpu_us": self._empty_us[framework, connections]}


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each framework, number of connections and client."""
    results = Results(TITLE, METRICS, baseline=NO_KAFKA)
    rounds = Rounds(servers, chosen.seconds, chosen.linger_ms)
    measurements = [
        Measurement(
            case_of(framework, connections),
            client,
            partial(rounds.run, framework, connections, client),
        )
        for framework in chosen.frameworks
        for connections in chosen.connections
        for client in (NO_KAFKA, WAITING, *chosen.clients)
    ]
    # Each measurement is a new process, which has its own warm-up.
    await run_rounds(results, measurements, chosen.repetitions, warm_up=False)
    results.clients |= rounds.versions
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--frameworks",
        type=names,
        default=list(FRAMEWORKS),
        help=f"default: {','.join(FRAMEWORKS)}",
    )
    parser.add_argument(
        "--connections", type=int, nargs="+", default=CONNECTIONS, help="default: %(default)s"
    )
    parser.add_argument(
        "--seconds", type=float, default=4, help="seconds of load (default: %(default)s)"
    )
    parser.add_argument("--linger-ms", type=float, default=0.0, help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        sys.exit(_INSTALL)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + target_table(results, targets(chosen.frameworks)))


if __name__ == "__main__":
    main()
