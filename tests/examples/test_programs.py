"""Programs of examples/ as processes that get SIGTERM."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import aioprod
from aioprod import Producer, TopicPartition
from aioprod.testing import ThreadedCluster

ROOT = Path(aioprod.__file__).parent.parent
EXAMPLES = ROOT / "examples"
LIMIT_S = 60


async def send(servers: str, values: list[bytes], topic: str = "orders") -> None:
    async with Producer(servers) as producer:
        await (await producer.send_many(topic, values))


@contextmanager
def _running(arguments: list[str], servers: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; end it with SIGTERM and expect exit status 0."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / arguments[0], *arguments[1:]],
            cwd=output.parent,
            env={**os.environ, "AIOPROD_BOOTSTRAP_SERVERS": servers, "PYTHONPATH": str(ROOT)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, output.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    assert "Traceback" not in output.read_text()


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, "the program has ended"
        assert time.monotonic() < deadline, "the program did not get there in time"
        time.sleep(0.02)


def test_a_consumer_that_gets_sigterm_commits_and_leaves_its_group(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    values = [f"order {number}".encode() for number in range(100)]
    threaded_broker.create_topic("orders", 1)
    asyncio.run(send(threaded_broker.bootstrap_servers, values))
    program = ["consumer_group.py", "orders", "--group", "billing"]
    with _running(program, threaded_broker.bootstrap_servers, output) as process:
        _wait_until(lambda: output.read_text().count("\n") == 100, process)
    assert output.read_text().splitlines() == [
        f"0 {offset} {value!r}" for offset, value in enumerate(values)
    ]
    place = TopicPartition("orders", 0)
    assert threaded_broker.committed_offsets("billing") == {place: 100}
    assert threaded_broker.group("billing").members == {}


def test_a_relay_sends_the_events_that_other_processes_store(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers = threaded_broker.bootstrap_servers
    database = str(tmp_path / "orders.db")

    def events() -> list[bytes | None]:
        if "orders" not in threaded_broker.topics:
            return []
        return [record.value for record in threaded_broker.records("orders", committed_only=True)]

    def stored(number: int) -> bool:
        return len(events()) == number

    relay = ["outbox.py", database, "relay"]
    for number in (1, 2):  # the second relay continues where the first one stopped
        with _running(relay, servers, tmp_path / "output") as process:
            for item in ("tea", "milk"):
                subprocess.run(
                    [sys.executable, EXAMPLES / "outbox.py", database, "order", item],
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdout=subprocess.DEVNULL,
                    check=True,
                    timeout=LIMIT_S,
                )
            _wait_until(partial(stored, 2 * number), process)
    assert events() == [b"tea", b"milk"] * 2


def test_several_processes_create_the_tables_of_the_outbox(tmp_path: Path) -> None:
    """The first ones to start find none."""
    connect = runpy.run_path(str(EXAMPLES / "outbox.py"))["connect"]
    at_once = threading.Barrier(4, timeout=LIMIT_S)

    def start(database: Path) -> None:
        at_once.wait()
        with closing(connect(str(database))) as connection:
            assert not connection.execute("SELECT * FROM orders, aioprod_outbox").fetchall()

    with ThreadPoolExecutor(4) as threads:
        for number in range(5):
            list(threads.map(start, [tmp_path / f"{number}.db"] * 4))


def test_a_worker_retries_and_dead_letters_and_ends_cleanly(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    for name in ("orders", "orders.retry.1s", "orders.retry.1m", "orders.dead"):
        threaded_broker.create_topic(name, 1)
    orders = [b'{"customer": "42", "amount": %d}' % amount for amount in range(50)]
    asyncio.run(send(threaded_broker.bootstrap_servers, [*orders, b'{"amount": -1}', b"no order"]))
    program = ["processing_worker.py", "orders", "--group", "billing"]
    with _running(program, threaded_broker.bootstrap_servers, output) as process:
        # The refused order is in the topic of the second delay: its first one has passed.
        _wait_until(lambda: bool(threaded_broker.records("orders.retry.1m")), process)
        _wait_until(lambda: output.read_text().count("42 ") == 50, process)
    assert [record.value for record in threaded_broker.records("orders.dead")] == [b"no order"]
    (delayed,) = threaded_broker.records("orders.retry.1m")
    assert dict(delayed.headers)["aioprod.attempts"] == b"2"
    committed = threaded_broker.committed_offsets("billing")
    assert committed[TopicPartition("orders", 0)] == 52
    assert committed[TopicPartition("orders.retry.1s", 0)] == 1
    assert TopicPartition("orders.retry.1m", 0) not in committed
    assert threaded_broker.group("billing").members == {}


def test_workers_share_the_mails_of_one_partition(
    threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    servers = threaded_broker.bootstrap_servers
    for name in ("mails", "mails.dead"):
        threaded_broker.create_topic(name, 1)
    mails = [b'{"to": "%d@example.com"}' % number for number in range(200)]
    asyncio.run(send(servers, [*mails, b'{"to": "home"}', b"no mail"], "mails"))
    outputs = [tmp_path / name for name in ("first", "second")]

    def sent() -> list[str]:
        lines = "".join(output.read_text() for output in outputs).splitlines()
        return [line for line in lines if line.endswith("@example.com")]

    with (
        _running(["share_worker.py", "mails"], servers, outputs[0]) as process,
        _running(["share_worker.py", "mails"], servers, outputs[1]),
    ):
        _wait_until(lambda: len(sent()) == 200, process)
        _wait_until(lambda: len(threaded_broker.records("mails.dead")) == 2, process)
    assert len(set(sent())) == 200
    assert {record.value for record in threaded_broker.records("mails.dead")} == {
        b'{"to": "home"}',
        b"no mail",
    }
