"""``aioprod consume``: what it prints, where it begins and ends, what it commits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aioprod import Producer, TopicPartition
from aioprod.testing import ThreadedCluster
from tests.selection import needs_posix

Run = Callable[..., tuple[int, str, str]]
FIRST_MS = 1_700_000_000_000
LIMIT_S = 60


@pytest.fixture
def filled(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    """Ten records, a second apart, in each of two partitions: key, value, a header."""

    async def fill() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            for number in range(20):
                value = None if number == 19 else b"value %d" % (number // 2)
                await producer.send(
                    "orders", value, b"k", number % 2, FIRST_MS + number // 2 * 1000, [("h", b"1")]
                )

    threaded_broker.create_topic("orders", 2)
    asyncio.run(fill())
    return threaded_broker


@contextmanager
def running(cluster: ThreadedCluster, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process that goes on."""
    command = [
        sys.executable,
        "-m",
        "aioprod",
        "consume",
        *arguments,
        "-b",
        cluster.bootstrap_servers,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_records_are_lines_of_json(run: Run, filled: ThreadedCluster) -> None:
    status, output, errors = run("consume", "orders", "--exit")
    assert (status, errors) == (0, "read 20 records\n")
    lines = [json.loads(line) for line in output.splitlines()]
    assert sorted((line["partition"], line["offset"]) for line in lines) == [
        (partition, offset) for partition in (0, 1) for offset in range(10)
    ]
    by_place = {(line["partition"], line["offset"]): line for line in lines}
    assert by_place[0, 3] == {
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "timestamp": FIRST_MS + 3000,
        "key": "k",
        "value": "value 3",
        "headers": [["h", "1"]],
    }
    assert by_place[1, 9]["value"] is None


def test_records_by_a_pattern(run: Run, filled: ThreadedCluster) -> None:
    ended = run(
        "consume",
        "orders",
        "-e",
        "-q",
        "-p",
        "1",
        "-f",
        "8",
        "--format",
        r"%t-%p@%o %T %k=%v (%V) %h\n",
    )
    assert ended == (
        0,
        (
            f"orders-1@8 {FIRST_MS + 8000} k=value 8 (7) h=1\norders-1@9 {FIRST_MS + 9000} k= "
            "(-1) h=1\n"
        ),
        "",
    )


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ("beginning", range(10)),
        ("end", range(0)),
        ("7", range(7, 10)),
        ("99", range(0)),
        ("-2", range(8, 10)),
        ("-99", range(10)),
        ("2023-11-14T22:13:25+00:00", range(5, 10)),
        ("2035-01-01T00:00:00Z", range(0)),
    ],
)
def test_where_reading_begins(
    run: Run, filled: ThreadedCluster, start: str, offsets: range
) -> None:
    status, output, _ = run(
        "consume", "orders", "--exit", "-p", "0", "--from", start, "--format", r"%o\n"
    )
    assert (status, [int(line) for line in output.splitlines()]) == (0, list(offsets))


def test_a_count_ends_it(run: Run, filled: ThreadedCluster) -> None:
    status, output, errors = run("consume", "orders", "-n", "7", "--format", r"%o\n")
    assert (status, len(output.splitlines()), errors) == (0, 7, "read 7 records\n")


def test_it_ends_where_the_log_ends_with_a_transaction(
    run: Run, threaded_broker: ThreadedCluster
) -> None:
    async def fill() -> None:
        async with Producer(threaded_broker.bootstrap_servers, transactional_id="sink") as producer:
            async with producer.transaction():
                await producer.send("orders", b"committed")
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"aborted")
            await producer.abort_transaction()

    threaded_broker.create_topic("orders", 1)
    asyncio.run(fill())
    committed = run(
        "consume",
        "orders",
        "--exit",
        "-q",
        "-X",
        "isolation.level=read_committed",
        "--format",
        r"%v\n",
    )
    assert committed == (0, "committed\n", "")
    assert run("consume", "orders", "--exit", "-q", "--format", r"%v\n") == (
        0,
        "committed\naborted\n",
        "",
    )


