"""Writers, relays, processors with an inbox, PostgreSQL and brokers are killed at random. Then the
ledger of committed rows is compared with Kafka's records and with the effects in the database.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aioprod.processing import inbox
from aioprod.testing import ThreadedCluster
from aioprod.testing.real_cluster import RealCluster
from tests.interop.programs.reading import read_all
from tests.outbox.members import KEYS, PARTITIONS, TABLES, TOPIC
from tests.outbox.postgres_server import PostgresServer
from tests.waiting import programs_per_core, until

if TYPE_CHECKING:
    import asyncpg

LEASE_MS = 1_000
SHARDS = 4
NUMBERS = {"writer": 2, "relay": 3, "processor": 2}
_REPOSITORY = Path(__file__).parents[2]
_END_S = 120.0
_ROWS_BETWEEN_EVENTS = 5
#: Key and number, in order.
Pairs = list[tuple[int, int]]


class Brokers(Protocol):
    """A cluster."""

    servers: str

    async def kill(self, choices: random.Random) -> None:
        """Kill a broker, which starts again later."""

    async def repair(self) -> None:
        """Wait until all brokers run."""

    async def read(self) -> Pairs:
        """Return the committed records, in the order of each partition."""


class EmbeddedBrokers:
    """An embedded cluster, whose brokers are not killed."""

    def __init__(self, cluster: ThreadedCluster) -> None:
        self._cluster = cluster
        self.servers = cluster.bootstrap_servers

    async def kill(self, choices: random.Random) -> None:
        """See :class:`Brokers`."""
        raise NotImplementedError

    async def repair(self) -> None:
        """See :class:`Brokers`."""

    async def read(self) -> Pairs:
        """See :class:`Brokers`."""
        found = self._cluster.records(TOPIC, committed_only=True)
        return [(int(each.key or b""), int(each.value or b"")) for each in found]


class RealBrokers:
    """A cluster of Kafka, of which one node at a time is dead."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._starting: asyncio.Task[None] | None = None
        self.servers = cluster.bootstrap_servers

    async def kill(self, choices: random.Random) -> None:
        """See :class:`Brokers`."""
        await self.repair()
        node = choices.choice(self._cluster.node_ids)
        await asyncio.to_thread(self._cluster.kill, node)
        self._starting = asyncio.create_task(asyncio.to_thread(self._cluster.restart, node))

    async def repair(self) -> None:
        """See :class:`Brokers`."""
        if self._starting is not None:
            await self._starting

    async def read(self) -> Pairs:
        """See :class:`Brokers`; read by librdkafka."""
        found = await read_all(self.servers, TOPIC, PARTITIONS, committed_only=True)
        return [(int(each.key or b""), int(each.value or b"")) for each in found]


