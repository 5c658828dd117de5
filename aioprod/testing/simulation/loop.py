"""An event loop whose time is virtual: it costs nothing to wait, and the same seed gives the same
run, step by step.

What makes it so: the clock moves only when nothing is ready (and by a microsecond with each step),
    timers of the same moment fire in the order in
which they were made, tasks and futures hash by number and not by address, so that sets of them have
one order, and there is nothing outside: no sockets, threads, processes or signals, but a network in
memory.
"""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio.events import Handle, TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar

from aioprod.testing.simulation.ambient import Ambient
from aioprod.testing.simulation.network import Network
from aioprod.testing.simulation.server import SimulatedServer
from aioprod.testing.simulation.trace import SimulationError, Trace

T = TypeVar("T")

_START_SECONDS = 1_000.0
# in 2033: a broker refuses timestamps of the future, such as a compiled program could take
_START_OF_WALL_CLOCK_SECONDS = 2_000_000_000.0
# a clock that stood still would never let a loop end that waits for the tiniest rest of a time
_STEP_SECONDS = 1e-6
_MANY_TIMERS = 200
_GRACE_SECONDS = 60.0  # for cleaning up behind a time limit
_MOST_STEPS_WITHOUT_WAITING = 1_000_000


class _NumberedFuture(asyncio.Future[Any]):
    """Hashes by a number given at the first use in a set or dict."""

    def __hash__(self) -> int:
        return _number(self)

    __eq__ = object.__eq__


class _NumberedTask(asyncio.Task[T]):
    def __hash__(self) -> int:
        return _number(self)

    __eq__ = object.__eq__


def _number(future: Any) -> int:
    number: int | None = getattr(future, "simulation_number", None)
    if number is None:
        number = future.simulation_number = future.get_loop().next_number()
    return number


