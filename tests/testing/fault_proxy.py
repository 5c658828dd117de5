"""A TCP proxy that injects faults between a client and a real broker: it cuts connections, drops
responses, stalls, and delivers byte by byte.

It changes no bytes, so the broker must send clients to the proxy's port:
``Listener(advertised_port=...)``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class CutRequest:
    """Pass only the first ``after`` bytes of the request to the broker, then cut the connection."""

    after: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """Let the broker handle the request, pass only the first ``after`` bytes of the response, never
    all, then cut the connection.
    """

    after: int = 0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """Delay the request and those after it, even if the client has given up meanwhile."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Delay the request and those after it until ``until`` is set. Then set ``answered``, if given,
    when the broker has responded, even if the client is gone.
    """

    until: asyncio.Event
    answered: asyncio.Event | None = None


@dataclass(frozen=True, slots=True)
class SingleBytes:
    """Deliver the request and the response byte by byte."""


Fault = CutRequest | CutAnswer | Stall | Keep | SingleBytes
Plan = Callable[[int, int], Fault | None]
"""Chooses the fault of a request by its API key and its size in bytes."""


class RandomFaults:
    """Random faults from a seed. ``probability`` is that of any fault; ``longest_stall_s`` limits
    each stall.
    """

    def __init__(self, seed: int, probability: float, longest_stall_s: float) -> None:
        self._rng = random.Random(seed)
        self._probability = probability
        self._longest_stall_s = longest_stall_s

    def __call__(self, api_key: int, size: int) -> Fault | None:
        rng = self._rng
        if rng.random() >= self._probability:
            return None
        # Sequence numbers protect against lost acknowledgments, so these are frequent.
        match rng.choice(("request", "answer", "answer", "stall", "bytes")):
            case "request":
                return CutRequest(rng.randrange(size), reset=rng.random() < 0.5)
            case "answer":
                return CutAnswer(rng.choice((0, 0, 0, 3, 4, 9)), reset=rng.random() < 0.5)
            case "stall":
                return Stall(rng.uniform(0, self._longest_stall_s))
            case _:
                return SingleBytes()


class FaultProxy:
    """Listens on ``listening``, a bound socket that stays open, and forwards to ``target``
    ("host:port").

    Attributes:
        plan: called for every request; None passes it on.
        done: the number of faults, by kind and API key.
        passed: the number of requests that reached the broker completely, by API key.
        waiting: the number of requests and responses that are delayed.
    """

    def __init__(self, listening: socket.socket, target: str, plan: Plan | None = None) -> None:
        self.plan = plan
        self.done: Counter[tuple[type[Fault], int]] = Counter()
        self.passed: Counter[int] = Counter()
        self._listening = listening
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.waiting = 0
        self._requests_pass, self._answers_pass = asyncio.Event(), asyncio.Event()
        self.pass_all()

    def count(self, kind: type[Fault]) -> int:
        """Return the number of faults of this kind, for all APIs."""
        return sum(times for (done, _), times in self.done.items() if done is kind)

    def delay(self, *, requests: bool = False, answers: bool = False) -> None:
        """Delay all requests, responses or both, of old and new connections, until ``pass_all``."""
        if requests:
            self._requests_pass.clear()
        if answers:
            self._answers_pass.clear()

    def pass_all(self) -> None:
        """Deliver what was delayed, even if the client has given up meanwhile."""
        self._requests_pass.set()
        self._answers_pass.set()

    async def until_requests_pass(self) -> None:
        """Wait while requests are delayed."""
        await self._until(self._requests_pass)

    async def until_answers_pass(self) -> None:
        """Wait while responses are delayed."""
        await self._until(self._answers_pass)

    async def _until(self, passes: asyncio.Event) -> None:
        self.waiting += 1
        try:
            await passes.wait()
        finally:
            self.waiting -= 1

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, sock=self._listening.dup())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        clients = dict(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.gather(
            *(writer.wait_closed() for writer in clients.values()), return_exceptions=True
        )

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.get_running_loop().create_task(
            self._serve(reader, writer), name="fault-proxy"
        )
        self._clients[client] = writer
        client.add_done_callback(lambda done: self._clients.pop(done).close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return
        way = _Way(self, reader, writer, from_broker, to_broker)
        both = [
            asyncio.ensure_future(way.pass_requests()),
            asyncio.ensure_future(way.pass_answers()),
        ]
        try:
            await asyncio.gather(*both)
        except (OSError, asyncio.IncompleteReadError, _Cut):
            pass
        finally:
            # First, because the proxy may be closing and cancel this a second time.
            writer.close()
            to_broker.close()
            for each in both:
                each.cancel()
            await asyncio.gather(
                *both, writer.wait_closed(), to_broker.wait_closed(), return_exceptions=True
            )


class _Cut(Exception):
    """Both connections must end now."""


class _Way:
    """A client's connection and the proxy's connection to the broker."""

    def __init__(
        self,
        proxy: FaultProxy,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._from_client = from_client
        self._to_client = to_client
        self._from_broker = from_broker
        self._to_broker = to_broker
        self._answers: dict[int, tuple[CutAnswer | Keep | SingleBytes, int]] = {}

    async def pass_requests(self) -> None:
        while True:
            request = await _frame(self._from_client)
            api_key = int.from_bytes(request[4:6], "big")
            fault = (
                self._proxy.plan(api_key, len(request)) if self._proxy.plan is not None else None
            )
            match fault:
                case CutRequest():
                    await _write(self._to_broker, request[: fault.after])
                    self._cut(fault, api_key)
                case Stall():
                    self._proxy.done[Stall, api_key] += 1
                    await asyncio.sleep(fault.seconds)
                case Keep():
                    self._proxy.done[Keep, api_key] += 1
                    await fault.until.wait()
            if isinstance(fault, CutAnswer | Keep | SingleBytes):
                self._answers[int.from_bytes(request[8:12], "big")] = fault, api_key
            await self._proxy.until_requests_pass()
            await _write(self._to_broker, request, singly=isinstance(fault, SingleBytes))
            self._proxy.passed[api_key] += 1
            if isinstance(fault, Keep) and fault.answered is not None:
                await fault.answered.wait()  # a client that is gone would end both ways

    async def pass_answers(self) -> None:
        while True:
            answer = await _frame(self._from_broker)
            await self._proxy.until_answers_pass()
            fault, api_key = self._answers.pop(int.from_bytes(answer[4:8], "big"), (None, -1))
            if isinstance(fault, Keep) and fault.answered is not None:
                fault.answered.set()
            if isinstance(fault, CutAnswer):
                await _write(self._to_client, answer[: min(fault.after, len(answer) - 1)])
                self._cut(fault, api_key)
            if isinstance(fault, SingleBytes):
                self._proxy.done[SingleBytes, api_key] += 1
            await _write(self._to_client, answer, singly=isinstance(fault, SingleBytes))

    def _cut(self, fault: CutRequest | CutAnswer, api_key: int) -> None:
        self._proxy.done[type(fault), api_key] += 1
        if fault.reset:
            for end in (self._to_client, self._to_broker):
                # The other side loses what it has not read yet.
                end.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        raise _Cut


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Read the next request or response, with the four bytes of its size."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def _write(writer: asyncio.StreamWriter, data: bytes, *, singly: bool = False) -> None:
    for part in [data[at : at + 1] for at in range(len(data))] if singly else [data]:
        writer.write(part)
        await writer.drain()
        if singly:
            await asyncio.sleep(0)  # a reader on this loop gets each byte separately
