"""``aioprod copy``: what is copied, where it begins and continues, what it refuses."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aioprod import Admin, Producer, TopicPartition
from aioprod.cli import copy_topic
from aioprod.cli.command_line import command_parser
from aioprod.cli.copy_plan import plan
from aioprod.cli.copy_topic import TopicCopy
from aioprod.error_codes import ErrorCode
from aioprod.testing import ApiKey, EmbeddedCluster, ThreadedCluster, fail
from tests.selection import needs_posix
from tests.waiting import wait_until

Run = Callable[..., tuple[int, str, str]]
FIRST_MS = 1_700_000_000_000
LIMIT_S = 60
Content = list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]]


@pytest.fixture
def target() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread() as running:
        yield running


@pytest.fixture
def source(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    """Two hundred records in three partitions."""
    threaded_broker.create_topic("orders", 3, configs={"retention.ms": "86400000"})
    write(threaded_broker, 0, 200)
    return threaded_broker


def write(cluster: ThreadedCluster, first: int, count: int, topic: str = "orders") -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(first, first + count):
                await producer.send(
                    topic,
                    (None, b"", b"\xff%d" % number)[min(number % 7, 2)],
                    (None, b"", b"k%d" % number)[min(number % 5, 2)],
                    number % len(cluster.topics[topic].partitions),
                    FIRST_MS + number * 1000,
                    [("h", b"1"), ("h", None)] if number % 2 else (),
                )

    asyncio.run(send())


def content(cluster: ThreadedCluster, topic: str) -> list[Content]:
    """The committed records of each partition, without their offsets."""
    return [
        [
            (each.key, each.value, each.timestamp, tuple(each.headers))
            for each in cluster.records(topic, partition, committed_only=True)
        ]
        for partition in range(len(cluster.topics[topic].partitions))
    ]


def total(contents: list[Content]) -> int:
    return sum(map(len, contents))


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "aioprod", "copy", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def between(source: ThreadedCluster, target: ThreadedCluster) -> list[str]:
    return ["-b", source.bootstrap_servers, "--to-bootstrap-servers", target.bootstrap_servers]


def test_everything_of_a_record_is_kept(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    status, output, errors = run("copy", "orders", "--once", *between(source, target))
    assert (status, output, errors) == (0, "", "copied 200 records of 1 topic\n")
    assert content(target, "orders") == content(source, "orders")
    assert total(content(target, "orders")) == 200
    assert target.topic_configs("orders")["retention.ms"] == "86400000"


def test_a_second_run_copies_what_is_new(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    for expected in (200, 0, 50):
        status, output, errors = run("copy", "orders", "--once", "--json", *between(source, target))
        assert (status, errors) == (0, "")
        line = json.loads(output.splitlines()[-1])
        assert (line["copied"], line["lag"]) == (expected, 0)
        assert [(each["topic"], each["to_topic"]) for each in line["topics"]] == [
            ("orders", "orders")
        ]
        if not expected:
            write(source, 200, 50)
    assert content(target, "orders") == content(source, "orders")
    assert total(content(target, "orders")) == 250


def test_only_committed_records_are_copied(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    async def send() -> None:
        async with Producer(source.bootstrap_servers, transactional_id="t") as producer:
            for ends in (producer.abort_transaction, producer.commit_transaction) * 2:
                await producer.begin_transaction()
                await producer.send_many("orders", [ends.__name__.encode()] * 30)
                await producer.flush()
                await ends()

    asyncio.run(send())
    before = total(content(source, "orders"))
    assert before == 260 and len(source.records("orders")) == 320
    for expected in (260, 0):
        status, _, errors = run("copy", "orders", "--once", *between(source, target))
        assert (status, errors) == (0, f"copied {expected} records of 1 topic\n")
    assert content(target, "orders") == content(source, "orders")
    assert len(target.records("orders")) == 260


def test_topics_within_a_cluster(run: Run, source: ThreadedCluster) -> None:
    source.create_topic("clicks", 1)
    write(source, 0, 10, "clicks")
    where = ["-b", source.bootstrap_servers]
    for _ in range(2):  # the second run does not copy the copies
        assert run("copy", "--matching", ".*", "--prefix", "old.", "--once", *where)[0] == 0
    assert run("copy", "orders", "--to-topic", "other", "--once", *where)[0] == 0
    assert sorted(source.topics) == ["clicks", "old.clicks", "old.orders", "orders", "other"]
    assert content(source, "old.orders") == content(source, "orders") == content(source, "other")
    assert content(source, "old.clicks") == content(source, "clicks")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["orders"], 2, "topic orders would be copied to itself"),
        ([], 2, "give either topics or --matching"),
        (["orders", "--matching", "x"], 2, "give either topics or --matching"),
        (["orders", "clicks", "--to-topic", "x"], 2, "--to-topic needs exactly one topic"),
        (["--matching", "x", "--to-topic", "x"], 2, "--to-topic needs exactly one topic"),
        (["orders", "--prefix", "a", "--to-topic", "x"], 2, "not allowed with"),
        (["--matching", "nothing"], 1, "no topic matches 'nothing'"),
        (["--matching", "("], 2, "is not a regular expression"),
        (["missing", "--prefix", "x"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["orders", "--to-topic", "small"], 1, "topic small has 1 partition in the target"),
        (["orders", "--to-topic", "x", "--to-config", "acks=1"], 2, "acks"),
        (["orders", "--to-topic", "x", "--to-config", "nonsense=1"], 2, "nonsense"),
    ],
)
def test_what_it_refuses(
    run: Run, source: ThreadedCluster, arguments: list[str], status: int, text: str
) -> None:
    source.create_topic("small", 1)
    servers = source.bootstrap_servers
    ended = run("copy", *arguments, "--once", "-b", servers, "--to-bootstrap-servers", servers)
    assert ended[0] == status and text in ended[2] and "Traceback" not in ended[2]


def test_a_target_with_records_and_without_progress_needs_to_be_reported(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    target.create_topic("orders", 3)
    write(target, 0, 3)
    command = ("copy", "orders", "--once", *between(source, target))
    status, _, errors = run(*command)
    assert status == 1 and "has no progress" in errors and "give --from" in errors
    assert run(*command, "--from", "-2")[0] == 0
    assert len(target.records("orders")) == 3 + 6
    write(source, 200, 3)
    assert run(*command, "--from", "-2")[0] == 0  # only for partitions without progress
    assert len(target.records("orders")) == 3 + 6 + 3


def test_a_place_to_begin_is_kept_by_the_next_run(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    command = ("copy", "orders", "--once", *between(source, target))
    assert run(*command, "--from", "end")[2] == "copied 0 records of 1 topic\n"
    write(source, 200, 7)
    assert run(*command)[2] == "copied 7 records of 1 topic\n"


def test_a_topic_that_was_made_again_is_not_continued(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    command = ("copy", "orders", "--once", *between(source, target))
    assert run(*command)[0] == 0
    source.delete_topic("orders")
    source.create_topic("orders", 3)
    write(source, 0, 300)
    status, _, errors = run(*command)
    assert status == 1 and "topic orders was deleted and created again" in errors
    (group,) = target.group_ids
    assert f"aioprod groups delete {group}" in errors
    assert run("groups", "delete", group, "--yes", "-b", target.bootstrap_servers)[0] == 0
    assert run(*command, "--from", "beginning")[0] == 0
    assert len(target.records("orders")) == 500


def test_records_that_were_deleted_before_they_were_copied(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    command = ("copy", "orders", "--once", *between(source, target))
    assert run(*command)[0] == 0
    write(source, 201, 30)
    source.delete_records("orders", 0, 70)
    status, _, errors = run(*command)
    assert status == 1 and "orders-0: offsets 67 to 69 were deleted" in errors
    status, _, errors = run(*command, "--skip-deleted")
    assert status == 0 and "orders-0: offsets 67 to 69 were deleted" in errors
    assert [len(each) for each in content(target, "orders")] == [74, 77, 76]


@needs_posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_an_open_transaction(
    run: Run, source: ThreadedCluster, target: ThreadedCluster, number: signal.Signals
) -> None:
    with following("orders", *between(source, target)) as process:
        wait_until(lambda: "orders" in target.topics and total(content(target, "orders")) == 200)
        write(source, 200, 1)
        wait_until(lambda: total(content(target, "orders")) == 201)
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and b"Traceback" not in errors
    assert errors.splitlines()[-1] == b"copied 201 records of 1 topic"
    assert [each.state.value for each in target.transactions.values()] != ["Ongoing"]
    write(source, 201, 9)
    assert run("copy", "orders", "--once", *between(source, target))[0] == 0
    assert content(target, "orders") == content(source, "orders")


def test_a_second_copy_of_the_same_topic_ends_the_first(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    """Even if it copies other topics at the same time."""
    source.create_topic("clicks", 1)
    with following("orders", *between(source, target)) as process:
        wait_until(lambda: "orders" in target.topics and total(content(target, "orders")) == 200)
        assert run("copy", "clicks", "orders", "--once", *between(source, target))[0] == 0
        write(source, 200, 10)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert b"orders: another copy to orders was started, or a transaction took" in errors
    assert run("copy", "orders", "--once", *between(source, target))[0] == 0
    assert content(target, "orders") == content(source, "orders")


def test_a_record_that_the_target_refuses_ends_it(
    run: Run, source: ThreadedCluster, target: ThreadedCluster
) -> None:
    target.on(ApiKey.PRODUCE, fail(ErrorCode.MESSAGE_TOO_LARGE), times=1000)
    command = ("copy", "orders", "--once", *between(source, target))
    status, _, errors = run(*command)
    assert status == 1 and "orders: " in errors and "can't be split" in errors
    target.clear_rules()
    assert run(*command)[0] == 0
    assert content(target, "orders") == content(source, "orders")


async def test_new_partitions_and_old_progress_while_following(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers expire old committed offsets of each partition separately."""
    monkeypatch.setattr(copy_topic, "_NEW_PARTITIONS_EACH_S", 0.05)
    monkeypatch.setattr(copy_topic, "_COMMIT_EACH_S", 0.05)
    monkeypatch.setattr(copy_topic, "_LOOK_MS", 20)
    async with EmbeddedCluster() as source, EmbeddedCluster() as target:
        source.create_topic("orders", 2)
        target.create_topic("orders", 3)
        options = command_parser().parse_args(["copy", "orders"])
        servers = {"bootstrap_servers": source.bootstrap_servers, "metadata_max_age_ms": 100}
        async with (
            Admin(source.bootstrap_servers) as reading,
            Admin(target.bootstrap_servers) as writing,
            Producer(source.bootstrap_servers, metadata_max_age_ms=100) as producer,
            asyncio.timeout(LIMIT_S),
        ):
            (pair,) = await plan(reading, writing, options)
            to = {"bootstrap_servers": target.bootstrap_servers}
            running = asyncio.create_task(TopicCopy(pair, servers, to, writing, options).run())
            await target.wait_for_request(ApiKey.TXN_OFFSET_COMMIT, 3, timeout_seconds=LIMIT_S)
            assert target.committed_offsets(pair.identity) == {
                TopicPartition("orders", 0): 0,
                TopicPartition("orders", 1): 0,
            }
            source.add_partitions("orders", 3)
            await producer.send_and_wait("orders", b"new", partition=2)
            await target.wait_for_records("orders", 1, LIMIT_S)
            assert [each.value for each in target.records("orders", 2)] == [b"new"]
            source.add_partitions("orders", 4)
            with pytest.raises(Exception, match="topic orders has 3 partitions in the target"):
                await running
