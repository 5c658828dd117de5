"""Commands that delete something or change what exists: they show it, and ask."""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioprod import Producer, TopicPartition, cli
from aioprod.admin import (
    AclBinding,
    AclOperation,
    AclPermission,
    Admin,
    PatternType,
    ResourceType,
    ScramPassword,
)
from aioprod.cli import command_line
from aioprod.cli.command_line import command_parser
from aioprod.testing import Authorizer, EmbeddedCluster, ThreadedCluster
from tests.cli.test_cli_top import LIMIT_S, read_until, rest

Run = Callable[..., tuple[int, str, str]]

# What each command is called with, and what it shows.
COMMANDS = {
    "topics alter": (["orders", "--partitions", "3"], ["SETTING", "partitions", "2"]),
    "topics delete": (["orders"], ["RECORDS", "orders", "10"]),
    "topics delete-records": (["orders", "--all"], ["WILL BEGIN AT", "orders"]),
    "groups delete": (["billing"], ["billing", "Empty"]),
    "groups reset-offsets": (["billing", "--to-latest"], ["FROM", "orders"]),
    "acls remove": (["--all"], ["PRINCIPAL", "User:alice"]),
    "users remove": (["alice"], ["alice", "SCRAM-SHA-512"]),
}
# What they change is tested in test_cli_dlq.py and test_cli_outbox.py.
OTHERS = {
    "dlq drop": "orders.dead",
    "dlq redrive": "orders.dead",
    "outbox discard": "orders.db 1",
}
CHANGES = ("alter_", "create_partitions", "delete_", "expire_", "incremental_alter_")


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(authorizer=Authorizer(super_users=["User:ANONYMOUS"])) as broker:
        broker.create_topic("orders", 2)
        asyncio.run(_fill(broker.bootstrap_servers))
        yield broker


async def _fill(servers: str) -> None:
    async with Producer(servers) as producer:
        for _ in range(10):
            await producer.send("orders", b"x", partition=0)
    async with Admin(servers) as admin:
        await admin.alter_consumer_group_offsets("billing", {TopicPartition("orders", 0): 0})
        await admin.alter_user_scram_credentials([ScramPassword("alice", "secret")])
        await admin.create_acls([
            AclBinding(
                ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ,
                AclPermission.ALLOW, PatternType.LITERAL,
            )
        ])  # fmt: skip


async def _state(servers: str) -> list[object]:
    """Return the state that the commands change."""
    async with Admin(servers) as admin:
        topics = await admin.describe_topics(await admin.list_topics())
        partitions = [
            TopicPartition(name, each.partition)
            for name, topic in topics.successes.items()
            for each in topic.partitions
        ]
        begins = await admin.list_offsets(dict.fromkeys(partitions, -2))
        groups = await admin.list_groups()
        offsets = [(await admin.list_consumer_group_offsets(name)).successes for name in groups]
        users = await admin.describe_user_scram_credentials()
        acls = await admin.describe_acls()
        return [
            partitions,
            {tp: each.offset for tp, each in begins.successes.items()},
            list(groups),
            offsets,
            list(users.successes),
            list(acls),
        ]


def in_terminal(servers: str, *arguments: str) -> tuple[int, subprocess.Popen[bytes]]:
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aioprod", *arguments, "-b", servers],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    return terminal, process


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_happens_without_an_answer(run: Run, cluster: ThreadedCluster, name: str) -> None:
    servers = cluster.bootstrap_servers
    arguments, shown = COMMANDS[name]
    before = asyncio.run(_state(servers))
    status, output, errors = run(*name.split(), *arguments, "-b", servers)
    assert (status, output) == (2, "") and "give --yes to do it, or --dry-run" in errors
    status, output, errors = run(*name.split(), *arguments, "-b", servers, "--dry-run")
    assert (status, errors) == (0, "dry run: nothing was changed\n")
    assert all(text in output for text in shown), output
    assert asyncio.run(_state(servers)) == before
    assert run(*name.split(), *arguments, "-b", servers, "--yes")[0] == 0
    assert asyncio.run(_state(servers)) != before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topics", "delete", "missing"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["groups", "delete", "missing"], "group missing does not exist"),
        (["acls", "remove", "--principal", "User:missing"], "the options select no ACL"),
    ],
    ids=["topics", "groups", "acls"],
)
def test_a_dry_run_never_deletes_what_is_made_meanwhile(
    run: Run,
    cluster: ThreadedCluster,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    error: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it would delete")

    for name in ("delete_topics", "delete_consumer_groups", "delete_acls"):
        monkeypatch.setattr(Admin, name, refuse)
    status, _, errors = run(*arguments, "--dry-run", "-b", cluster.bootstrap_servers)
    assert status == 1 and error in errors and len(errors.splitlines()) == 1


def test_a_question_is_answered_in_a_terminal(cluster: ThreadedCluster) -> None:
    servers = cluster.bootstrap_servers
    before = asyncio.run(_state(servers))
    for answer, status, said in (
        (b"n\n", 1, "nothing was changed"),
        (b"\n", 1, "nothing was changed"),
        (b"\x04", 1, "nothing was changed"),  # the end of the input
        (signal.SIGINT, 130, ""),
        (b"y\n", 0, ""),
    ):
        assert asyncio.run(_state(servers)) == before
        terminal, process = in_terminal(servers, "topics", "delete", "orders")
        try:
            shown = read_until(terminal, "delete 1 topic with all records? [y/N] ")
            assert "RECORDS" in shown and "10" in shown
            if isinstance(answer, bytes):
                os.write(terminal, answer)
            else:
                process.send_signal(answer)
            assert process.wait(LIMIT_S) == status
            after = rest(terminal)
            assert said in after and "Traceback" not in after
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(terminal)
    assert asyncio.run(_state(servers)) != before


def leaves(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not found:
        yield name.strip(), parser
    for each in found:
        for word, below in each.choices.items():
            yield from leaves(below, f"{name} {word}")


def test_each_such_command_has_the_same_options() -> None:
    asking = {
        name
        for name, parser in leaves(command_parser())
        if "--yes" in {option for action in parser._actions for option in action.option_strings}
    }
    assert asking == {*COMMANDS, *OTHERS, "tokens expire"}


@pytest.mark.parametrize("name", OTHERS)
def test_other_commands_without_an_answer(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """They neither connect nor open the database, which do not exist."""
    where = [] if name.startswith("outbox") else ["-b", "127.0.0.1:1"]
    assert cli.main([*name.split(), *OTHERS[name].split(), *where]) == 2
    assert "give --yes to do it, or --dry-run" in capfd.readouterr().err


def test_each_function_that_changes_something_asks_first() -> None:
    """By the calls of the admin client in the source."""
    asked, changing = set(), set()
    for path in sorted(Path(command_line.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.AsyncFunctionDef):
                continue
            calls = {ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
            if any(call.startswith(f"admin.{name}") for call in calls for name in CHANGES):
                changing.add(f"{path.stem}.{node.name}")
                asked |= {f"{path.stem}.{node.name}"} if "confirmed" in calls else set()
    assert len(asked) == len(COMMANDS) + 1
    assert changing - asked == {"users._set"}, "a password was typed or is in a file"
