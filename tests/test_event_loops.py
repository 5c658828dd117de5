"""The package runs on every event loop: it uses nothing that only asyncio's own loops have.

``pytest --loop=uvloop`` runs the whole suite on another loop; the tests here find what such a run
reaches only by chance, such as the handle of a timer that is due at once.
"""

from __future__ import annotations

import ast
import asyncio
import random
import sys
from asyncio import base_events, events, selector_events, sslproto
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
import uvloop.loop

from aioprod import (
    Admin,
    BrokerConnectionError,
    BufferExhaustedError,
    CommitFailedError,
    KafkaTimeoutError,
    Producer,
)
from aioprod.config import AdminConfig
from aioprod.consumer.commit_queue import CommitQueue
from aioprod.earliest_timer import EarliestTimer
from aioprod.net.brokers import BrokerAddress, Brokers
from aioprod.processing import Processor, Record
from aioprod.protocol.api_keys import ApiKey
from aioprod.running_loop import start_task
from aioprod.testing import EmbeddedCluster, hold
from tests.loops import VirtualLoop, factory
from tests.test_architecture import FILES, tree
from tests.waiting import until

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "virtual": VirtualLoop,
}
# The simulation is an event loop itself, made of asyncio's.
OWN_LOOP = "aioprod.testing.simulation"
# uvloop has these, but they raise NotImplementedError.
NOT_IMPLEMENTED = {
    *("sendfile", "sock_recvfrom", "sock_recvfrom_into", "sock_sendfile", "sock_sendto"),
}
# Calls of `when`, which has the same name in asyncio.Timeout: its deadline on any loop.
OF_TIMEOUTS = {"aioprod.cluster.runtime": ["limit.when"]}


def attributes(*sources: object) -> set[str]:
    return {name for each in sources for name in dir(each) if not name.startswith("__")}


def only_in_asyncio() -> set[str]:
    """The attributes of asyncio's loops, handles, transports and servers that uvloop's lack."""
    loops = [asyncio.new_event_loop(), uvloop.new_event_loop()]
    for each in loops:
        each.close()
    of_asyncio = attributes(
        loops[0],
        events.TimerHandle,
        base_events.Server,
        selector_events._SelectorSocketTransport,  # type: ignore[attr-defined]
        sslproto._SSLProtocolTransport,
    )
    types: Any = uvloop.loop
    of_uvloop = attributes(
        loops[1],
        types.Handle,  # what call_at returns if the time has come
        types.Server,
        types.TCPTransport,
        types._SSLProtocolTransport,
    )
    return of_asyncio - of_uvloop


# A transport's max_size is a constant of asyncio, and the name of settings here.
ONLY_IN_ASYNCIO = only_in_asyncio() - {"max_size"} | NOT_IMPLEMENTED
# Modules and classes that make up asyncio's own loops.
INTERNAL = {
    f"asyncio.{name}"
    for name in (
        *("base_events", "base_futures", "base_subprocess", "base_tasks", "constants", "events"),
        *("format_helpers", "futures", "log", "mixins", "proactor_events", "protocols"),
        *("selector_events", "sslproto", "staggered", "tasks", "transports", "trsock"),
        *("unix_events", "windows_events", "windows_utils", "BaseEventLoop", "TimerHandle"),
        *("SelectorEventLoop", "ProactorEventLoop", "DefaultEventLoopPolicy"),
    )
}


def uses(source: ast.AST) -> Iterator[str]:
    """Yield the uses of features that only asyncio's own event loops have."""
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if (node.attr in ONLY_IN_ASYNCIO and not own) or text in INTERNAL:
                yield text
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in INTERNAL)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            named = {f"{node.module}.{each.name}" for each in node.names} | {node.module}
            yield from sorted(named & INTERNAL)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr", "setattr")
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value in ONLY_IN_ASYNCIO
        ):
            yield ast.unparse(node)


def test_nothing_is_used_that_only_asyncios_own_loops_have() -> None:
    found = {
        name: list(uses(tree(name)))
        for name in FILES
        if not name.startswith(OWN_LOOP) and "asyncio" in FILES[name].read_text()
    }
    assert {name: each for name, each in found.items() if each} == OF_TIMEOUTS, (
        "use what every event loop has; EarliestTimer keeps the due time of a timer"
    )