def test_what_was_consumed_can_be_produced(run_process: Run, filled: ThreadedCluster) -> None:
    filled.create_topic("copy", 2)
    _, output, _ = run_process("consume", "orders", "--exit")
    assert run_process("produce", "copy", "--format", "json", given=output.encode())[0] == 0
    for partition in (0, 1):
        original, copy = filled.records("orders", partition), filled.records("copy", partition)
        assert [(each.key, each.value, each.timestamp, each.headers) for each in copy] == [
            (each.key, each.value, each.timestamp, each.headers) for each in original
        ]


def test_a_group_continues_at_its_position(run: Run, filled: ThreadedCluster) -> None:
    seen = []
    for _ in range(2):
        status, output, errors = run(
            "consume", "orders", "--group", "mine", "-n", "10", "--format", r"%p@%o\n"
        )
        assert (status, errors) == (0, "read 10 records\n")
        seen += output.splitlines()
    assert len(set(seen)) == 20
    assert filled.committed_offsets("mine") == {
        TopicPartition("orders", partition): 10 for partition in (0, 1)
    }
    assert filled.group("mine").state == "Empty"


@needs_posix
def test_new_records_are_printed_as_they_come_and_ctrl_c_ends_it(filled: ThreadedCluster) -> None:
    with running(filled, "orders", "--group", "mine", "--format", r"%v\n") as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(20):
            assert process.stdout.readline()

        async def send() -> None:
            async with Producer(filled.bootstrap_servers) as producer:
                await producer.send("orders", b"new")

        asyncio.run(send())
        assert process.stdout.readline() == b"new\n"
        pressed = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert time.monotonic() - pressed < 5
        assert process.stderr.read() == b"read 21 records\n"
    assert sum(filled.committed_offsets("mine").values()) == 21


@needs_posix
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_the_records_and_none_is_printed_twice_where_all_end_well(
    filled: ThreadedCluster, strategy: str
) -> None:
    options = (
        "orders",
        "--group",
        "mine",
        "--format",
        r"%v\n",
        "-X",
        f"partition.assignment.strategy={strategy}",
        "-X",
        "heartbeat.interval.ms=50",
    )

    async def send(first: int, count: int) -> None:
        async with Producer(filled.bootstrap_servers) as producer:
            for number in range(first, first + count):
                await producer.send("orders", b"%d" % number, partition=number % 2)

    with running(filled, *options) as first:
        assert first.stdout is not None
        for _ in range(20):
            assert first.stdout.readline()
        with running(filled, *options) as second:
            assert second.stdout is not None
            filled.wait_for_group("mine", member_count=2)
            # A cooperative member gets its partition in a second rebalance; before that the first
            # one reads both.
            deadline = time.monotonic() + LIMIT_S
            while [
                len(member.partitions or ()) for member in filled.group("mine").members.values()
            ] != [1, 1]:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            asyncio.run(send(0, 1000))
            for process in (first, second):
                line = process.stdout.readline() if process.stdout is not None else b""
                assert line.strip().isdigit()
            os.killpg(second.pid, signal.SIGINT)
            assert second.wait(LIMIT_S) == 130
            rest = second.stdout.read().split()
        asyncio.run(send(1000, 10))
        seen = len(rest) + 2
        while seen < 1010:
            assert first.stdout.readline()
            seen += 1
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(LIMIT_S) == 130
        assert first.stdout.read() == b""
    assert sum(filled.committed_offsets("mine").values()) == 1030


