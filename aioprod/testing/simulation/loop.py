"""An event loop with virtual time: waiting takes no real time, and the same seed gives the same
run, step by step.

The clock advances when nothing is ready, and by a microsecond with each step. Timers of the same
time fire in the order in which they were created. Tasks and futures hash by number, not by
address, so sets of them have a fixed order. Sockets, threads, processes and signals are not
supported; a simulated network is.
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

from aioprod.testing.simulation.hosts import Hosts
from aioprod.testing.simulation.network import Network
from aioprod.testing.simulation.server import SimulatedServer
from aioprod.testing.simulation.standard_library import SimulatedStandardLibrary
from aioprod.testing.simulation.trace import SimulationError, Trace

T = TypeVar("T")

_START_SECONDS = 1_000.0
# In 2033: compiled code reads the real clock, and brokers reject timestamps in the future.
_WALL_CLOCK_START_SECONDS = 2_000_000_000.0
# If the clock did not advance during steps, code that polls the clock would never end.
_STEP_SECONDS = 1e-6
_MAX_CANCELLED_TIMERS = 200
_CLEANUP_SECONDS = 60.0  # after the time limit
_MAX_STEPS_WITHOUT_WAITING = 1_000_000


class _OrderedFuture(asyncio.Future[Any]):
    """Hashes by a number that is assigned at the first use in a set or dict."""

    def __hash__(self) -> int:
        return _number(self)

    __eq__ = object.__eq__


class _OrderedTask(asyncio.Task[T]):
    def __hash__(self) -> int:
        return _number(self)

    __eq__ = object.__eq__


def _number(future: Any) -> int:
    number: int | None = getattr(future, "simulation_number", None)
    if number is None:
        number = future.simulation_number = future.get_loop().next_number()
    return number


class SimulatedLoop(asyncio.BaseEventLoop):
    """An asyncio event loop with virtual time and a simulated network.

    While the loop runs, the modules ``time``, ``random``, ``uuid`` and ``secrets`` use virtual time
    and the seed as well: see ``standard_library.py``.

    Args:
        seed: determines all random choices: latencies, how streams are split into pieces, and
            the generators that :meth:`random` returns.
        hostile: run ready tasks in random order. asyncio runs them in order, but does not
            guarantee it.
        time_limit_seconds: raise SimulationError when this virtual time has passed.
        keep_trace: keep a line of text for each event, in ``trace.lines``.

    Attributes:
        network: connects clients and servers in the loop, and injects faults.
        hosts: freezes the callbacks and tasks that run on a host.
        steps: the number of callbacks and task steps so far.
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
        self.trace: Trace = Trace(keep_lines=keep_trace)
        self.steps: int = 0
        self._steps_limit = _MAX_STEPS_WITHOUT_WAITING
        self._now = _START_SECONDS
        self._wall_offset = _WALL_CLOCK_START_SECONDS - _START_SECONDS
        self._limit = None if time_limit_seconds is None else self._now + time_limit_seconds
        self._ready: Any  # of BaseEventLoop: handles, oldest first
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._numbers = 0
        self._tasks_made = 0
        self._shuffle = self.random("schedule").shuffle if hostile else None
        self._standard_library = SimulatedStandardLibrary(
            self.time, self.wall_clock, self.random("ambient")
        )
        self.network: Network = Network(self, self.random("network"), self.trace)
        self.hosts: Hosts = Hosts(self._ready, self.note)

    # -- time and random numbers -------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def wall_clock(self) -> float:
        """Return the virtual time in seconds since 1970, as for
        ``Producer(clock=loop.wall_clock)``.
        """
        return self._now + self._wall_offset

    def jump(self, seconds: float) -> None:
        """Advance the clock at once, as if the machine had been suspended. All timers in that
        interval fire late.
        """
        self._now += seconds
        self.note(f"time jumps by {seconds} s")

    def jump_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative; the loop's time does not change."""
        self._wall_offset += seconds
        self.note(f"the wall clock jumps by {seconds} s")

    def random(self, name: str) -> random.Random:
        """Return a random number generator that depends only on the seed and on ``name``."""
        return random.Random(f"{self.seed} {name}")

    def note(self, text: str) -> None:
        """Add an event to the trace and so to the digest."""
        self.trace.note(self._now, text)

    def digest(self) -> str:
        """Return the digest of all events so far: equal for two runs of the same seed."""
        return f"{self.trace.digest()}-{self.steps}"

    # -- running -----------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main``, cancel the remaining tasks, close the loop and return the result. Can be
        called once.

        Raises:
            SimulationError: if all tasks wait forever, a task spins without waiting, or the time
                limit has passed.
        """
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            return runner.run(main)

    def run_forever(self) -> None:
        """Run until ``stop`` is called."""
        with self._standard_library:
            super().run_forever()

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._advance_clock()
        elif self.steps > self._steps_limit:
            self._steps_limit = self.steps + _MAX_STEPS_WITHOUT_WAITING
            raise SimulationError(
                f"{_MAX_STEPS_WITHOUT_WAITING} steps without waiting (seed {self.seed}); one of "
                f"these tasks spins:\n{self.describe_tasks()}"
            )
        if self._timers and self._timers[0][0] <= self._now:
            self._run_due_timers()
        if self._shuffle is not None:
            self._shuffle_tasks()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not (handle._cancelled or (self.hosts.frozen and self.hosts.contains(handle))):
                self._now += _STEP_SECONDS
                self.steps += 1
                handle._run()

    def _advance_clock(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise SimulationError(
                f"deadlock (seed {self.seed}); these tasks wait forever:\n{self.describe_tasks()}"
            )
        self._now = max(self._now, timers[0][0])
        self._steps_limit = self.steps + _MAX_STEPS_WITHOUT_WAITING
        if self._limit is not None and self._now > self._limit:
            self._limit = self._now + _CLEANUP_SECONDS
            raise SimulationError(
                f"the time limit has passed (seed {self.seed}); these tasks are still running:\n"
                f"{self.describe_tasks()}"
            )

    def _run_due_timers(self) -> None:
        timers, now, ready = self._timers, self._now, self._ready
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle.cancelled():
                self._timers_cancelled -= 1
            else:
                ready.append(handle)

    def _shuffle_tasks(self) -> None:
        """Shuffle the ready tasks; other callbacks keep their places, as call_soon guarantees
        their order.
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
        """Return where each unfinished task waits, one line each."""
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        return "\n".join(f"  {task.get_name()} {_location(task)}" for task in tasks)

    # -- overrides of asyncio ----------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Schedule a callback, as in asyncio."""
        self._check_closed()  # type: ignore[attr-defined]
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Schedule a callback.

        Raises:
            SimulationError: if called in another thread.
        """
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            raise SimulationError(
                "another thread calls into the simulation; the time of its calls is not "
                "deterministic"
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Schedule a callback in virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Schedule a callback in virtual time; those of the same time run in the order of the
        calls.
        """
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
        cancelled = self._timers_cancelled
        if cancelled > _MAX_CANCELLED_TIMERS and cancelled * 2 > len(self._timers):
            self._timers = [
                entry
                for entry in self._timers
                if not entry[2].cancelled() and entry[2] is not handle
            ]
            heapify(self._timers)
            self._timers_cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future whose place in a set is the same in each run."""
        return _OrderedFuture(loop=self)

    def create_task(self, coro: Any, **settings: Any) -> asyncio.Task[Any]:
        """Return a task whose name and place in a set are the same in each run."""
        self._tasks_made += 1
        if settings.get("name") is None:
            settings["name"] = f"Task-{self._tasks_made}"
        if self.get_task_factory() is not None:
            return super().create_task(coro, **settings)
        self._check_closed()  # type: ignore[attr-defined]
        return _OrderedTask(coro, loop=self, **settings)

    def next_number(self) -> int:
        """Return the next hash of a task or future."""
        self._numbers += 1
        return self._numbers

    def _write_to_self(self) -> None:
        pass

    def close(self) -> None:
        """Close the loop; drop all timers and connections."""
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
        """Connect within the simulated network.

        Raises:
            OSError: if connecting fails, as in a real loop.
        """
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
        """Create a server in the simulated network.

        Raises:
            OSError: if the port is in use.
        """
        return self.network.listen(
            protocol_factory, host, port, tls=ssl, start_serving=start_serving
        )

    async def getaddrinfo(self, host: Any, port: Any, **settings: Any) -> Any:
        """Resolve a host name in the simulated network."""
        return self.network.resolve(host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """Return the address itself: names and addresses are the same."""
        return str(sockaddr[0]), str(sockaddr[1])

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Raise SimulationError: the time at which a thread finishes is not deterministic."""
        raise SimulationError(
            f"{func!r} can't run in a thread: the simulation does not support threads"
        )


def _unsupported(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise SimulationError(
            f"loop.{name} is not supported: the simulation has no files, sockets, processes or "
            "signals"
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
    setattr(SimulatedLoop, _name, _unsupported(_name))


def _is_step(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


def _location(task: asyncio.Task[Any]) -> str:
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
    """Run ``main`` in a :class:`SimulatedLoop` and return its result, as ``asyncio.run`` does in a
    real loop.
    """
    return SimulatedLoop(seed, hostile=hostile, time_limit_seconds=time_limit_seconds).run(main)
