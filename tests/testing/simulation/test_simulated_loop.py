"""The simulated loop: virtual time, a deterministic order for each seed, and clear errors for
what is not supported.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
import uuid
from collections.abc import Coroutine
from itertools import count
from typing import Any

import pytest

from aioprod.testing.simulation import SimulatedLoop, SimulationError, run

pytest_plugins = ("pytester",)


def running() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def test_waiting_costs_virtual_time_only() -> None:
    async def main() -> float:
        begun = running().time()
        await asyncio.sleep(86_400)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3_600)
        return running().time() - begun

    begun = time.perf_counter()
    assert 90_000 <= run(main()) < 90_001
    assert time.perf_counter() - begun < 5


def test_a_frozen_host_runs_late_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = running()
        seen: list[tuple[str, float]] = []

        async def tick(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                seen.append((name, round(loop.time() - begun)))

        begun = loop.time()
        with loop.network.host("app"):
            app = loop.create_task(tick("app"))
        other = loop.create_task(tick("other"))
        await asyncio.sleep(0.5)
        loop.hosts.freeze("app")
        await asyncio.sleep(9.5)
        loop.hosts.unfreeze("app")
        loop.hosts.unfreeze("app")
        await asyncio.wait([app, other])
        return seen

    others = [("other", 1), ("other", 2), ("other", 3)]
    assert run(main()) == [*others, ("app", 10), ("app", 11), ("app", 12)]


def test_data_for_a_frozen_host_waits() -> None:
    async def main() -> bytes:
        loop = running()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(5))
            await writer.drain()
            writer.close()

        with loop.network.host("server"):
            server = await loop.create_task(asyncio.start_server(echo, "h", 1_000))
        async with server:
            reader, writer = await asyncio.open_connection("h", 1_000)
            loop.hosts.freeze("server")
            writer.write(b"hello")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(5), 60)
            loop.hosts.unfreeze("server")
            answer = await reader.read(5)
            writer.close()
            return answer

    assert run(main()) == b"hello"


def test_polling_the_clock_ends_because_each_step_advances_it() -> None:
    async def main() -> int:
        until, rounds = running().time() + 0.0005, 0
        while running().time() < until:
            await asyncio.sleep(0)
            rounds += 1
        return rounds

    assert 100 < run(main()) < 1_000


def test_timers_of_the_same_time_fire_in_creation_order() -> None:
    async def main() -> list[int]:
        loop, fired = running(), list[int]()
        moment = loop.time() + 1
        timers = [loop.call_at(moment, fired.append, number) for number in range(2_000)]
        for timer in timers[1::2]:
            timer.cancel()
        await asyncio.sleep(2)
        return fired

    assert run(main()) == list(range(0, 2_000, 2))


def test_a_time_jump_makes_timers_late_and_a_jump_of_the_wall_clock_does_not() -> None:
    async def main() -> tuple[bool, float]:
        loop = running()
        fired = asyncio.Event()
        loop.call_later(60, fired.set)
        before = loop.wall_clock()
        loop.jump_wall_clock(-3_600)
        stepped_back = before - loop.wall_clock()
        await asyncio.sleep(0.001)
        assert not fired.is_set()
        loop.jump(61)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return fired.is_set(), stepped_back

    fired, stepped_back = run(main())
    assert fired
    assert stepped_back == pytest.approx(3_600)


async def _mixed() -> list[str]:
    """Collect tasks and futures from sets, whose order asyncio does not guarantee."""
    order: list[str] = []

    async def step(name: str) -> str:
        await asyncio.sleep(random.random() / 1000)
        order.append(name)
        return name

    tasks = {asyncio.get_running_loop().create_task(step(f"{number}")) for number in range(50)}
    done, _ = await asyncio.wait(tasks)
    order += [task.result() for task in done]
    futures = {asyncio.get_running_loop().create_future() for _ in range(50)}
    order += [str(hash(future)) for future in futures]
    order += [task.get_name() for task in done]
    return order


def test_the_same_seed_gives_the_same_order_of_sets() -> None:
    first, again, other = run(_mixed(), 1), run(_mixed(), 1), run(_mixed(), 2)
    assert first == again
    assert first != other


async def _finishing_order(count: int) -> list[int]:
    order: list[int] = []

    async def step(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        order.append(number)

    await asyncio.gather(*(step(number) for number in range(count)))
    return order


def test_hostile_shuffles_tasks_by_the_seed() -> None:
    assert run(_finishing_order(20)) == list(range(20))
    mixed = run(_finishing_order(20), 1, hostile=True)
    assert sorted(mixed) == list(range(20)) != mixed
    assert (
        mixed
        == run(_finishing_order(20), 1, hostile=True)
        != run(_finishing_order(20), 2, hostile=True)
    )


def test_hostile_keeps_the_order_of_call_soon() -> None:
    async def main() -> list[int]:
        called: list[int] = []
        for number in range(100):
            asyncio.get_running_loop().call_soon(called.append, number)
        await asyncio.sleep(0.1)
        return called

    assert run(main(), 3, hostile=True) == list(range(100))


async def _standard_library() -> tuple[object, ...]:
    await asyncio.sleep(random.random())
    return (
        time.time(),
        time.monotonic(),
        random.Random().random(),
        random.getrandbits(64),
        uuid.uuid4(),
        random.SystemRandom().random(),
    )


def test_time_and_random_numbers_of_the_standard_library_come_from_the_seed() -> None:
    state, clock, kind = random.getstate(), time.time, random.Random
    assert run(_standard_library(), 1) == run(_standard_library(), 1) != run(_standard_library(), 2)
    assert (random.getstate(), time.time, random.Random) == (state, clock, kind)
    assert random.Random().random() != random.Random().random()


def test_a_deadlock_names_the_waiting_task() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="waiting-task")

    with pytest.raises(SimulationError, match=r"seed 7(.|\n)*waiting-task"):
        run(main(), 7)


def test_a_time_limit_names_the_running_task() -> None:
    async def beat() -> None:
        for _ in count():
            await asyncio.sleep(1)

    async def main() -> None:
        await asyncio.get_running_loop().create_task(beat(), name="endless-task")

    with pytest.raises(SimulationError, match=r"time limit(.|\n)*endless-task"):
        run(main(), time_limit_seconds=100)


def test_a_spinning_task_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spin() -> None:
        for _ in count():
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.get_running_loop().create_task(spin(), name="spinning-task")

    monkeypatch.setattr("aioprod.testing.simulation.loop._MAX_STEPS_WITHOUT_WAITING", 5_000)
    with pytest.raises(SimulationError, match=r"spins(.|\n)*spinning-task"):
        run(main())


def test_remaining_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("left")

    async def main() -> None:
        asyncio.get_running_loop().create_task(left()).add_done_callback(
            lambda task: ended.append("done")
        )
        await asyncio.sleep(0)

    run(main())
    assert ended == ["left", "done"]


async def _thread() -> None:
    await asyncio.to_thread(time.sleep, 0)


async def _reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _datagrams() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )


async def _socket() -> None:
    with socket.socket() as raw:
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=raw)


async def _unknown_thread() -> None:
    errors: list[BaseException] = []

    def call(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(print)
        except SimulationError as error:
            errors.append(error)

    thread = threading.Thread(target=call, args=(asyncio.get_running_loop(),))
    thread.start()
    thread.join(10)
    raise errors[0]


@pytest.mark.parametrize(
    "work",
    [_thread(), _reader(), _process(), _datagrams(), _socket(), _unknown_thread()],
    ids=lambda work: work.__name__,
)
def test_threads_processes_and_real_sockets_are_refused(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(SimulationError, match="simulation"):
        run(work)


def test_works_with_asyncio_runner() -> None:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(5)) as runner:
        assert runner.run(asyncio.sleep(1_000, "slept")) == "slept"


CONFTEST = """
from functools import partial
from aioprod.testing.simulation import SimulatedLoop

def pytest_asyncio_loop_factories(config, item):
    return {f"seed {seed}": partial(SimulatedLoop, seed) for seed in range(3)}
"""
TESTS = """
import asyncio, random, time
from aioprod import Producer
from aioprod.testing import EmbeddedCluster

drawn = []

async def test_an_application():
    async with EmbeddedCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        asyncio.get_running_loop().network.cut_while_sending(cluster.address(1))
        begun = time.time()
        await asyncio.sleep(86_400)
        await (await producer.send("t", b"x"))
        assert time.time() - begun > 86_400
        assert len(cluster.records("t")) == 1
    drawn.append(random.random())

def test_each_seed_gives_different_random_numbers():
    assert len(set(drawn)) == 3
"""


def test_works_with_pytest_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error"
    )
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)
