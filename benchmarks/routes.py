"""Counts how often execution moves from file to file on the most important routes through aioprod.

Each route runs against an embedded broker, in virtual time and without the accelerator. A call of a
function in another file than that of the call before is a move. A move to a file that the route has
entered before is a return. The broker's own work is not counted, nor are the event loop and the
simulated network. Many returns mean that a decision is spread over several files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aioprod
from aioprod import Consumer, Producer, TopicPartition, native
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.testing.simulation import run

PACKAGE = str(Path(aioprod.__file__).parent) + os.sep
BROKER = str(Path(PACKAGE, "testing")) + os.sep
SIMULATION = str(Path(BROKER, "simulation")) + os.sep
# Callbacks and steps of tasks begin here; what the event loop does before belongs to no route.
EVENTS = asyncio.events.__file__
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
_ARRIVAL = ("net/stream.py", "buffer_updated"), ("net/stream.py", "data_received")


@dataclass(slots=True)
class Route:
    """The files of a route, in the order of the calls, without repetitions in a row.

    Attributes:
        calls: file and function of each call.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def path(self) -> list[str]:
        """The files in the order in which they were entered."""
        return [
            file
            for number, (file, _) in enumerate(self.calls)
            if number == 0 or self.calls[number - 1][0] != file
        ]

    @property
    def moves(self) -> int:
        """The number of times that the route enters a file from another one, or from outside."""
        return len(self.path)

    @property
    def files(self) -> int:
        """The number of different files."""
        return len(set(self.path))

    @property
    def returns(self) -> int:
        """The number of times that the route enters a file that it has left before."""
        return self.moves - self.files

    def since(self, *functions: tuple[str, str]) -> Route:
        """Return the part from the first call of one of these functions on."""
        for number, call in enumerate(self.calls):
            if call in functions:
                return Route(self.calls[number:])
        raise LookupError(f"the route has no call of {functions}")


class Recorder:
    """Records the calls of functions of aioprod's clients.

    Args:
        task: if given, only calls of this task count, not those of callbacks and other tasks.
    """

    def __init__(self, task: asyncio.Task[Any] | None = None) -> None:
        self.route = Route()
        self._task = task
        self._seen: set[FrameType] = set()  # a coroutine is called once, however often it resumes

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """See ``sys.setprofile``."""
        if event != "call" or frame in self._seen:
            return
        if not _is_client(frame.f_code) or _is_work_of_broker(frame):
            return
        if self._task is not None and asyncio.current_task() is not self._task:
            return
        self._seen.add(frame)
        file = frame.f_code.co_filename.removeprefix(PACKAGE)
        self.route.calls.append((file.replace(os.sep, "/"), frame.f_code.co_name))


def _is_client(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(PACKAGE) and not file.startswith(BROKER)


def _is_work_of_broker(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != EVENTS:
        file = frame.f_code.co_filename
        if file.startswith(BROKER) and not file.startswith(SIMULATION):
            return True
        frame = frame.f_back
    return False


@contextmanager
def recorded(task: asyncio.Task[Any] | None = None) -> Iterator[Route]:
    """Record the calls in the block."""
    recorder = Recorder(task)
    sys.setprofile(recorder)
    try:
        yield recorder.route
    finally:
        sys.setprofile(None)


@asynccontextmanager
async def producing(**settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, Producer]]:
    """Run a producer that has already sent a record, with an idle connection."""
    async with EmbeddedCluster() as broker:
        broker.create_topic(TOPIC, 1)
        async with Producer(broker.bootstrap_servers, **{"linger_ms": 0, **settings}) as producer:
            await producer.send_and_wait(TOPIC, b"first")
            await asyncio.sleep(1)
            yield broker, producer


async def fast_send() -> Route:
    """A record of bytes for an open batch."""
    async with producing(linger_ms=100) as (_, producer):
        await producer.send(TOPIC, b"a")
        with recorded() as route:
            await producer.send(TOPIC, b"b")
    return route


async def send_that_opens_a_batch() -> Route:
    """A record of bytes for a partition without a batch."""
    async with producing() as (_, producer):
        with recorded() as route:
            await producer.send(TOPIC, b"a")
    return route


async def slow_send() -> Route:
    """A record that the fast path does not take, for a partition without a batch."""
    async with producing() as (_, producer):
        with recorded() as route:
            await producer.send(TOPIC, b"a", timestamp_ms=0)
    return route


async def slow_send_that_waits() -> Route:
    """A record that waits for memory; what its own task calls."""
    async with producing(batch_size=1_000, buffer_memory=1_100) as (broker, producer):
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released), times=1)
        await producer.send(TOPIC, b"a" * 700)

        async def send() -> Route:
            with recorded(asyncio.current_task()) as route:
                await producer.send(TOPIC, b"b" * 700)
            return route

        sending = asyncio.create_task(send())
        await broker.wait_for_request(ApiKey.PRODUCE)
        await asyncio.sleep(1)
        assert not sending.done()
        released.set()
        return await sending


