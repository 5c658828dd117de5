"""Nothing that a broker, a record or a registry says reaches the terminal as it is: each command,
against brokers whose names, texts and errors have escape sequences and line breaks.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioprod import Consumer, Producer, TopicPartition
from aioprod.admin import (
    AclBinding,
    AclOperation,
    AclPermission,
    Admin,
    DelegationToken,
    PatternType,
    ResourceType,
    ScramPassword,
)
from aioprod.cli import command_line
from aioprod.cli.command_line import command_parser
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.message import Message
from aioprod.testing import Authorizer, EmbeddedCluster, ThreadedCluster
from aioprod.testing.broker import store
from aioprod.testing.broker.actions import Action, Failure

# A title, a cleared screen, colors by C0 and by C1, a bell, a backspace, text that is shown
# backwards, and a line of its own.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\u202e\u2066\n\u2028FORGED \x00\x7f\u0085"
ESCAPED = "\\x1b]0;owned\\x07"
TOPIC, GROUP, CLIENT = f"t{HOSTILE}", f"g{HOSTILE}", f"c{HOSTILE}"
USER = "User:u" + HOSTILE

# The arguments of each command, and whether it shows a name of the broker.
ROWS: dict[str, list[tuple[list[str], bool]]] = {
    "topics list": [([], True), (["--json"], True)],
    "topics create": [([TOPIC], True), (["new"], False)],
    "topics describe": [([], True), ([TOPIC], True), (["--json", "--all-settings"], True)],
    "topics alter": [
        ([TOPIC, "--partitions", "1", "--yes"], True),
        ([TOPIC, "--set", "a=b" + HOSTILE, "--dry-run"], True),
    ],
    "topics delete": [
        (["gone" + HOSTILE, "--yes"], True),
        ([TOPIC, "gone" + HOSTILE, "--dry-run"], True),
    ],
    "topics delete-records": [
        ([TOPIC, "--all", "--yes"], True),
        ([TOPIC, "--all", "--dry-run"], True),
    ],
    "groups list": [([], True), (["--json"], True)],
    "groups describe": [([GROUP], True), ([GROUP, "--json"], True), (["no" + HOSTILE], True)],
    "groups lag": [([GROUP], True), ([GROUP, "--json"], True), (["no" + HOSTILE], True)],
    "groups reset-offsets": [
        ([GROUP, "--to-earliest", "--dry-run"], True),
        ([GROUP, "--to-earliest", "--json", "--dry-run"], True),
    ],
    "groups delete": [(["no" + HOSTILE, "--yes"], True), ([GROUP, "--dry-run"], True)],
    "acls list": [([], True), (["--json"], True)],
    "acls add": [(["--topic", TOPIC, "--principal", USER, "--operation", "read"], False)],
    "acls remove": [(["--principal", USER + "x", "--yes"], False), (["--all", "--dry-run"], True)],
    "users list": [([], True), (["--json"], True)],
    "users add": [(["u" + HOSTILE, "--password-file", "PASSWORD"], False)],
    "users change": [(["v" + HOSTILE, "--password-file", "PASSWORD"], True)],
    "users remove": [(["v" + HOSTILE, "--dry-run"], True), (["v" + HOSTILE, "--yes"], True)],
    "tokens list": [([], False)],
    "tokens create": [([], False)],
    "tokens renew": [(["t" + HOSTILE], False)],
    "tokens expire": [(["t" + HOSTILE, "--yes"], False)],
    "cluster": [([], False), (["--json"], False)],
    "top": [(["--once", "--interval", "0.01"], True), (["--once", "--json"], True)],
    "consume": [([TOPIC, "--exit"], False), (["plain", "-n", "1"], True)],
    "dlq list": [(["dead"], True), (["dead", "--json"], True), (["no" + HOSTILE], True)],
    "dlq show": [(["dead", "0:0"], True), (["dead", "0:0", "--json"], True)],
    "dlq redrive": [
        (["dead", "--dry-run"], True),
        (["dead", "--to-topic", "no" + HOSTILE, "--yes"], True),
        (["dead", "--yes"], False),
    ],
    "dlq drop": [(["dead", "--dry-run"], True), (["dead", "--yes"], False)],
    "copy": [([TOPIC, "--to-topic", f"{TOPIC}=copy" + HOSTILE, "--once"], False)],
}
# Commands that ask no broker: what they print is their own.
LOCAL = {"demo", "pipeline new", "broker", "completion"} | {
    f"outbox {each}" for each in ("ddl", "relay", "status", "refused", "retry", "discard")
}
WITH_SPARK = {"spark checkpoint"}  # tests/spark/test_checkpoint_command.py
PROCESSES = {"produce"}  # reads its standard input: has a test of its own
PRINTING = (
    "print",
    "sys.stdout.write",
    "sys.stderr.write",
    "sys.stdout.buffer.write",
)
EACH = [(name, arguments) for name, rows in ROWS.items() for arguments, _ in rows]


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[str]:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not found:
        yield name.strip()
    for each in found:
        for word, below in each.choices.items():
            yield from commands(below, f"{name} {word}")


def test_the_table_has_each_command() -> None:
    assert {*commands(command_parser())} == {*ROWS, *LOCAL, *WITH_SPARK, *PROCESSES}


def test_commands_print_by_one_module_only() -> None:
    folder = Path(command_line.__file__).parent
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING:
                assert path.name == "output.py", f"{path.name}:{node.lineno}"


def check_output(text: str) -> None:
    odd = {char for char in text if not char.isprintable() and char != "\n"}
    assert not odd, f"{odd}: {text!r}"
    assert not [line for line in text.splitlines() if line.startswith("FORGED")]


@pytest.fixture
def hostile_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedCluster]:
    """A broker with names that a broker should not accept."""
    monkeypatch.setattr(store, "check_topic_name", lambda name: None)
    monkeypatch.setattr(
        "aioprod.testing.broker.controls.topics.check_topic_name", lambda name: None, raising=False
    )
    with EmbeddedCluster.in_thread(authorizer=Authorizer(super_users=["User:ANONYMOUS"])) as broker:
        asyncio.run(_fill(broker))
        yield broker


async def _fill(broker: ThreadedCluster) -> None:
    broker.create_topic(TOPIC, 1)
    broker.create_topic("plain", 1)
    broker.create_topic("dead", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait(
            "plain",
            f"value{HOSTILE}".encode(),
            key=f"key{HOSTILE}".encode(),
            headers=[(f"h{HOSTILE}", HOSTILE.encode()), ("bytes", b"\xff\x9b31m")],
        )
        broken = [
            ("aioprod.original-topic", b"plain"),
            ("aioprod.error-class", HOSTILE.encode()),
            ("aioprod.error-message", HOSTILE.encode()),
            ("aioprod.group-id", HOSTILE.encode()),
            (f"h{HOSTILE}", HOSTILE.encode()),
        ]
        await producer.send_and_wait("dead", b"\x9b31m", key=HOSTILE.encode(), headers=broken)
    async with Consumer(
        "plain",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=GROUP,
        client_id=CLIENT,
        auto_offset_reset="earliest",
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
    async with Admin(broker.bootstrap_servers) as admin:
        position = {TopicPartition(TOPIC, 0): 0}
        (await admin.alter_consumer_group_offsets(GROUP, position)).check()
        await admin.create_acls(
            [
                AclBinding(
                    ResourceType.TOPIC,
                    TOPIC,
                    USER,
                    AclOperation.READ,
                    AclPermission.ALLOW,
                    PatternType.LITERAL,
                    f"host{HOSTILE}",
                )
            ]
        )
        await admin.alter_user_scram_credentials([ScramPassword("u" + HOSTILE, "secret")])


class Says(Action):
    """Changes all texts of responses but those that lead to the broker."""

    def __init__(self, only_errors: bool = False, failure: Failure | None = None) -> None:
        self.failure = failure
        self._only_errors = only_errors

    def change(self, response: Message) -> None:
        _change(response, self._only_errors)


def _change(value: Any, only_errors: bool) -> None:
    if isinstance(value, list):
        for each in value:
            _change(each, only_errors)
        return
    for name in _fields(value):
        inner = getattr(value, name)
        if "error_message" in name:
            setattr(value, name, f"reason{HOSTILE}")
        elif isinstance(inner, str) and not only_errors and name != "host":
            setattr(value, name, inner + HOSTILE)
        elif isinstance(inner, list):
            if inner and isinstance(inner[0], str):
                if not only_errors:
                    inner[:] = [each + HOSTILE for each in inner]
            else:
                _change(inner, only_errors)
        elif _fields(inner):
            _change(inner, only_errors)


def _fields(value: Any) -> list[str]:
    return [name for name in getattr(value, "__slots__", ()) if not name.startswith("_")] or list(
        getattr(value, "__dataclass_fields__", ())
    )


def run(
    broker: ThreadedCluster,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    line: list[str],
    limit_ms: int = 10_000,
) -> str:
    """Run a command in this process; return what it printed."""
    password = tmp_path / "password"
    password.write_text("secret")
    arguments = [str(password) if each == "PASSWORD" else each for each in line]
    limits = [f"-X=request.timeout.ms={limit_ms}", f"-X=default.api.timeout.ms={limit_ms + 100}"]
    if arguments[0] in ("consume", "copy"):
        limits = []
    if arguments[0] == "dlq":  # its settings are those that all clients share
        limits = limits[:1]
    try:
        command_line.main([*arguments, "-b", broker.bootstrap_servers, *limits])
    except SystemExit:
        pass
    output, errors = capfd.readouterr()
    check_output(output)
    check_output(errors)
    return output + errors


Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ROWS)
def test_names(name: str, hostile_cluster: ThreadedCluster, capfd: Capture, tmp_path: Path) -> None:
    for arguments, shows in ROWS[name]:
        text = run(hostile_cluster, capfd, tmp_path, [*name.split(), *arguments])
        if shows:
            assert "owned" in text, text
        if "--json" in arguments:
            found, _ = json.JSONDecoder().raw_decode(text)
            assert "FORGED" in json.dumps(found) or not shows


APIS = [key for key in ApiKey if key not in (ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.PRODUCE)]
# These wait for a group, or for topics, that do not come.
WAITING = ("consume", "copy")


@pytest.mark.parametrize("kind", ["all texts", "errors"])
def test_answers(
    kind: str, hostile_cluster: ThreadedCluster, capfd: Capture, tmp_path: Path
) -> None:
    # With other names of topics, or another id of the cluster, clients ask until their time is up.
    connecting = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
    failure = Failure(ErrorCode.INVALID_REQUEST) if kind == "errors" else None
    for key in APIS:
        try:
            hostile_cluster.on_every(
                key, Says(kind == "errors", None if key in connecting else failure)
            )
        except Exception:
            continue  # the embedded broker does not have this API
    shown = 0
    for name, arguments in EACH:
        if name not in WAITING:
            # Some answers let a command ask again until its limit.
            line = [*name.split(), *arguments]
            shown += "owned" in run(hostile_cluster, capfd, tmp_path, line, limit_ms=300)
    assert shown > 15


def test_tokens(
    hostile_cluster: ThreadedCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Capture,
    tmp_path: Path,
) -> None:
    # The embedded broker has no delegation tokens.
    owner = "User:o" + HOSTILE
    token = DelegationToken(f"t{HOSTILE}", b"hmac", owner, owner, (owner,), 0, 10**18, -(10**18))

    async def one(*arguments: Any, **options: Any) -> DelegationToken:
        return token

    async def all_of_them(*arguments: Any, **options: Any) -> list[DelegationToken]:
        return [token]

    async def until(*arguments: Any, **options: Any) -> int:
        return 10**18

    monkeypatch.setattr(Admin, "create_delegation_token", one)
    monkeypatch.setattr(Admin, "describe_delegation_tokens", all_of_them)
    monkeypatch.setattr(Admin, "renew_delegation_token", until)
    monkeypatch.setattr(Admin, "expire_delegation_token", until)
    for arguments in ("list", "list --json", "create", "create --json"):
        text = run(hostile_cluster, capfd, tmp_path, ["tokens", *arguments.split()])
        assert "owned" in text
    for action in ("renew", "expire"):
        yes = ["--yes"] if action == "expire" else []
        text = run(hostile_cluster, capfd, tmp_path, ["tokens", action, token.token_id, *yes])
        assert text == "1000000000000000000 ms\n"
        missing = ["tokens", action, "x" + HOSTILE, *yes]
        assert "owned" in run(hostile_cluster, capfd, tmp_path, missing)


def on_terminal(*arguments: str, given: bytes = b"") -> bytes:
    """Run a process whose output is a terminal; return what that gets."""
    main, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aioprod", *arguments],
        stdin=subprocess.PIPE,
        stdout=child,
        stderr=child,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    os.close(child)
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    found = b""
    try:
        while data := os.read(main, 65_536):
            found += data
    except OSError:  # the end, on Linux
        pass
    process.wait(60)
    os.close(main)
    return found


def test_a_pattern_on_a_terminal(hostile_cluster: ThreadedCluster) -> None:
    where = ("-b", hostile_cluster.bootstrap_servers)
    pattern = r"\x1b[1m%k\x1b[0m %v %h %t\n"
    found = on_terminal("consume", "plain", "-n", "1", "-q", "--format", pattern, *where)
    text = found.decode().replace("\r\n", "\n").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert {char for char in text if not char.isprintable()} == {"\n"}
    assert text.count(ESCAPED) == 4 and "\\xff" in text
    # A program that reads the output gets the bytes as they are.
    done = subprocess.run(
        [sys.executable, "-m", "aioprod", "consume", "plain", "-n", "1", "--format", "%v", *where],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"value{HOSTILE}".encode()
    check_output(done.stderr.decode())


def test_produce(hostile_cluster: ThreadedCluster) -> None:
    where = ("-b", hostile_cluster.bootstrap_servers)
    hostile_cluster.on_every(ApiKey.PRODUCE, Says(True, Failure(ErrorCode.INVALID_RECORD)))
    lines = json.dumps({"value": "x", HOSTILE: 1}).encode() + b"\n"
    for arguments, given in ((["plain"], b"x\n"), (["plain", "--format", "json"], lines)):
        text = on_terminal("produce", *arguments, *where, given=given).decode()
        check_output(text.replace("\r\n", "\n").replace("\r\x1b[K", ""))
        assert "owned" in text


def test_the_live_screen() -> None:
    from rich.console import Console

    from aioprod.cli.top_layout import Column, Table
    from aioprod.cli.top_screen import TopScreen

    screen = TopScreen(has_keys=True)
    screen.draw(f"cluster {HOSTILE}", Table([Column("GROUP", is_name=True)], [[GROUP]]))
    screen.note(f"error {HOSTILE}")
    console = Console(width=200, force_terminal=True, record=True, file=io.StringIO())
    console.print(screen)
    text = console.export_text(styles=False)
    check_output(text)
    assert text.count(ESCAPED) == 3
