"""Draws ``aioprod top`` into docs/images/top.svg: a terminal that watches an embedded broker, to
which this program writes, and from which groups read.

Needs the extra "top", and a system with pseudo-terminals.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from aioprod import Consumer, Producer
from aioprod.testing import EmbeddedCluster

PICTURE = Path(__file__).parent.parent / "images" / "top.svg"
#: Partitions and records/s.
TOPICS = {
    "orders": (6, 5_000),
    "payments": (3, 1_500),
    "shipments": (3, 800),
    "clicks": (12, 9_000),
}
READERS = {
    "billing": ("orders", 6_000),
    "warehouse": ("shipments", 1_000),
    "audit": ("payments", 600),
    "analytics": ("clicks", 5_000),
}
COLUMNS, LINES, WATCHED_S = 84, 16, 12
_HOME = "\x1b[H"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def write(servers: str, topic: str, rate: int) -> None:
    async with Producer(servers) as producer:
        while True:
            await (await producer.send_many(topic, [b"x" * 100] * (rate // 5))).wait()
            await asyncio.sleep(0.2)


async def read(servers: str, group: str, topic: str, rate: int) -> None:
    async with Consumer(
        topic, group_id=group, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        while True:
            await consumer.getmany(rate // 5)
            await consumer.commit()
            await asyncio.sleep(0.2)


def watch(servers: str) -> str:
    """Return what a terminal gets from the command."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = ["aioprod", "top", "--bootstrap-servers", servers]
        os.execvpe(sys.executable, [sys.executable, "-m", *command], os.environ | {"TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    end, parts, has_quit = time.monotonic() + WATCHED_S, [], False
    while True:
        if time.monotonic() > end and not has_quit:
            has_quit = bool(os.write(terminal, b"q"))
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        if not has_quit:
            parts.append(part)
    os.waitpid(pid, 0)
    return b"".join(parts).decode().replace("\r", "")


def drawn(screen: str) -> str:
    """Return a picture of a screen with escape sequences, which loads no fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(screen.rstrip()), end="")
    svg = console.export_svg(title="aioprod top", unique_id="top")
    return _FONTS.sub("", svg).replace("Fira Code", "ui-monospace")


async def main() -> None:
    async with EmbeddedCluster() as broker:
        servers = broker.bootstrap_servers
        for topic, (partitions, _) in TOPICS.items():
            broker.create_topic(topic, partitions)
        tasks = [
            *(write(servers, topic, rate) for topic, (_, rate) in TOPICS.items()),
            *(read(servers, group, *what) for group, what in READERS.items()),
        ]
        load = asyncio.gather(*tasks)
        screens = (await asyncio.to_thread(watch, servers)).split(_HOME)
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load  # clients leave their groups
    complete = [screen for screen in screens if "WRITTEN/S" in screen]
    PICTURE.write_text(drawn(complete[-1]), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
