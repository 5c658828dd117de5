"""The start of a program: importing a client, the first acknowledged record, and whole calls of the
command line.

Each measurement is a new process, and counts all of it: the interpreter's start and end, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table

TITLE = "The start of a program"
BASELINE = "confluent-kafka"
CLIENTS = ("aioprod", BASELINE, "aiokafka", "kafka-python", "asyncio alone")
IMPORT, FIRST_RECORD = "import of the producer", "first record, acknowledged"
_ASYNCIO = "asyncio alone"
_LIMIT_S = 60

CPU = Metric("CPU ms", lambda numbers: float(numbers["cpu_ms"]), 0)
WALL = Metric("ms", lambda numbers: float(numbers["wall_ms"]), 0)
MEMORY = Metric("MB", lambda numbers: float(numbers["peak_mb"]), 1)
MODULES = Metric("modules", lambda numbers: float(numbers["modules"]), 0, compared=False)
METRICS = (CPU, WALL, MEMORY, MODULES)

# Each program ends with this; VmHWM is the peak of this program, which ru_maxrss is not.
_REPORT = """
import sys
with open("/proc/self/status") as status:
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(f'{{"peak_mb": {peak_kib / 1024}, "modules": {len(sys.modules)}}}', file=sys.stderr)
"""
_IMPORTS = {
    "aioprod": "from aioprod import Producer",
    BASELINE: "from confluent_kafka import Producer",
    "aiokafka": "from aiokafka import AIOKafkaProducer",
    "kafka-python": "from kafka import KafkaProducer",
    _ASYNCIO: "import asyncio",
}
_FIRST_RECORDS = {
    "aioprod": """
import asyncio, sys
from aioprod import Producer
async def main(servers, topic):
    async with Producer(servers) as producer:
        await producer.send_and_wait(topic, b"first")
asyncio.run(main(*sys.argv[1:]))
""",
    BASELINE: """
import sys
from confluent_kafka import Producer
servers, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers})
producer.produce(topic, b"first")
assert producer.flush(30) == 0
""",
    "aiokafka": """
import asyncio, sys
from aiokafka import AIOKafkaProducer
async def main(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"first")
asyncio.run(main(*sys.argv[1:]))
""",
    "kafka-python": """
import sys
from kafka import KafkaProducer
servers, topic = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=servers)
producer.send(topic, b"first").get(30)
producer.close()
""",
}
_COMMAND = f"""
import atexit, sys
def report():{_REPORT.replace(chr(10), chr(10) + "    ")}
atexit.register(report)
from aioprod.cli import main
sys.exit(main())
"""
# What follows ``aioprod`` on the command line; SERVERS and TOPIC are replaced.
COMMANDS = (
    "--help",
    "topics --help",
    "topics list -b SERVERS",
    "topics describe TOPIC -b SERVERS",
    "groups list -b SERVERS",
    "produce TOPIC -b SERVERS",
    "consume TOPIC --exit -b SERVERS",
)

CEILINGS = [
    Ceiling(IMPORT, "aioprod", CPU, 150),
    Ceiling(IMPORT, "aioprod", MEMORY, 28),
    *(Ceiling(f"aioprod {command}", "aioprod", CPU, 200) for command in COMMANDS),
]
TARGETS = [
    Target(case, "aioprod", metric, "aiokafka", "at most", 1.0)
    for case in (IMPORT, FIRST_RECORD)
    for metric in (CPU, MEMORY)
]


def run_program(code: str, *arguments: str) -> Numbers:
    """Run a program in a new process, and return its cost.

    Raises:
        RuntimeError: if it fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users' modules are compiled once
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("a line\n")
        process.stdin.close()
        printed = process.stderr.read()  # until it ends
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - begun
    if process.returncode:
        raise RuntimeError(f"a program ended with status {process.returncode}: {printed}")
    return {
        "cpu_ms": 1000 * (usage.ru_utime + usage.ru_stime),
        "wall_ms": 1000 * wall_s,
        **json.loads(printed.splitlines()[-1]),
    }


async def program(code: str, *arguments: str) -> Numbers:
    """Run :func:`run_program` in a thread."""
    return await asyncio.wait_for(asyncio.to_thread(run_program, code, *arguments), _LIMIT_S)


def measurements(clients: Sequence[str], servers: str, name: str) -> list[Measurement]:
    """Return all measurements: imports, first records, and commands of aioprod.

    Args:
        name: a topic.
    """
    found = [
        Measurement(IMPORT, each, partial(program, _IMPORTS[each] + _REPORT)) for each in clients
    ]
    found += [
        Measurement(
            FIRST_RECORD, each, partial(program, _FIRST_RECORDS[each] + _REPORT, servers, name)
        )
        for each in clients
        if each in _FIRST_RECORDS
    ]
    for command in COMMANDS if "aioprod" in clients else ():
        words = command.replace("SERVERS", servers).replace("TOPIC", name).split()
        found.append(
            Measurement(f"aioprod {command}", "aioprod", partial(program, _COMMAND, *words))
        )
    return found


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure everything in each round."""
    results = Results(TITLE, METRICS)
    with topic(servers) as name:
        await run_rounds(results, measurements(chosen.clients, servers, name), chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=9)
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + target_table(results, TARGETS) + "\n\n" + ceiling_table(results, CEILINGS))


if __name__ == "__main__":
    main()