def test_the_attributes_are_those_of_the_installed_versions() -> None:
    assert {"when", "_when", "_ready", "_scheduled", "_selector", "_sock"} <= ONLY_IN_ASYNCIO
    assert not {"call_at", "cancel", "get_extra_info", "sockets", "time"} & ONLY_IN_ASYNCIO


@pytest.mark.parametrize(
    "code",
    [
        "self._timer.when()",
        "loop._ready.append(1)",
        "asyncio.get_running_loop()._scheduled",
        "loop._selector.get_map()",
        "transport._sock.fileno()",
        "writer.transport._extra",
        "getattr(handle, '_when')",
        "timer: asyncio.TimerHandle",
        "from asyncio import TimerHandle",
        "from asyncio.events import Handle",
        "import asyncio.selector_events",
        "isinstance(loop, asyncio.BaseEventLoop)",
        "server._start_serving()",
        "await loop.sock_sendto(sock, data, address)",
    ],
)
def test_each_kind_of_use_is_found(code: str) -> None:
    assert list(uses(ast.parse(code)))


def run(kind: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        runner.run(main())


@pytest.mark.parametrize("kind", LOOPS)
class TestEarliestTimer:
    @pytest.mark.parametrize("after_s", [-1.0, 0.0, 0.0001, 0.0004, 0.0006, 0.003])
    def test_it_is_called_once_and_never_early(self, kind: str, after_s: float) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            called: asyncio.Queue[float] = asyncio.Queue()
            timer = EarliestTimer(called.put_nowait)
            for _ in range(50):
                due = loop.time() + after_s
                timer.set(due + 0.001)
                timer.set(due)
                timer.set(due + 0.001)  # later: keeps the first
                assert timer.due == due
                assert await asyncio.wait_for(called.get(), 5) >= due
                await asyncio.sleep(0.002)
                assert called.empty()
                assert timer.due == float("inf")

        run(kind, main)

    def test_it_may_be_set_again_by_its_call_and_stopped(self, kind: str) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            called: asyncio.Queue[float] = asyncio.Queue()

            def again(now: float) -> None:
                called.put_nowait(now)
                timer.set(now)

            timer = EarliestTimer(again)
            timer.set(loop.time())
            for _ in range(3):
                await asyncio.wait_for(called.get(), 5)
            timer.stop()
            timer.stop()
            calls = called.qsize()
            await asyncio.sleep(0.005)
            assert called.qsize() == calls

        run(kind, main)


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("max_block_ms", [0, 1])
def test_a_send_without_time_to_wait(kind: str, max_block_ms: int) -> None:
    """On uvloop the timer of a deadline that has come is a handle without ``when()``."""

    async def main() -> None:
        async with EmbeddedCluster() as broker:
            broker.create_topic("t", 1)
            async with Producer(
                broker.bootstrap_servers,
                buffer_memory=40_000,
                batch_size=16_384,
                max_block_ms=max_block_ms,
            ) as producer:
                while True:  # the topic has to be known: there is no time to wait for it
                    try:
                        await producer.send_and_wait("t", b"x")
                        break
                    except KafkaTimeoutError:
                        await asyncio.sleep(0.01)
                kept_back = broker.on(ApiKey.PRODUCE, hold())
                outcomes = await asyncio.gather(
                    *(producer.send("t", b"v" * 9_000) for _ in range(40)), return_exceptions=True
                )
                kept_back.release()
        refused = [each for each in outcomes if isinstance(each, BaseException)]
        assert {type(each) for each in refused} == {BufferExhaustedError}
        assert len(refused) == 38

    run(kind, main)


# What starts tasks by itself: `start_task`, the simulation's loop, task groups, whose tasks nothing
# reads before they end, and what has a future, which is not a task.
STARTS_TASKS = {
    "aioprod.running_loop": ["asyncio.Task", "loop.create_task"],
    OWN_LOOP + ".loop": ["super().create_task"],
    "aioprod.processing.guarantees": ["asyncio.ensure_future"],
    "aioprod.cli.copy": ["group.create_task", "group.create_task"],
    "aioprod.spark.coordination": ["group.create_task"],
}


def starts_of_tasks(source: ast.AST) -> list[str]:
    """The calls that start a task, which a task factory may begin at once."""
    return sorted(
        ast.unparse(node.func)
        for node in ast.walk(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr in ("create_task", "ensure_future")
            or ast.unparse(node.func) == "asyncio.Task"
        )
    )


def test_tasks_begin_after_their_callers_turn() -> None:
    found = {
        name: starts_of_tasks(tree(name))
        for name in FILES
        if "asyncio" in FILES[name].read_text() and not name.startswith("aioprod._tools")
    }
    assert {name: each for name, each in found.items() if each} == STARTS_TASKS, (
        "use start_task: asyncio.eager_task_factory begins a task before the caller has stored it"
    )


def test_a_task_of_the_library_is_not_begun_by_a_task_factory() -> None:
    class Begun(Exception):
        pass

    def begin_at_once(loop: object, work: Coroutine[Any, Any, Any], **options: object) -> Any:
        work.close()
        raise Begun

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(begin_at_once)  # type: ignore[arg-type]  # any coroutine
        order = []

        async def work() -> None:
            order.append("work")

        task = start_task(work(), name="a-name")
        order.append("caller")
        await task
        assert task.get_name() == "a-name"
        loop.set_task_factory(None)
        return order

    for kind in LOOPS.values():
        with asyncio.Runner(loop_factory=kind) as runner:
            assert runner.run(main()) == ["caller", "work"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
@pytest.mark.parametrize("concurrency", [1, 3, 2_000])
def test_a_processor_with_eager_tasks(concurrency: int) -> None:
    """Handlers that do not wait were called by the loop that starts them, one within another."""
    wanted = [b"%d" % number for number in range(4_000)]

    async def main() -> None:
        handled: list[bytes] = []

        async def handle(record: Record[bytes | None, bytes | None]) -> None:
            assert record.value is not None
            handled.append(record.value)

        async with EmbeddedCluster() as broker:
            broker.create_topic("t", 1)
            async with Producer(broker.bootstrap_servers) as producer:
                for value in wanted:
                    await producer.send("t", value, key=value)
            async with Processor(
                handle,
                "t",
                bootstrap_servers=broker.bootstrap_servers,
                group_id="g",
                order="key",
                concurrency=concurrency,
                consumer={"auto_offset_reset": "earliest"},
            ):
                await until(lambda: len(handled) >= len(wanted))
            assert sorted(handled) == sorted(wanted)
            async with Admin(broker.bootstrap_servers) as admin:
                committed = await admin.list_consumer_group_offsets("g")
            assert [each.offset for each in committed.values() if each] == [len(wanted)]

    with asyncio.Runner(loop_factory=factory("eager", virtual=False)) as runner:
        runner.run(asyncio.wait_for(main(), 60))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
def test_an_eager_task_that_fails_at_once_does_not_count_as_running() -> None:
    async def main() -> None:
        config = AdminConfig(bootstrap_servers=("127.0.0.1:1",))
        brokers = Brokers(config, random.Random(1))
        brokers.update_nodes({1: BrokerAddress(1, "broker", -1)})
        for _ in range(2):
            with pytest.raises(BrokerConnectionError, match="-1"):
                await brokers.connection(1)
            assert not brokers.connecting(1)
        await brokers.close()

    with asyncio.Runner(loop_factory=factory("eager", virtual=False)) as runner:
        runner.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
def test_a_commit_that_is_refused_at_once_delays_no_other() -> None:
    class Refusing:
        commits = 0

        async def commit(self, offsets: object, deadline: float) -> None:
            self.commits += 1
            raise CommitFailedError("refused")

    async def main() -> None:
        membership: Any = Refusing()
        queue = CommitQueue(membership, 1_000)
        for _ in range(2):
            with pytest.raises(CommitFailedError):
                await asyncio.wait_for(queue.add({}), 5)
        assert membership.commits == 2
        await queue.close()

    with asyncio.Runner(loop_factory=factory("eager", virtual=False)) as runner:
        runner.run(main())