class Processes:
    """The processes of the application.

    Args:
        url: the database.
        servers: the brokers.
        pause_s: the pause of a writer after each row.
    """

    def __init__(self, url: str, servers: str, pause_s: float) -> None:
        member = [sys.executable, "-m", "tests.outbox.members"]
        relay = [sys.executable, "-m", "aioprod", "outbox", "relay", url, "-b", servers]
        self._commands = {
            "writer": [*member, "writer", url, str(pause_s)],
            "processor": [*member, "processor", url, servers],
            "relay": [*relay, "--shards", str(SHARDS), "--lease-ms", str(LEASE_MS),
                      "--max-batch-records", "50"],
        }  # fmt: skip
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {kind: [] for kind in NUMBERS}
        self._paused: set[subprocess.Popen[bytes]] = set()

    def fill(self, kinds: Iterable[str] = NUMBERS) -> None:
        """Start processes in the place of those that have ended."""
        for kind in kinds:
            running = [each for each in self._running[kind] if each.poll() is None]
            while len(running) < NUMBERS[kind]:
                command = self._commands[kind]
                running.append(
                    subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=_REPOSITORY)
                )
            self._running[kind] = running

    def kill(self, kind: str, choices: random.Random) -> None:
        """Kill a process of this kind."""
        self._kill(choices.choice(self._running[kind]))

    def kill_all(self, kind: str) -> None:
        """Kill all processes of this kind."""
        for process in self._running[kind]:
            self._kill(process)

    def pause_or_continue(self, choices: random.Random) -> None:
        """Pause a process, or continue it if it is paused."""
        kind = choices.choice(("relay", "relay", "processor"))
        self._switch(choices.choice(self._running[kind]))

    def continue_all(self) -> None:
        """Continue those that are paused."""
        for process in list(self._paused):
            self._switch(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(10)
        self._paused.discard(process)

    def _switch(self, process: subprocess.Popen[bytes]) -> None:
        paused = process in self._paused
        process.send_signal(signal.SIGCONT if paused else signal.SIGSTOP)
        self._paused ^= {process}


def by_key(pairs: Pairs) -> dict[int, list[int]]:
    """Return the numbers of each key, in their order."""
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for key, number in pairs:
        found[key].append(number)
    return found


async def disturb(
    kinds: tuple[str, ...],
    kills: int,
    seed: int,
    server: PostgresServer,
    brokers: Brokers,
    pause_s: float = 0.002,
) -> str:
    """Kill parts of these kinds, and check that each committed row is in Kafka once, in the order
    of its key, and has its effect in the database once.

    Args:
        kinds: parts that are killed; ``pause`` pauses and continues relays and processors, and does
            not count as a kill.
        pause_s: the pause of a writer after each row.

    Returns:
        What happened.
    """
    import asyncpg

    choices = random.Random(seed)
    connection = await asyncpg.connect(server.url)
    await connection.execute(inbox.ddl("postgresql") + TABLES)
    await connection.close()
    processes = Processes(server.url, brokers.servers, pause_s)
    killed: Counter[str] = Counter()
    try:
        processes.fill()
        await _until_more(server.url, "effects", 1)
        while killed.total() - killed["pause"] < kills:
            processes.fill()
            await asyncio.sleep(choices.random() * 1.5 * LEASE_MS / 1_000)
            await _until_more(server.url, "ledger", _ROWS_BETWEEN_EVENTS)
            kind = choices.choice(kinds)
            killed[kind] += 1
            if kind == "pause":
                processes.pause_or_continue(choices)
            elif kind == "database":
                await asyncio.to_thread(server.kill_processes)
                await asyncio.to_thread(server.start)
            elif kind == "broker":
                await brokers.kill(choices)
            else:
                processes.kill(kind, choices)
        processes.kill_all("writer")
        await brokers.repair()
        processes.continue_all()
        ledger, effects, take_overs = await _drained(server.url, processes)
    finally:
        await brokers.repair()
        for kind in NUMBERS:
            processes.kill_all(kind)
    expected = by_key(ledger)
    assert by_key(await brokers.read()) == expected, f"seed {seed}: Kafka differs from the ledger"
    assert by_key(effects) == expected, f"seed {seed}: the effects differ from the ledger"
    assert take_overs >= SHARDS
    counted = ", ".join(f"{number} x {kind}" for kind, number in sorted(killed.items()))
    return f"seed {seed}: {counted}; {len(ledger)} rows, {take_overs} take-overs"


async def _until_more(url: str, table: str, more: int) -> None:
    """Wait until a table has more rows than before."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        count = f"SELECT count(*) >= $1 FROM {table}"
        wanted = more + await connection.fetchval(f"SELECT count(*) FROM {table}")
        limit_s = _END_S * programs_per_core()
        await until(lambda: connection.fetchval(count, wanted), limit_s, pause_s=0.02)
    finally:
        connection.terminate()


async def _drained(url: str, processes: Processes) -> tuple[Pairs, Pairs, int]:
    """Wait until all rows are in Kafka and have an effect; return ledger, effects, and the number
    of take-overs by relays.
    """
    import asyncpg

    connection = await asyncpg.connect(url)
    try:

        async def is_done() -> bool:
            processes.fill(("relay", "processor"))
            return bool(await connection.fetchval(_IS_DONE))

        await until(is_done, _END_S * programs_per_core(), pause_s=0.05)
        ledger = await connection.fetch("SELECT key, number FROM ledger ORDER BY key, number")
        effects = await connection.fetch("SELECT key, number FROM effects ORDER BY id")
        take_overs = await connection.fetchval("SELECT sum(epoch) FROM aioprod_outbox_relay")
        return _pairs(ledger), _pairs(effects), int(take_overs)
    finally:
        connection.terminate()


_IS_DONE = """
SELECT NOT EXISTS (SELECT 1 FROM aioprod_outbox)
    AND (SELECT count(*) FROM effects) >= (SELECT count(*) FROM ledger)
"""


def _pairs(rows: list[asyncpg.Record]) -> Pairs:
    return [(row["key"], row["number"]) for row in rows]


def number_of_kills() -> int:
    """Return the number of kills on demand: 500, or ``AIOPROD_KILLS``."""
    return int(os.environ.get("AIOPROD_KILLS", "500"))