@needs_posix
@pytest.mark.parametrize("command", ["consume", "produce"])
def test_a_terminal_shows_how_far_it_is(filled: ThreadedCluster, command: str) -> None:
    """Each second; what has ended is one line."""
    ours, theirs = os.openpty()
    arguments = [
        sys.executable,
        "-m",
        "aioprod",
        command,
        "orders",
        "-b",
        filled.bootstrap_servers,
    ]
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        seen = b""
        until = time.monotonic() + LIMIT_S
        while b"record" not in seen:
            assert time.monotonic() < until
            if command == "produce":
                process.stdin.write(b"line\n")
                process.stdin.flush()
            if select.select([ours], [], [], 0.05)[0]:
                seen += os.read(ours, 1000)
        assert seen.startswith(b"\r\x1b[Kread " if command == "consume" else b"\r\x1b[Ksent ")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(ours, 1000):
            seen += more
    os.close(ours)
    assert seen.split(b"\r\x1b[K")[-1].startswith(
        b"read 20 records\r\n" if command == "consume" else b"sent "
    )
    assert seen.endswith(b"\r\n")


def test_the_reader_of_the_output_may_go(filled: ThreadedCluster) -> None:
    with running(filled, "orders", "--format", r"%v\n") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"value 0\n"
        process.stdout.close()

        async def send() -> None:
            async with Producer(filled.bootstrap_servers) as producer:
                await producer.send("orders", b"new")

        asyncio.run(send())
        assert process.wait(LIMIT_S) == 0
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["missing", "--exit"], 1, "aioprod consume: topic missing does not exist"),
        (["missing", "--group", "mine"], 1, "aioprod consume: topic missing does not exist"),
        (["orders", "-p", "7"], 2, "topic orders has no partition 7: its partitions are 0 to 1"),
        (["orders", "--format", "%x"], 2, "--format: unknown field %x"),
        (
            ["orders", "--from", "soon"],
            2,
            "must be beginning, end, an offset, -N or a time, which must be a time such as 20",
        ),
        (
            ["orders", "--group", "mine", "--exit"],
            2,
            "--group can't be used with --partition or --exit",
        ),
        (["orders", "--group", "mine", "--from", "5"], 2, "only with --from beginning or end"),
        (["orders", "--count", "0"], 2, "at least 1"),
        (
            ["orders", "-X", "fetch.max.wait.ms=never"],
            2,
            "fetch_max_wait_ms='never': must be a whole number",
        ),
    ],
)
def test_what_can_not_be_read_is_one_line(
    run: Run, filled: ThreadedCluster, arguments: list[str], status: int, text: str
) -> None:
    ended = run("consume", "-q", "-X", "default.api.timeout.ms=3000", *arguments)
    assert ended[:2] == (status, "")
    assert text in ended[2] and ended[2].count("\n") == 1


MANY = 100_000


@needs_posix
@pytest.mark.parametrize("signaled", [True, False], ids=["ctrl-c", "pipe closed"])
def test_many_records_are_committed_only_if_they_were_printed(
    threaded_broker: ThreadedCluster, signaled: bool
) -> None:
    """Ends in the middle of a stream, whose reader is slower than the broker."""

    async def fill() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            await producer.send_many("orders", [b"%06d" % number for number in range(MANY)])

    threaded_broker.create_topic("orders", 1)
    asyncio.run(fill())
    with running(threaded_broker, "orders", "-g", "mine", "--format", r"%v\n") as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(20_000)]
        if signaled:
            os.killpg(process.pid, signal.SIGINT)
            lines += process.stdout.read().splitlines(keepends=True)
        else:
            process.stdout.close()
        assert process.wait(LIMIT_S) == (130 if signaled else 0)
        said = process.stderr.read().decode()
    assert lines == [b"%06d\n" % number for number in range(len(lines))], "whole lines, in order"
    committed = threaded_broker.committed_offsets("mine").get(TopicPartition("orders", 0), 0)
    if signaled:
        assert said == f"read {len(lines):,} records\n" and committed == len(lines) < MANY
    else:
        assert said.count("\n") == 1 and len(lines) <= committed + 20_000 and committed < MANY
