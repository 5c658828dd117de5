"""``aioprod groups lag``: each partition of each group, once or live."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from aioprod import Admin, Producer, ShareConsumer, TopicPartition
from aioprod.testing import ThreadedCluster
from tests.cli.test_cli_top import in_terminal, read_until, rest

Run = Callable[..., tuple[int, str, str]]
LIMIT_S = 60


@pytest.fixture
def lagging(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    """Two groups, and two topics with ten records in each of two partitions."""

    async def prepare() -> None:
        async with Producer(threaded_broker.bootstrap_servers) as producer:
            for number in range(40):
                topic = ("orders", "clicks")[number // 20]
                await producer.send(topic, b"x", partition=number % 2)
        async with Admin(threaded_broker.bootstrap_servers) as admin:
            orders, clicks = (TopicPartition(topic, 0) for topic in ("orders", "clicks"))
            await admin.alter_consumer_group_offsets("billing", {orders: 4, clicks: 9})
            await admin.alter_consumer_group_offsets("mail", {orders: 1})

    threaded_broker.create_topic("orders", 2)
    threaded_broker.create_topic("clicks", 2)
    asyncio.run(prepare())
    return threaded_broker


def test_one_table_by_default(run: Run, lagging: ThreadedCluster) -> None:
    for arguments in ((), ("--once",)):
        status, output, errors = run("groups", "lag", *arguments)
        assert (status, errors) == (0, "")
        assert [line.split() for line in output.splitlines()] == [
            ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT"],
            ["mail", "orders", "0", "1", "10", "9", "-"],
            ["billing", "clicks", "0", "9", "10", "1", "-"],
            ["billing", "orders", "0", "4", "10", "6", "-"],
        ]


def test_some_groups_and_topics_as_json(run: Run, lagging: ThreadedCluster) -> None:
    status, output, _ = run("groups", "lag", "billing", "--topic", "clicks", "--json")
    assert status == 0
    assert json.loads(output) == [
        {
            "group": "billing",
            "type": "classic",
            "state": "Empty",
            "members": 0,
            "lag": 1,
            "partitions": [
                {
                    "topic": "clicks",
                    "partition": 0,
                    "committed": 9,
                    "end": 10,
                    "lag": 1,
                    "client_id": None,
                }
            ],
        }
    ]


def test_a_group_that_does_not_exist_is_an_error(run: Run, lagging: ThreadedCluster) -> None:
    status, output, errors = run("groups", "lag", "billing", "none")
    assert status == 1 and "billing" in output
    assert errors == "aioprod groups lag: group none does not exist\n"
    assert run("groups", "lag", "--watch", "--once")[0] == 2


def test_share_groups_have_a_lag_too(run: Run, lagging: ThreadedCluster) -> None:
    async def accept_three() -> None:
        servers = lagging.bootstrap_servers
        async with Admin(servers) as admin:
            place = TopicPartition("orders", 0)
            (await admin.alter_share_group_offsets("workers", {place: 0})).check()
        async with ShareConsumer(servers, group_id="workers", topics=["orders"]) as consumer:
            assert len(await consumer.getmany(3)) == 3
            await consumer.commit()

    asyncio.run(accept_three())
    status, output, errors = run("groups", "lag", "workers", "billing", "--topic", "orders")
    assert (status, errors) == (0, "")
    rows = {tuple(line.split()[:3]): line.split()[3:] for line in output.splitlines()}
    assert rows["billing", "orders", "0"] == ["4", "10", "6", "-"]
    assert rows["workers", "orders", "0"][1:] == ["10", "7", "-"]  # the start may follow later
    status, output, _ = run("top", "--once", "--interval", "0.01", "--group", "workers")
    assert status == 0 and output.splitlines()[3].split()[:2] == ["workers", "Empty"]


def commit(cluster: ThreadedCluster, offset: int) -> None:
    async def change() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            place = TopicPartition("orders", 0)
            (await admin.alter_consumer_group_offsets("mail", {place: offset})).check()

    asyncio.run(change())


def test_watching_prints_a_line_of_json_per_interval(lagging: ThreadedCluster) -> None:
    command = [sys.executable, "-m", "aioprod", "groups", "lag", "mail", "--watch", "--json"]
    command += ["--interval", "0.1", "-b", lagging.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())[0]["lag"] == 9
            commit(lagging, 7)
            ends_at = time.monotonic() + LIMIT_S
            while json.loads(process.stdout.readline())[0]["lag"] != 3:
                assert time.monotonic() < ends_at
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        finally:
            process.kill()


def test_watching_refreshes_the_terminal(lagging: ThreadedCluster) -> None:
    screen, process = in_terminal(lagging.bootstrap_servers, "groups", "lag", "--watch")
    try:
        shown = read_until(screen, "COMMITTED", "mail", "lag 16")
        commit(lagging, 7)
        shown += read_until(screen, "lag 10")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        shown += rest(screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)
    assert "\x1b[?1049l" in shown and "Traceback" not in shown
