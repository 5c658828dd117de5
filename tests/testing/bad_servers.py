"""Brokers that work at first and then misbehave, and the virtual time that a call then takes."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aioprod.errors import KafkaError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.framing import encode_response
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing import EmbeddedCluster, throttle
from aioprod.testing.broker.actions import Pieces
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.simulation import SimulatedLoop

SILENT, MUTE, BABBLING, HALF, THROTTLING = (
    "silent",
    "mute",
    "babbling",
    "half answers",
    "endless throttle",
)
KINDS = (SILENT, MUTE, BABBLING, HALF, THROTTLING)
MAX_THROTTLE_MS = 2**31 - 1
# For cleaning up after a limit, and for the network.
GRACE_S = 1.5
HOPELESS_S = 3_600

ORDERS = "orders"


def go_bad(cluster: EmbeddedCluster, kind: str, rng: random.Random) -> None:
    """Make all nodes behave in one of these ways from now on.

    SILENT answers only ApiVersions; MUTE not even that. BABBLING sends random bytes, HALF the first
    half of each response. THROTTLING answers everything, with a throttle time of 24 days.
    """
    if kind == THROTTLING:
        for api_key in HANDLERS:
            cluster.on_every(api_key, throttle(MAX_THROTTLE_MS))
        return
    dispatcher: Any = cluster._dispatcher
    well = dispatcher.answer

    async def badly(frame: bytes, disconnected: asyncio.Future[None], *more: Any) -> Any:
        header = decode_request_header(frame)
        if kind == MUTE or (kind == SILENT and header.api_key != ApiKey.API_VERSIONS):
            await asyncio.Event().wait()
        answer = await well(frame, disconnected, *more)
        if header.api_key == ApiKey.API_VERSIONS:
            return answer
        if kind == BABBLING:
            return _babble(header.correlation_id, rng)
        return (
            Pieces([answer[: len(answer) // 2]], hang_up=False)
            if isinstance(answer, bytes)
            else answer
        )

    dispatcher.answer = badly


def coordinate(
    cluster: EmbeddedCluster, reply: Callable[[], ConsumerGroupHeartbeatResponse]
) -> list[float]:
    """Answer ConsumerGroupHeartbeat (KIP-848) with ``reply()``. Return the list to which the time
    of each is added.
    """
    api_key, heartbeats = int(ConsumerGroupHeartbeatRequest.API_KEY), list[float]()
    dispatcher: Any = cluster._dispatcher
    well = dispatcher.answer

    async def answer(frame: bytes, *more: Any) -> Any:
        header = decode_request_header(frame)
        if header.api_key != api_key:
            return await well(frame, *more)
        heartbeats.append(asyncio.get_running_loop().time())
        return encode_response(reply(), header.api_version, header.correlation_id)

    dispatcher.answer = answer
    return heartbeats


def _babble(correlation_id: int, rng: random.Random) -> bytes:
    # Few sizes from 16 to 512 MiB: these are valid, and clearing the first 64 MiB takes 20 ms.
    first = rng.choice([b"\0", b"\x7f", b"\xff"] * 13 + [b"\x10"])
    noise = first + rng.randbytes(rng.randrange(60))
    framed = struct.pack(">i", len(noise) + 4) + struct.pack(">i", correlation_id) + noise
    return rng.choice(
        [
            noise,
            framed,
            struct.pack(">i", -1),
            struct.pack(">i", 2**31 - 1),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ]
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A public coroutine and its limit.

    Attributes:
        call: starts it.
        limit_ms: when it has to be over.
        names: the words of its docstring about the limit.
        prepare: runs while the brokers still work.
        ready: whether the client is started while the brokers still work.
    """

    call: Callable[[Any], Awaitable[Any]]
    limit_ms: float
    names: tuple[str, ...]
    prepare: Callable[[Any], Awaitable[Any]] | None = None
    ready: bool = True


@dataclass(slots=True)
class Taken:
    """The result of a call: the virtual seconds it took, its error, and how many connections were
    made meanwhile.
    """

    seconds: float = 0.0
    error: BaseException | None = None
    connections: int = 0


class _Loop(SimulatedLoop):
    connections = 0

    async def create_connection(self, *args: Any, **more: Any) -> Any:
        self.connections += 1
        return await super().create_connection(*args, **more)


def time_of(row: Row, kind: str, make: Callable[[EmbeddedCluster], Any], seed: int = 1) -> Taken:
    """Make a client, make the brokers misbehave, and measure the time of the call."""
    loop = _Loop(seed, time_limit_seconds=2 * HOPELESS_S)
    taken = Taken()

    async def main() -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic(ORDERS)
            client = make(cluster)
            if row.ready:
                await client.start()
            if row.prepare is not None:
                await row.prepare(client)
            go_bad(cluster, kind, loop.random("babble"))
            begun, loop.connections = loop.time(), 0
            try:
                async with asyncio.timeout(HOPELESS_S):
                    await row.call(client)
            except (KafkaError, TimeoutError) as error:
                taken.error = error
            taken.seconds, taken.connections = loop.time() - begun, loop.connections
            await _abandon(client)

    loop.run(main())
    return taken


async def _abandon(client: Any) -> None:
    try:
        await client.close(timeout_ms=0)
    except TypeError:  # it has no limit
        await client.close()