class SimulatedLoop(asyncio.BaseEventLoop):
    """An asyncio event loop with virtual time and a network in memory.

    While it runs the modules ``time``, ``random``, ``uuid`` and ``secrets`` give virtual time and
    seeded chance as well: see ``ambient.py``.

    Args:
        seed: decides all that is left to chance: latencies, how streams are cut into pieces, and
            what :meth:`random` gives.
        hostile: take the tasks that are ready in a random order. Nothing promises an order between
            tasks, but asyncio keeps one.
        time_limit_seconds: raise SimulationError out of the run when so much virtual time has
            passed.
        keep_trace: keep a line of text for each thing that happens, in ``trace.lines``.

    Attributes:
        network: connects what runs in the loop, and fails on demand.
        steps: how many callbacks and steps of tasks were taken.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        hostile: bool = False,
        time_limit_seconds: float | None = None,
        keep_trace: bool = False,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.trace = Trace(keep_lines=keep_trace)
        self.steps = 0
        self._steps_limit = _MOST_STEPS_WITHOUT_WAITING
        self._now = _START_SECONDS
        self._wall_offset = _START_OF_WALL_CLOCK_SECONDS - _START_SECONDS
        self._limit = None if time_limit_seconds is None else self._now + time_limit_seconds
        self._ready: Any  # of BaseEventLoop: handles, oldest first
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._numbers = 0
        self._tasks_made = 0
        self._shuffle = self.random("schedule").shuffle if hostile else None
        self._ambient = Ambient(self.time, self.wall_clock, self.random("ambient"))
        self.network = Network(self, self.random("network"), self.trace)

    # -- time and chance ---------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def wall_clock(self) -> float:
        """Virtual seconds since 1970, for whoever takes a clock, such as
        ``Producer(clock=loop.wall_clock)``.
        """
        return self._now + self._wall_offset

    def jump(self, seconds: float) -> None:
        """Let so much time pass at once, as for a machine that was suspended: all timers of that
        time are late.
        """
        self._now += seconds
        self.note(f"time jumps by {seconds} s")

    def jump_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back where negative; the loop's own time goes on as
        before.
        """
        self._wall_offset += seconds
        self.note(f"the wall clock jumps by {seconds} s")

    def random(self, name: str) -> random.Random:
        """A source of chance that depends on the seed and on ``name`` only: what others draw does
        not change it.
        """
        return random.Random(f"{self.seed} {name}")

    def note(self, text: str) -> None:
        """Add a line to the trace: it tells in which order things happened, and counts for the
        digest.
        """
        self.trace.note(self._now, text)

    def digest(self) -> str:
        """A sum over everything that has happened: equal for two runs of the same seed."""
        return f"{self.trace.digest()}-{self.steps}"

    # -- running -----------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main`` to its end, cancel what tasks are left, close the loop and return the
        result; for once.

        Raises:
            SimulationError: nothing will ever happen any more and ``main`` is not at its end,
                something spins without ever waiting, or the time
            limit has passed.
        """
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            return runner.run(main)

    def run_forever(self) -> None:
        """Run until ``stop`` is called."""
        with self._ambient:
            super().run_forever()

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._let_time_pass()
        elif self.steps > self._steps_limit:
            self._steps_limit = self.steps + _MOST_STEPS_WITHOUT_WAITING
            raise SimulationError(
                f"all these steps without ever waiting (seed {self.seed}): something spins "
                f"among\n{self.describe_tasks()}"
            )
        if self._timers and self._timers[0][0] <= self._now:
            self._take_due_timers()
        if self._shuffle is not None:
            self._shuffle_tasks()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._now += _STEP_SECONDS
                self.steps += 1
                handle._run()

    def _let_time_pass(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise SimulationError(
                f"nothing will happen any more (seed {self.seed}), and these wait:\n"
                f"{self.describe_tasks()}"
            )
        self._now = max(self._now, timers[0][0])
        self._steps_limit = self.steps + _MOST_STEPS_WITHOUT_WAITING
        if self._limit is not None and self._now > self._limit:
            self._limit = self._now + _GRACE_SECONDS
            raise SimulationError(
                f"the time limit has passed (seed {self.seed}), and these run:\n"
                f"{self.describe_tasks()}"
            )

    def _take_due_timers(self) -> None:
        timers, now, ready = self._timers, self._now, self._ready
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle.cancelled():
                self._timers_cancelled -= 1
            else:
                ready.append(handle)

    def _shuffle_tasks(self) -> None:
        """Mix the steps of tasks among their places; other callbacks keep theirs, since call_soon
        promises their order.
        """
        ready = self._ready
        places = [index for index, handle in enumerate(ready) if _is_step(handle)]
        if len(places) > 1:
            handles = [ready[index] for index in places]
            assert self._shuffle is not None
            self._shuffle(handles)
            for index, handle in zip(places, handles, strict=True):
                ready[index] = handle

    def describe_tasks(self) -> str:
        """Where each task stands that is not at its end, a line each."""
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        return "\n".join(f"  {task.get_name()} {_place(task)}" for task in tasks)

    # -- what asyncio asks of a loop ---------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """As in asyncio: in the order of the calls."""
        self._check_closed()  # type: ignore[attr-defined]
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """As ``call_soon``; raises SimulationError in another thread."""
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            raise SimulationError(
                "a thread calls into the simulation: when it does so is beyond control"
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """As in asyncio, in virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """As in asyncio, in virtual time; those of the same moment in the order of the calls."""
        self._check_closed()  # type: ignore[attr-defined]
        handle = TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > _MANY_TIMERS and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [
                entry
                for entry in self._timers
                if not entry[2].cancelled() and entry[2] is not handle
            ]
            heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        """A future whose place in a set is the same in each run."""
        return _NumberedFuture(loop=self)

    def create_task(self, coro: Any, **settings: Any) -> asyncio.Task[Any]:
        """A task whose place in a set, and whose name, are the same in each run."""
        self._tasks_made += 1
        if settings.get("name") is None:
            settings["name"] = f"Task-{self._tasks_made}"
        if self.get_task_factory() is not None:
            return super().create_task(coro, **settings)
        self._check_closed()  # type: ignore[attr-defined]
        return _NumberedTask(coro, loop=self, **settings)

    def next_number(self) -> int:
        """The hash of the next task or future that needs one."""
        self._numbers += 1
        return self._numbers

    def _write_to_self(self) -> None:
        pass

    def close(self) -> None:
        """Forget what has not happened yet."""
        super().close()
        self._timers.clear()
        self.network.close()

    # -- the network -------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Any,
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        server_hostname: Any = None,
        **_: Any,
    ) -> tuple[asyncio.BaseTransport, Any]:
        """Connect within the simulated network. Raises OSError as a real loop does."""
        return await self.network.connect(
            protocol_factory, host, port, tls=ssl, server_hostname=server_hostname
        )

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        start_serving: bool = True,
        **_: Any,
    ) -> SimulatedServer:
        """Listen in the simulated network. Raises OSError where somebody has that port."""
        return self.network.listen(
            protocol_factory, host, port, tls=ssl, start_serving=start_serving
        )

    async def getaddrinfo(self, host: Any, port: Any, **settings: Any) -> Any:
        """Look up a name in the simulated network."""
        return self.network.look_up(host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """The name is the address."""
        return str(sockaddr[0]), str(sockaddr[1])

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Raises SimulationError: when a thread is at its end is beyond control."""
        raise SimulationError(
            f"{func!r} was to run in a thread, which the simulation does not have"
        )


def _outside(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise SimulationError(
            f"loop.{name} reaches outside of the simulation, which has a network in memory "
            "and nothing else"
        )

    return refuse


for _name in (
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendto",
    "sock_connect",
    "sock_accept",
    "sock_sendfile",
    "sendfile",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_shell",
    "subprocess_exec",
    "add_signal_handler",
    "remove_signal_handler",
    "set_default_executor",
):
    setattr(SimulatedLoop, _name, _outside(_name))


def _is_step(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


def _place(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    where = f"at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return f"{getattr(task.get_coro(), '__qualname__', '')} {where}"


def run(
    main: Coroutine[Any, Any, T],
    seed: int = 0,
    *,
    hostile: bool = False,
    time_limit_seconds: float | None = None,
) -> T:
    """Run ``main`` in a :class:`SimulatedLoop`, as ``asyncio.run`` does in a real one, and return
    its result.
    """
    return SimulatedLoop(seed, hostile=hostile, time_limit_seconds=time_limit_seconds).run(main)