async def sender_to_acknowledgement() -> Route:
    """From the turn after ``send`` until the record's task has its metadata."""
    async with producing() as (_, producer):
        delivery = await producer.send(TOPIC, b"a")
        with recorded() as route:
            await delivery
    return route


async def refused_produce() -> Route:
    """From a response with an error until the record's task has the error."""
    async with producing() as (broker, producer):
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        delivery = await producer.send(TOPIC, b"a")
        with recorded() as route:
            try:
                await delivery
            except aioprod.BrokerError:
                pass
            else:
                raise AssertionError("the record was stored")
    return route.since(*_ARRIVAL)


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[Producer, Consumer]]:
    """Run a consumer that waits for records, and a producer."""
    async with (
        producing() as (broker, producer),
        Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        await consumer.getone()
        yield producer, consumer


async def fetch_to_getone() -> Route:
    """From a response to Fetch until the first record is returned."""
    async with reading() as (producer, consumer):
        task = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.1)
        await producer.send_many(TOPIC, [b"a", b"b"])
        await producer.flush()
        with recorded() as route:
            await task
    return route.since(*_ARRIVAL)


async def prepared_getone() -> Route:
    """The next record of a response of which one was returned."""
    async with reading() as (producer, consumer):
        await producer.send_many(TOPIC, [b"a", b"b", b"c"])
        await producer.flush()
        await consumer.getone()
        await consumer.getone()
        with recorded() as route:
            await consumer.getone()
    return route


ROUTES: dict[str, Callable[[], Coroutine[Any, Any, Route]]] = {
    "fast send": fast_send,
    "send that opens a batch": send_that_opens_a_batch,
    "slow send": slow_send,
    "slow send that waits": slow_send_that_waits,
    "sender to acknowledgement": sender_to_acknowledgement,
    "refused Produce": refused_produce,
    "fetch to getone": fetch_to_getone,
    "prepared getone": prepared_getone,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", default=",".join(ROUTES), help="names, separated by commas")
    parser.add_argument("--paths", action="store_true", help="print the files in their order")
    parser.add_argument("--functions", action="store_true", help="print all calls in their order")
    parser.add_argument("--json", action="store_true", help="print the files as JSON")
    chosen = parser.parse_args(arguments)
    if native.in_use:  # in C nothing is seen
        command = [sys.executable, "-m", "benchmarks.routes", *(arguments or sys.argv[1:])]
        subprocess.run(command, env={**os.environ, "AIOPROD_PURE": "1"}, check=True)
        return
    routes = {name: run(ROUTES[name](), 0) for name in chosen.routes.split(",")}
    if chosen.json:
        print(json.dumps({name: route.path for name, route in routes.items()}))
        return
    print(f"{'route':28}{'moves':>8}{'files':>8}{'returns':>9}")
    for name, route in routes.items():
        print(f"{name:28}{route.moves:8}{route.files:8}{route.returns:9}")
        if chosen.paths:
            print("    " + " > ".join(route.path))
        if chosen.functions:
            print("\n".join(f"    {file} {function}" for file, function in route.calls))


if __name__ == "__main__":
    main()
