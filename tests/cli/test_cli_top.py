"""``aioprod top``: lag and throughput of a cluster, for scripts and in a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyte
import pytest

from aioprod import Producer, TopicPartition
from aioprod.admin import Admin, GroupDescription, OffsetSpec, ShareGroupDescription
from aioprod.cli.cluster_load import Sample, compare
from aioprod.testing import ThreadedCluster

Run = Callable[..., tuple[int, str, str]]
FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))
LIMIT_S = 60


def sample(at: float, committed: dict[TopicPartition, int], *ends: int) -> Sample:
    group = GroupDescription("billing", "classic", "Stable", "range", "consumer", ())
    return Sample(
        at,
        "c",
        3,
        {"billing": group},
        {"billing": committed},
        {},
        dict(zip((FIRST, SECOND, THIRD), ends, strict=False)),
    )


def test_speeds_are_those_between_two_samples() -> None:
    load = compare(sample(10, {FIRST: 0}, 100, 100), sample(12, {FIRST: 50}, 120, 140))
    (group,) = load.groups
    assert (group.lag, group.consumed_per_s) == (70, 25)
    assert group.catches_up_in_s == 70 / (25 - 10), "while records are written to its partition"
    (topic,) = load.topics
    assert (topic.written_per_s, topic.partitions, load.interval_s) == (30, 2, 2)


def test_a_group_that_is_slower_than_the_writers_never_catches_up() -> None:
    load = compare(sample(10, {FIRST: 0}, 100), sample(11, {FIRST: 1}, 120))
    assert load.groups[0].catches_up_in_s is None


def test_a_group_that_is_as_fast_as_the_writers_never_catches_up() -> None:
    """0.1 + 0.2 + 0.3 records/s are a little more than 0.3 + 0.2 + 0.1."""
    before = sample(0, dict.fromkeys((FIRST, SECOND, THIRD), 0), 10, 10, 10)
    after = sample(10, {FIRST: 1, SECOND: 2, THIRD: 3}, 13, 12, 11)
    assert compare(before, after).groups[0].catches_up_in_s is None


def test_a_topic_that_was_made_again_or_is_new_has_no_negative_speed() -> None:
    load = compare(sample(10, {FIRST: 90}, 100), sample(11, {FIRST: 0}, 3, 500))
    assert (load.groups[0].consumed_per_s, load.topics[0].written_per_s) == (0, 0)


def test_a_partition_without_a_leader_has_no_lag() -> None:
    load = compare(sample(10, {SECOND: 5}, 100), sample(11, {SECOND: 5}, 100))
    (part,) = load.groups[0].partitions
    assert (part.committed, part.end, part.lag, load.groups[0].lag) == (5, None, None, 0)


def test_a_share_group_is_as_far_as_its_lag_shows() -> None:
    group = ShareGroupDescription("mail", "Stable", "simple", 1, 1, ())

    def shared(at: float, lag: int, end: int) -> Sample:
        lags = {"mail": {FIRST: lag}}
        return Sample(at, "c", 3, {"mail": group}, {"mail": {FIRST: 5}}, lags, {FIRST: end})

    (load,) = compare(shared(10, 40, 100), shared(12, 30, 110)).groups
    assert (load.type, load.lag, load.consumed_per_s) == ("share", 30, 10)
    assert load.partitions[0].committed == 5


@contextmanager
def busy(broker: ThreadedCluster) -> Iterator[None]:
    """A group that lags, and a writer, in another thread."""
    stopped = threading.Event()

    async def write() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            while not stopped.is_set():
                await producer.send_many("orders", [b"x"] * 20)
                await producer.flush()
                await asyncio.sleep(0.02)

    async def prepare() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            for _ in range(50):
                await producer.send("orders", b"x", partition=0)
        async with Admin(broker.bootstrap_servers) as admin:
            ends = await admin.list_offsets({FIRST: OffsetSpec.LATEST})
            assert ends[FIRST].offset == 50
            await admin.alter_consumer_group_offsets("billing", {FIRST: 10})
            await admin.alter_consumer_group_offsets("other", {FIRST: 50})

    broker.create_topic("orders", 2)
    broker.create_topic("quiet", 1)
    asyncio.run(prepare())
    writer = threading.Thread(target=lambda: asyncio.run(write()))
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join(LIMIT_S)


def test_once_prints_json_for_scripts(run: Run, threaded_broker: ThreadedCluster) -> None:
    with busy(threaded_broker):
        status, output, errors = run("top", "--once", "--json", "--interval", "0.3")
    assert (status, errors) == (0, "")
    load: dict[str, Any] = json.loads(output)
    assert load["brokers"] == 1 and load["interval_s"] >= 0.3
    assert [group["group"] for group in load["groups"]] == ["billing", "other"]
    billing = load["groups"][0]
    assert billing["lag"] >= 40 and billing["consumed_per_s"] == 0
    assert billing["catches_up_in_s"] is None
    (part,) = billing["partitions"]
    assert (part["topic"], part["partition"], part["committed"]) == ("orders", 0, 10)
    assert part["lag"] == part["end"] - 10 == billing["lag"]
    topics = {topic["topic"]: topic for topic in load["topics"]}
    assert topics["orders"]["written_per_s"] > 0 and topics["orders"]["partitions"] == 2
    assert topics["quiet"]["written_per_s"] == 0


def test_once_prints_tables(run: Run, threaded_broker: ThreadedCluster) -> None:
    with busy(threaded_broker):
        command = ("top", "--once", "--interval", "0.1", "--group", "other", "--topic", "orders")
        status, output, errors = run(*command)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert "1 group" in lines[0]
    assert lines[2].split() == ["GROUP", "STATE", "MEMBERS", "LAG", "READ/S", "CAUGHT", "UP", "IN"]
    assert lines[3].split()[:3] == ["other", "Empty", "0"]
    assert lines[6].split()[:2] == ["orders", "2"] and len(lines) == 7


def test_without_a_terminal_it_says_what_to_give(run: Run) -> None:
    assert run("top")[::2] == (
        2,
        "aioprod top: standard output is not a terminal: give --once or --json\n",
    )


def test_the_terminal_shows_new_numbers_until_ctrl_c(threaded_broker: ThreadedCluster) -> None:
    with busy(threaded_broker):
        screen, process = in_terminal(threaded_broker.bootstrap_servers)
        try:
            shown = read_until(screen, "WRITTEN/S", "billing", "orders")
            threaded_broker.create_topic("appears-later", 1)
            shown += read_until(screen, "appears-later")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
            shown += rest(screen)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(screen)
    assert "\x1b[?1049h" in shown and "\x1b[?1049l" in shown, "the terminal is as it was before"
    assert "Traceback" not in shown


def in_terminal(
    servers: str, *arguments: str, lines: int = 40, columns: int = 100
) -> tuple[int, subprocess.Popen[bytes]]:
    """The command in a terminal, and the other end of that."""
    screen, inside = pty.openpty()
    resize(inside, lines, columns)
    command = [sys.executable, "-m", "aioprod", *(arguments or ("top",))]
    command += ["--interval", "0.1", "-b", servers]
    process = subprocess.Popen(
        command,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={
            **{n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES")},
            "TERM": "xterm-256color",
            "PYTHONIOENCODING": "utf-8",
        },
        start_new_session=True,
    )
    os.close(inside)
    return screen, process


def resize(terminal: int, lines: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def read_until(screen: int, *texts: str) -> str:
    shown, ends_at = "", time.monotonic() + LIMIT_S
    while not all(text in shown for text in texts):
        assert time.monotonic() < ends_at, shown
        if select.select([screen], [], [], 1)[0]:
            shown += os.read(screen, 65_536).decode(errors="replace")
    return shown


def rest(screen: int) -> str:
    """Return the remaining output of a process that has ended; reading then fails with EIO."""
    shown = ""
    while select.select([screen], [], [], 1)[0]:
        try:
            shown += os.read(screen, 65_536).decode(errors="replace")
        except OSError:
            break
    return shown


class Shown:
    """The screen of a terminal."""

    def __init__(self, terminal: int, lines: int, columns: int) -> None:
        self._terminal = terminal
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def resize(self, lines: int, columns: int) -> None:
        self._screen.resize(lines, columns)
        resize(self._terminal, lines, columns)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def wait_for(self, found: Callable[[list[str]], bool]) -> list[str]:
        """Read what the command draws until the lines are as expected."""
        ends_at = time.monotonic() + LIMIT_S
        while not found(self.lines):
            assert time.monotonic() < ends_at, "\n".join(self.lines)
            if select.select([self._terminal], [], [], 0.1)[0]:
                self._stream.feed(os.read(self._terminal, 65_536))
        return self.lines


@contextmanager
def many_groups(broker: ThreadedCluster) -> Iterator[None]:
    """Thirty groups that lag by 1,000 to 30,000 records."""

    async def prepare() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send_many("orders", [b""] * 31_000)
        async with Admin(broker.bootstrap_servers) as admin:
            for number in range(1, 31):
                name = f"a-group-with-a-long-name-of-a-team-and-a-service-{number:02}"
                await admin.alter_consumer_group_offsets(name, {FIRST: 31_000 - number * 1000})

    broker.create_topic("orders", 1)
    asyncio.run(prepare())
    yield


def test_keys_scroll_and_end_it_in_a_terminal_of_any_size(
    threaded_broker: ThreadedCluster,
) -> None:
    with many_groups(threaded_broker):
        terminal, process = in_terminal(threaded_broker.bootstrap_servers, lines=20, columns=40)
        shown = Shown(terminal, 20, 40)
        try:
            lines = shown.wait_for(
                lambda lines: "30,000" in lines[3] and "rows 1-16 of 31" in lines[-1]
            )
            assert all("LAG" in line for line in lines if line.startswith("GROUP"))
            assert lines[2].startswith("GROUP") and "a-group-wi" in lines[3]
            assert lines[-1].startswith("q quit")
            os.write(terminal, b"\x1b[B")
            lines = shown.wait_for(lambda lines: "rows 2-17 of 31" in lines[-1])
            assert lines[2].startswith("GROUP") and "29,000" in lines[3]
            os.write(terminal, b"\x1bOF")  # End, of a keypad in application mode
            lines = shown.wait_for(lambda lines: "-31 of 31" in lines[-1])
            assert lines[2].startswith("GROUP") and "orders" in lines[-2]
            os.write(terminal, b"\x1b[5")
            os.write(terminal, b"~gx")
            shown.wait_for(lambda lines: "rows 1-16 of 31" in lines[-1])
            shown.resize(60, 200)
            lines = shown.wait_for(lambda lines: "rows" not in lines[-1] and "scroll" in lines[-1])
            assert lines[2].split()[-3:] == ["CAUGHT", "UP", "IN"]
            os.write(terminal, b"q")
            assert process.wait(LIMIT_S) == 0
            assert "\x1b[?1049l" in rest(terminal)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(terminal)


def test_a_terminal_is_as_before_after_q(threaded_broker: ThreadedCluster) -> None:
    terminal, inside = pty.openpty()
    before = termios.tcgetattr(inside)
    command = [sys.executable, "-m", "aioprod", "top", "-b", threaded_broker.bootstrap_servers]
    with subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    ) as process:
        try:
            read_until(terminal, "q quit")
            assert termios.tcgetattr(inside) != before, "keys are read one by one"
            os.write(terminal, b"q")
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
    assert termios.tcgetattr(inside) == before
    os.close(inside)
    os.close(terminal)


@pytest.mark.parametrize("way", ["--json", "terminal"])
def test_a_cluster_that_is_gone_is_reported(run: Run, way: str, unused_tcp_port: int) -> None:
    """Without a terminal the command ends; at the start it does in any case."""
    settings = ("-b", f"127.0.0.1:{unused_tcp_port}", "-X", "default.api.timeout.ms=300")
    status, _, errors = run("top", *(["--json"] if way == "--json" else []), *settings)
    assert status == 1 and "no broker responds" in errors


def test_an_empty_cluster_has_nothing_to_show(run: Run) -> None:
    status, output, errors = run("top", "--once", "--json", "--interval", "0.1")
    load: dict[str, Any] = json.loads(output)
    assert (status, errors, load["groups"], load["topics"]) == (0, "", [], [])
    assert run("top", "--once", "--interval", "0.1")[0] == 0
